"""Slices of what users differentiate: as they ask for them, noted for reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from rematc.compiler.driver.budget import at_users_line
from rematc.compiler.reports.slices import SlicesReport, log_slices
from rematc.ir.core import Graph
from rematc.lowering.planning import Budget
from rematc.lowering.slicing import Slices, in_slices, slices_of
from rematc.lowering.target import Target

#: That of the whole program that is being traced.
_BUDGET: ContextVar[Budget | None] = ContextVar("_BUDGET", default=None)


@contextmanager
def planning_for(budget: Budget | None) -> Iterator[None]:
    """What is traced is going to be planned for a budget as a whole: derivatives in it choose slices for that."""
    if budget is None:
        yield
        return
    token = _BUDGET.set(budget)
    try:
        yield
    finally:
        _BUDGET.reset(token)


def slices_argument(slices: object) -> Slices:
    """The slices that users ask for. Raises CompileError, at their line, for what says nothing about slices."""
    with at_users_line():
        return slices_of(slices)


def slice_graph(
    graph: Graph, slices: Slices, target: Target, donated: Sequence[int] = (), budget: Budget | None = None
) -> tuple[Graph, SlicesReport | None]:
    """A differentiated graph with its largest stage in slices, and what that is; as it is, and None, without.

    `budget` is what it is going to be planned for, if not for that of the whole program. It is logged to `rematc.plans`
    at level INFO. Raises CompileError, at the user's line, where nothing can be cut.
    """
    with at_users_line():
        found = in_slices(graph, slices, target, donated, _BUDGET.get() if budget is None else budget)
    if found is None:
        return graph, None
    report = SlicesReport.of(found)
    log_slices(report, graph.name)
    return found.graph, report
