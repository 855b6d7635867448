"""The check as an error under `--strict`."""

from __future__ import annotations

from collections.abc import Sequence

from rematc.compiler.reports.check import Check
from rematc.ir.errors import CompileError


def require_kept(check: Check | None) -> None:
    """Raise CompileError where XLA undid some of the plan, or the policy saves no memory."""
    if check is not None and check.faults:
        raise CompileError("\n".join(check.faults))


def require_all_kept(checks: Sequence[tuple[str, Check]]) -> None:
    """Raise CompileError for the policies of whose plans XLA undid some, or which save no memory."""
    faults = [f"policy {policy}: {fault}" for policy, check in checks for fault in check.faults]
    if faults:
        raise CompileError("\n".join(faults))
