"""Loops that begin with zeros of one shape each write their own, when what they read is there.

Before:  %0 = broadcast_in_dim 0   %2 = scan %0, %1 ...   %4 = scan %0, %3 ...
After:   %6, %7 = optimization_barrier 0, %1   %2 = scan (broadcast_in_dim %6), %7 ...
         %8, %9 = optimization_barrier 0, %3   %4 = scan (broadcast_in_dim %8), %9 ...

A loop overwrites what it begins with. XLA merges equal arrays, copies what several loops begin with for each of them,
and its CPU compiler runs a copy as soon as it can: all of them before the first loop, where they are held until the
last one. It merges nothing that different results of barriers are repeated to. For the stacks that a loop gives, of
which the graph knows no beginning, `rematc.lowering.ops.scan` does the same.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import ClassVar

from rematc.ir.core import Equation, Graph
from rematc.ir.ops.placement import has_placements
from rematc.ir.ops.shape import BroadcastInDim
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.ir.traversal import all_equations
from rematc.ir.values import Value
from rematc.lowering.target import Target
from rematc.lowering.targeting import current_target
from rematc.passes.barriers import has_recomputation
from rematc.passes.manager import Pass
from rematc.passes.regions import RegionRewriter

#: What is less than this part of the largest array is left as it is.
_PART = 128


@dataclass(frozen=True, slots=True)
class LateLoops(Pass):
    """The pass that does so for the current target. It is in no pipeline's text: only who knows the target adds it."""

    name: ClassVar[str] = "late_loops"

    def run(self, graph: Graph) -> Graph:
        return with_late_loops(graph) if runs_breadth_first(graph, current_target()) else graph


def runs_breadth_first(graph: Graph, target: Target) -> bool:
    """Whether the order in which it runs is XLA:CPU's breadth-first one, and what holds memory then is known."""
    if target.platform != "cpu" or target.devices > 1:
        return False
    return has_recomputation(graph) and not has_placements(graph)


def with_late_loops(graph: Graph) -> Graph:
    """The graph, after the passes, whose loops begin so, in regions, too; itself where no zeros are shared."""
    largest = max([value.type.bytes for eqn in all_equations(graph) for value in eqn.results], default=0)
    beginning = _Beginning(max(1, largest // _PART))
    return beginning.regions.graph(graph)


class _Beginning:
    """Rewrites graphs so that loops begin late with so many bytes."""

    def __init__(self, least: int) -> None:
        self._least = least
        self.regions = RegionRewriter(self._rewritten)

    def _rewritten(self, graph: Graph) -> Graph:
        made = {value: place for place, eqn in enumerate(graph.equations) for value in eqn.results}
        repeats = {value: graph.equations[at] for value, at in made.items() if _is_repeat(graph.equations[at])}
        begun = {at: _begun_with(eqn, repeats, self._least) for at, eqn in enumerate(graph.equations)}
        shared = Counter([graph.equations[at].operands[place].type for at, places in begun.items() for place in places])
        equations: list[Equation] = []
        for at, given in enumerate(graph.equations):
            eqn = self.regions.equation(given)
            places = [place for place in begun[at] if shared[eqn.operands[place].type] > 1]
            others = [value for value in eqn.operands if value in made and value not in repeats] if places else []
            if others:
                eqn = _waiting(eqn, places, max(others, key=made.__getitem__), repeats, equations)
            equations.append(eqn)
        is_same = all(new is old for new, old in zip(equations, graph.equations, strict=False))
        return graph if is_same else replace(graph, equations=tuple(equations))


def _is_repeat(eqn: Equation) -> bool:
    return isinstance(eqn.op, BroadcastInDim)


def _begun_with(eqn: Equation, repeats: dict[Value, Equation], least: int) -> list[int]:
    """The operands of so many bytes that a loop begins with, and that only repeat something."""
    if not eqn.op.regions():
        return []
    over = {eqn.op.overwrites(result) for result in range(len(eqn.results))}
    return [
        place
        for place, value in enumerate(eqn.operands)
        if place in over and value in repeats and value.type.bytes >= least
    ]


def _waiting(
    eqn: Equation, places: list[int], last: Value, repeats: dict[Value, Equation], equations: list[Equation]
) -> Equation:
    """A loop that begins, at these operands, with arrays that are written when another one of them is there."""
    sources = [repeats[eqn.operands[place]].operands[0] for place in places]
    waited = {source: Value(source.type) for source in (*sources, last)}
    equations.append(Equation(OptimizationBarrier(), tuple(waited), tuple(waited.values()), eqn.loc))
    operands = [waited[last] if value is last else value for value in eqn.operands]
    for place, source in zip(places, sources, strict=True):
        operands[place] = Value(eqn.operands[place].type)
        equations.append(Equation(repeats[eqn.operands[place]].op, (waited[source],), (operands[place],), eqn.loc))
    return replace(eqn, operands=tuple(operands))
