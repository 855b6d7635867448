"""Branches that compute again what other branches of the same index gave to nothing else.

Before:  %1, %2 = case %i, %c {branches: [%2 = dot ..., %1 = tanh %2], ...}   ...
         %8 = case %i, %2, %7 {branches: [%8 = dot %7, %2], ...}
After:   %1 = case %i, %c {branches: [%2 = dot ..., %1 = tanh %2], ...}   ...
         %8 = case %i, %7, %c {branches: [%2 = dot ...   %8 = dot %7, %2], ...}

So it is with layers that may be left out: a derivative holds what their branches begin with, and not what they compute.
What is computed again need not be in memory as a whole either: a branch runs in stages
(`rematc.passes.planning.staged_bodies`). No compiler merges work of two branches: no barrier is needed.
"""

from __future__ import annotations

from collections.abc import Sequence

from rematc.ir.core import Equation, Graph
from rematc.ir.ops.case.op import Case
from rematc.ir.values import Value
from rematc.passes.cse import CommonSubexpressions
from rematc.passes.dce import DeadCode
from rematc.passes.planning.joined_branches import joined
from rematc.passes.planning.loops import is_repeatable
from rematc.passes.regions import RegionRewriter


def with_branches_again(graph: Graph) -> Graph:
    """The graph with all such branches, those in its regions among them; the graph itself where there are none."""
    found = _Again().graph(graph)
    return graph if found is graph else DeadCode().run(CommonSubexpressions().run(found))


class _Again:
    """Graphs and their regions with branches that compute again what was given to them alone."""

    def __init__(self) -> None:
        self._regions = RegionRewriter(self.graph)

    def graph(self, graph: Graph) -> Graph:
        """The graph itself where there are none."""
        equations = []
        for eqn in graph.equations:
            op = self._regions.op(eqn.op)
            equations.append(eqn if op is eqn.op else Equation(op, eqn.operands, eqn.results, eqn.loc))
        for place in range(len(equations)):
            values, readers = _given_to_later_ones(equations, place, graph.results)
            for reader in readers:
                equations[reader] = joined(equations[place], equations[reader], values)
        if all(new is old for new, old in zip(equations, graph.equations, strict=True)):
            return graph
        return Graph(graph.name, graph.params, tuple(equations), graph.results)


def _given_to_later_ones(
    equations: Sequence[Equation], place: int, results: Sequence[Value]
) -> tuple[set[Value], list[int]]:
    """What branches that may run again give to branches of their index alone, and these, as far as they come later.

    Such are those that read something else that follows from these branches, as a derivative's do: until that is there,
    what they are given is held. The next layer does not, though all layers may have one index.
    """
    eqn = equations[place]
    if not isinstance(eqn.op, Case) or not is_repeatable(eqn):
        return set(), []
    readers: dict[Value, list[int]] = {value: [] for value in eqn.results}
    alike: dict[int, Equation] = {}
    following = set(eqn.results)
    for index, other in enumerate(equations[place + 1 :], place + 1):
        if following.isdisjoint(other.operands):
            continue
        following.update(other.results)
        for value in readers.keys() & {*other.operands}:
            readers[value].append(index)
        if isinstance(other.op, Case) and other.operands[0] is eqn.operands[0]:
            alike[index] = other
    given = {value for value, places in readers.items() if alike.keys() >= {*places}} - {*results}
    # An operand that follows is there before the one that reads it: all that follows is known by then.
    later = {index for index, other in alike.items() if not following.isdisjoint({*other.operands[1:]} - given)}
    values = {value for value in given if readers[value] and later.issuperset(readers[value])}
    return values, sorted({index for value in values for index in readers[value]})
