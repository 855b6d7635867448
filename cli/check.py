"""The check as an error under `--strict`."""

from __future__ import annotations

from collections.abc import Sequence

from rematc.compiler.reports.check import Check
from rematc.ir.errors import CompileError


def require_kept(check: Check | None) -> None:
    """Raise CompileError where XLA undid some of the plan."""
    if check is not None and check.is_broken:
        raise CompileError(f"{check.message}; {check.way_out}")


def require_all_kept(broken: Sequence[tuple[str, Check]]) -> None:
    """Raise CompileError for the policies of whose plans XLA undid some."""
    if broken:
        raise CompileError("\n".join(f"policy {policy}: {check.message}; {check.way_out}" for policy, check in broken))
