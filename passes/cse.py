"""Common subexpression elimination: of equations that compute the same, the first remains; in regions too.

Before:  %0: f32[4] = sine %x          After:  %0: f32[4] = sine %x
         %1: f32[4] = sine %x                  %1: f32[4] = multiply %0, %0
         %2: f32[4] = multiply %0, %1          return %1

Why: a derivative repeats what its primal computes, and frontends repeat constants. Nothing crosses a barrier: the
results of an `optimization_barrier` are values that no other equation has, and two barriers are never one, so that
recomputation is not merged with the forward evaluation. Nothing crosses a region's boundary either.
"""

from __future__ import annotations

from dataclasses import dataclass

from rematc.ir.core import Equation, Graph
from rematc.ir.values import Value
from rematc.passes.manager import Pass, register_pass
from rematc.passes.regions import RegionRewriter


@register_pass
@dataclass(frozen=True, slots=True)
class CommonSubexpressions(Pass):
    """Merge equations of equal ops and operands; operands of commutative ops may be exchanged."""

    name = "cse"

    def run(self, graph: Graph) -> Graph:
        return _CommonSubexpressions().graph(graph)


class _CommonSubexpressions:
    def __init__(self) -> None:
        self._regions = RegionRewriter(self.graph)

    def graph(self, graph: Graph) -> Graph:
        """The graph with each computation once; the graph itself if none is repeated."""
        merged: dict[Value, Value] = {}
        first: dict[tuple[object, ...], tuple[Value, ...]] = {}
        kept: list[Equation] = []
        has_changed = False
        for eqn in graph.equations:
            new = self._rewritten(eqn, merged)
            has_changed = has_changed or new is not eqn
            if not new.op.is_mergeable:
                kept.append(new)
                continue
            results = first.setdefault(_key(new), new.results)
            if results is new.results or new.op.effect:
                kept.append(new)
            else:
                merged.update(zip(new.results, results, strict=True))
        if not has_changed and not merged:
            return graph
        results = tuple([merged.get(value, value) for value in graph.results])
        return Graph(graph.name, graph.params, tuple(kept), results)

    def _rewritten(self, eqn: Equation, merged: dict[Value, Value]) -> Equation:
        operands = eqn.operands
        if merged and not merged.keys().isdisjoint(operands):
            operands = tuple([merged.get(value, value) for value in operands])
        op = self._regions.op(eqn.op)
        if op is eqn.op and operands is eqn.operands:
            return eqn
        return Equation(op, operands, eqn.results, eqn.loc)


def _key(eqn: Equation) -> tuple[object, ...]:
    """Equal for equations that compute the same bits."""
    op, operands = eqn.op, eqn.operands
    if eqn.commutes:
        # Any order will do as long as it is the same one each time.
        operands = tuple(sorted(operands, key=id))
    return (op, operands)
