"""The check as a table, and as an error under `--strict`."""

from __future__ import annotations

from collections.abc import Sequence

from rematc.cli.source import relative
from rematc.cli.tables import Table
from rematc.compiler.reports.check import Check
from rematc.ir.errors import CompileError
from rematc.lowering.hlo.module import SourceLine


def check_table(check: Check) -> Table:
    """What was planned and what XLA runs: the verdict as the title, merged products as rows, the way out below."""
    rows = tuple(
        (f"merged {row.count} of {row.planned}", row.product, _place(row.source)) for row in check.comparison.where
    )
    return Table(f"check: {check.message}", ("", "", ""), (False, False, False), rows, check.way_out)


def _place(source: SourceLine | None) -> str:
    return "" if source is None else f"from {relative(source.file)}:{source.line}"


def require_kept(check: Check | None) -> None:
    """Raise CompileError where XLA undid some of the plan."""
    if check is not None and check.is_broken:
        raise CompileError(f"{check.message}; {check.way_out}")


def require_all_kept(broken: Sequence[tuple[str, Check]]) -> None:
    """Raise CompileError for the policies of whose plans XLA undid some."""
    if broken:
        raise CompileError("\n".join(f"policy {policy}: {check.message}; {check.way_out}" for policy, check in broken))
