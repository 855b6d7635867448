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

from collections.abc import Iterator

from rematc.ir.core import Equation, Graph
from rematc.ir.ops.case.op import Case
from rematc.ir.values import Value
from rematc.passes.cse import CommonSubexpressions
from rematc.passes.dce import DeadCode
from rematc.passes.planning.joined_branches import joined
from rematc.passes.planning.loops import is_repeatable
from rematc.passes.readers import readers_of
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
        # What joining adds to what a reader reads comes from before these branches, which is decided already.
        for place, values, readers in _given_to_later_ones(graph):
            for reader in readers:
                equations[reader] = joined(equations[place], equations[reader], values)
        if all(new is old for new, old in zip(equations, graph.equations, strict=True)):
            return graph
        return Graph(graph.name, graph.params, tuple(equations), graph.results)


def _given_to_later_ones(graph: Graph) -> Iterator[tuple[int, set[Value], list[int]]]:
    """The places of branches that may run again, with what they give to branches of their index alone, and these, as
    far as they come later.

    Such are those that read something else that follows from these branches, as a derivative's do: until that is there,
    what they are given is held. The next layer does not, though all layers may have one index.
    """
    equations, readers = graph.equations, readers_of(graph)
    #: The branches that values follow from, as bits.
    sources: dict[Value, int] = {}
    bits: dict[int, int] = {}
    for place, eqn in enumerate(equations):
        own = 0
        for value in eqn.operands:
            own |= sources.get(value, 0)
        if isinstance(eqn.op, Case):
            bits[place] = 1 << len(bits)
            own |= bits[place]
        if own:
            sources |= dict.fromkeys(eqn.results, own)
    for place, bit in bits.items():
        eqn = equations[place]
        index = eqn.operands[0]
        alike = {
            value: places
            for value in eqn.results
            if (places := readers.get(value))
            and all(at in bits and equations[at].operands[0] is index for at in places)
        }
        if not alike or not is_repeatable(eqn):
            continue
        others = {
            at: [value for value in equations[at].operands[1:] if value not in alike]
            for at in set().union(*alike.values())
        }
        later = {at for at, values in others.items() if any(sources.get(value, 0) & bit for value in values)}
        values = {value for value, places in alike.items() if later.issuperset(places)}
        if values:
            yield place, values, sorted({at for value in values for at in alike[value]})
