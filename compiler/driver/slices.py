"""Slices of what users differentiate: as they ask for them, noted for reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from rematc.compiler.driver.budget import at_users_line
from rematc.compiler.reports.slices import SlicesReport, log_slices
from rematc.lowering.planning import Budget
from rematc.lowering.slicing import OFF, Choice, Derive, Slices, in_slices, slices_of
from rematc.lowering.target import Target

#: That of the whole program that is being traced.
_BUDGET: ContextVar[Budget | None] = ContextVar("_BUDGET", default=None)
#: In how many slices it is going to run.
_SLICES: ContextVar[int] = ContextVar("_SLICES", default=1)


@contextmanager
def planning_for(budget: Budget | None, slices: Slices = OFF) -> Iterator[None]:
    """What is traced is planned or cut as a whole: derivatives in it choose their slices and segments for that."""
    tokens = _BUDGET.set(budget or _BUDGET.get()), _SLICES.set(slices if isinstance(slices, int) else 1)
    try:
        yield
    finally:
        _BUDGET.reset(tokens[0])
        _SLICES.reset(tokens[1])


def slices_of_program() -> int:
    """In how many slices the whole program is going to run that is being traced, 1 if that is not said."""
    return _SLICES.get()


def slices_argument(slices: object) -> Slices:
    """The slices that users ask for. Raises CompileError, at their line, for what says nothing about slices."""
    with at_users_line():
        return slices_of(slices)


def slice_graph(
    derive: Derive,
    slices: Slices,
    target: Target,
    donated: Sequence[int] = (),
    budget: Budget | None = None,
    shardings: Sequence[Any] = (),
) -> tuple[Choice, SlicesReport | None]:
    """A differentiated graph with its largest stages in slices, and what these are; as it is, and None, without.

    `budget` is what it is going to be planned for, if not for that of the whole program. `shardings` are JAX's of its
    first parameters; None, or none at all, for those that nobody knows. It is logged to `rematc.plans`
    at level INFO. Raises CompileError, at the user's line, where nothing can be cut.
    """
    with at_users_line():
        choice = in_slices(derive, slices, target, donated, _BUDGET.get() if budget is None else budget, shardings)
    if choice.sliced is None:
        return choice, None
    assert choice.whole is not None, "slices are compared with the program as it stands"
    report = SlicesReport.of(choice.sliced, choice.whole)
    log_slices(report, choice.graph.name)
    return choice, report
