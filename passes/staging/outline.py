"""Segments of a graph as regions of their own.

Before:  graph @f(%x, %w) { %0 = dot_general %x, %w   %1 = tanh %0   %2 = dot_general %1, %w   %3 = tanh %2 ... }
After:   graph @f(%x, %w) { %1 = checkpoint %x, %w {dot_general, tanh}   %3 = checkpoint %1, %w {...} ... }
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

from rematc.ir.core import Equation, Graph
from rematc.ir.locations import Location
from rematc.ir.ops.regions import Checkpoint
from rematc.ir.ops.structural import Name
from rematc.ir.policy import CROSSING, Policy
from rematc.ir.splicing import splice
from rematc.ir.values import Value
from rematc.passes.policies import with_crossing

#: The body of a region, and the lines that its equations are from: alike are those of which both are.
Body = tuple[Graph, tuple[Location | None, ...]]


class Outliner:
    """Puts segments of one graph into checkpoint regions under a policy.

    `repeated` are values that a region computes again, from parameters, instead of taking them. Segments that are alike
    have one body, which is then differentiated once: it is found among `bodies`, or becomes one of them.
    """

    def __init__(
        self,
        graph: Graph,
        policy: Policy,
        repeated: Set[Value],
        last_use: dict[Value, int],
        bodies: dict[Body, Graph] | None = None,
    ) -> None:
        self._graph = graph
        self._policy = with_crossing(policy)
        self._bodies = {} if bodies is None else bodies
        self._repeated = repeated
        self._last_use = last_use
        self._results = frozenset(graph.results)
        self._producer = {
            value: index for index, eqn in enumerate(graph.equations) for value in eqn.results if value in repeated
        }

    def region(self, begin: int, end: int, prevent_cse: bool | None = None) -> Equation | None:
        """The region of equations[begin:end]; None where nothing after them uses a result, and none has an effect."""
        inside = [
            eqn
            for eqn in self._graph.equations[begin:end]
            if eqn.op.effect or any(value not in self._repeated for value in eqn.results)
        ]
        outputs = tuple(
            [
                value
                for eqn in inside
                for value in eqn.results
                if value in self._results or self._last_use.get(value, -1) >= end
            ]
        )
        if not outputs and not any(eqn.op.effect for eqn in inside):
            return None
        equations = (*self._again(value for eqn in inside for value in eqn.operands), *inside)
        known = {value for eqn in equations for value in eqn.results}
        inputs = tuple(dict.fromkeys(value for eqn in equations for value in eqn.operands if value not in known))
        crosses = [self._last_use.get(value, -1) >= end for value in outputs]
        body = _closed(self._graph.name, inputs, equations, outputs, crosses)
        body = self._bodies.setdefault((body, tuple([eqn.loc for eqn in body.equations])), body)
        first = next((eqn.loc for eqn in inside if eqn.loc is not None), None)
        return Equation(Checkpoint(body, self._policy, prevent_cse), inputs, outputs, first)

    def outside(self, values: Sequence[Value]) -> tuple[Equation, ...]:
        """The equations of repeated values that stay outside of regions: those that `values` need."""
        return self._again(values)

    def _again(self, wanted: Iterable[Value]) -> tuple[Equation, ...]:
        """The equations of the repeated values among those wanted, and of what these need, in program order."""
        stack = [value for value in wanted if value in self._repeated]
        found: set[int] = set()
        while stack:
            index = self._producer[stack.pop()]
            if index not in found:
                found.add(index)
                operands = self._graph.equations[index].operands
                stack.extend([value for value in operands if value in self._repeated])
        return tuple([self._graph.equations[index] for index in sorted(found)])


def _closed(
    name: str,
    inputs: tuple[Value, ...],
    equations: Sequence[Equation],
    outputs: tuple[Value, ...],
    crosses: Sequence[bool],
) -> Graph:
    """A graph of copies of equations, in values of its own; outputs that cross are labelled."""
    labels = {value: Value(value.type, value.name) for value, is_set in zip(outputs, crosses, strict=True) if is_set}
    named = [
        Equation(Name(CROSSING), (value,), (labels[value],), eqn.loc)
        for eqn in equations
        for value in eqn.results
        if value in labels
    ]
    whole = Graph(name, inputs, (*equations, *named), tuple([labels.get(value, value) for value in outputs]))
    params = tuple([Value(value.type, value.name) for value in inputs])
    copies: list[Equation] = []
    results = splice(whole, params, copies)
    return Graph(name, params, tuple(copies), results)
