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
from rematc.passes.regions import EquationRewriter, Rule

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
    least = max(1, largest // _PART)
    return EquationRewriter(lambda graph: _begun_late(graph, least)).graph(graph)


def _begun_late(graph: Graph, least: int) -> Rule:
    made = {value: place for place, eqn in enumerate(graph.equations) for value in eqn.results}
    repeats = {eqn.results[0]: eqn for eqn in graph.equations if isinstance(eqn.op, BroadcastInDim)}
    begun = [eqn.operands[place] for eqn in graph.equations for place in _begun_with(eqn, repeats, least)]
    shared = Counter([value.type for value in begun])

    def begun_late(eqn: Equation) -> list[Equation] | None:
        places = [place for place in _begun_with(eqn, repeats, least) if shared[eqn.operands[place].type] > 1]
        others = [value for value in eqn.operands if value in made and value not in repeats] if places else []
        return _waiting(eqn, places, max(others, key=made.__getitem__), repeats) if others else None

    return begun_late


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


def _waiting(eqn: Equation, places: list[int], last: Value, repeats: dict[Value, Equation]) -> list[Equation]:
    """A loop that begins, at these operands, with arrays that are written when another one of them is there."""
    own = {place: repeats[eqn.operands[place]] for place in places}
    waited = {value: Value(value.type) for value in (*[repeat.operands[0] for repeat in own.values()], last)}
    operands = [waited[last] if value is last else value for value in eqn.operands]
    found = [Equation(OptimizationBarrier(), tuple(waited), tuple(waited.values()), eqn.loc)]
    for place, repeat in own.items():
        operands[place] = Value(eqn.operands[place].type)
        found.append(Equation(repeat.op, (waited[repeat.operands[0]],), (operands[place],), eqn.loc))
    return [*found, replace(eqn, operands=tuple(operands))]
