"""Dead code elimination: equations none of whose results is needed are gone, in regions too; those with effects stay.

Before:  %0: f32[4] = sine %x          After:  %0: f32[4] = cosine %x
         %1: f32[4] = cosine %x                return %0
         return %1

Why: differentiation leaves behind what only other derivatives need, and cse and simplify leave what they replaced.
Regions lose what is dead inside them. An op that says so (`without_unused`) loses unused operands and results as well:
a region, or a decomposition whose vectors nobody needs.
"""

from __future__ import annotations

from dataclasses import dataclass

from rematc.ir.core import Equation, Graph
from rematc.ir.ops.bodies import without_unused
from rematc.ir.values import Value
from rematc.passes.manager import Pass, register_pass
from rematc.passes.regions import RegionRewriter


@register_pass
@dataclass(frozen=True, slots=True)
class DeadCode(Pass):
    """Remove equations without used results and without effects.

    An equation with one used result stays whole: an `optimization_barrier` may wait for an operand that nothing uses.
    """

    name = "dce"

    def run(self, graph: Graph) -> Graph:
        return _DeadCode().graph(graph)


class _DeadCode:
    def __init__(self) -> None:
        self._regions = RegionRewriter(self.graph)

    def graph(self, graph: Graph) -> Graph:
        """The graph without dead equations, its parameters as they were; the graph itself if nothing is dead."""
        live = set(graph.results)
        kept: list[Equation] = []
        has_changed = False
        for eqn in reversed(graph.equations):
            if live.isdisjoint(eqn.results) and not eqn.op.effect:
                has_changed = True
                continue
            new = self._pruned(eqn, live) if eqn.op.regions() or len(eqn.results) > 1 else eqn
            has_changed = has_changed or new is not eqn
            live.update(new.operands)
            kept.append(new)
        if not has_changed:
            return graph
        return Graph(graph.name, graph.params, tuple(reversed(kept)), graph.results)

    def _pruned(self, eqn: Equation, live: set[Value]) -> Equation:
        """The equation with clean regions that have no unused results, and then no unused parameters."""
        pruned = without_unused(eqn, [value in live for value in eqn.results])
        if not pruned.op.regions():
            return pruned
        op = self._regions.op(pruned.op)
        if op is pruned.op:
            return pruned
        used = [value in live for value in pruned.results]
        return without_unused(Equation(op, pruned.operands, pruned.results, eqn.loc), used)
