"""The budget that the command line asks for."""

from __future__ import annotations

from rematc.cli.options import Options
from rematc.lowering.planning import Budget


def budget_of(options: Options) -> Budget | None:
    """The budget, and what its plan must not do; None for none. Raises CompileError for what is no budget."""
    if options.budget is None:
        return None
    return Budget(options.budget, _names(options.keep), _names(options.never_repeat))


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(filter(None, [name.strip() for name in (text or "").split(",")]))
