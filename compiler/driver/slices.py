"""Slices of what users differentiate: as they ask for them, noted for reports."""

from __future__ import annotations

from collections.abc import Sequence

from rematc.compiler.driver.budget import at_users_line
from rematc.compiler.reports.slices import SlicesReport, log_slices
from rematc.ir.core import Graph
from rematc.lowering.slicing import Slices, in_slices, slices_of
from rematc.lowering.target import Target


def slices_argument(slices: object) -> Slices:
    """The slices that users ask for. Raises CompileError, at their line, for what says nothing about slices."""
    with at_users_line():
        return slices_of(slices)


def slice_graph(
    graph: Graph, slices: Slices, target: Target, donated: Sequence[int] = ()
) -> tuple[Graph, SlicesReport | None]:
    """A differentiated graph with its largest stage in slices, and what that is; as it is, and None, without.

    It is logged to `rematc.plans` at level INFO. Raises CompileError, at the user's line, where nothing can be cut.
    """
    with at_users_line():
        found = in_slices(graph, slices, target, donated)
    if found is None:
        return graph, None
    report = SlicesReport.of(found)
    log_slices(report, graph.name)
    return found.graph, report
