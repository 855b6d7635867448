"""A policy on a whole program, so that it saves what it would save on each block of the program.

Before:  graph @loss(%w0, %w1, %x) { first layer ...  second layer ...  loss }
After:   graph @loss(%w0, %w1, %x) { %1 = checkpoint %w0, %x {...}   %2 = checkpoint %w1, %1 {...} ... }

One region around everything is recomputed at once before its backward pass begins, and so saves next to nothing. Of
regions in a row each is recomputed just before its own backward pass, and what it computed dies with it. What crosses
from one to another is saved: the forward pass has it anyway, and the backward pass could not begin without it. The
segments are found in the program (`segments`); loops are staged step by step (`loops`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rematc.ir.collecting import collection_paused
from rematc.ir.core import Equation, Graph
from rematc.ir.ops.scan.op import Scan
from rematc.ir.policy import Policy
from rematc.ir.values import Value
from rematc.passes.inline import inline_for_differentiation
from rematc.passes.linearize import under_policy
from rematc.passes.staging.footprint import Footprint, footprint
from rematc.passes.staging.loops import is_staged, stage_loop
from rematc.passes.staging.outline import Outliner
from rematc.passes.staging.segments import choose_cuts


@collection_paused()
def staged(graph: Graph, policy: Policy) -> Graph:
    """`graph` under a policy as a whole, in segments.

    A graph that is not worth cutting becomes one region; under a policy that saves everything there is none.
    """
    graph = inline_for_differentiation(graph)
    if policy.is_everything:
        return graph
    found = footprint(graph, policy)
    spans = list(_spans(graph, found, policy))
    if len(spans) == 1 and spans[0].loop is None:
        return under_policy(graph, policy)
    outliner = Outliner(graph, found.repeated, found.last_use)
    equations: list[Equation] = []
    outside: list[Value] = [value for value in graph.results if value in found.repeated]
    for span in spans:
        if span.loop is not None:
            eqn = graph.equations[span.begin]
            outside.extend(value for value in eqn.operands if value in found.repeated)
            equations.extend(stage_loop(eqn, span.loop, policy))
        elif (region := outliner.region(span.begin, span.end, policy)) is not None:
            equations.append(region)
    return Graph(graph.name, graph.params, (*outliner.outside(outside), *equations), graph.results)


@dataclass(frozen=True, slots=True)
class _Span:
    """Equations that are staged together: a segment, or a loop by itself.

    Attributes:
        begin: index of the first equation.
        end: index after the last one.
        loop: the loop; None for a segment.
    """

    begin: int
    end: int
    loop: Scan | None = None


def _spans(graph: Graph, found: Footprint, policy: Policy) -> Iterator[_Span]:
    """The segments of a graph in order; each loop is one of its own."""
    begin = 0
    for index, eqn in enumerate(graph.equations):
        if isinstance(eqn.op, Scan) and is_staged(eqn.op, policy):
            yield from _segments(found, begin, index)
            yield _Span(index, index + 1, eqn.op)
            begin = index + 1
    yield from _segments(found, begin, len(graph.equations))


def _segments(found: Footprint, begin: int, end: int) -> Iterator[_Span]:
    if begin == end:
        return
    for cut in choose_cuts(found, begin, end):
        yield _Span(begin, cut)
        begin = cut
    yield _Span(begin, end)
