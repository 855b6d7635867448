"""Rewriting the regions inside ops, for passes that treat every graph alike."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from weakref import WeakMethod

from rematc.ir.core import Equation, Graph, Op, has_regions


class RegionRewriter:
    """Applies one rewrite to all regions, and to each graph only once however many ops share it.

    Functions that call functions share bodies; without the memory a rewrite would take exponential time, and bodies
    that were one object would no longer be.
    """

    def __init__(self, rewrite: Callable[[Graph], Graph]) -> None:
        """A method is held weakly: its owner has the rewriter, and no cycle is to keep the graphs."""
        self._rewrite = WeakMethod(rewrite) if inspect.ismethod(rewrite) else lambda: rewrite
        # By identity. The graph is held so that no other one gets its id.
        self._done: dict[int, tuple[Graph, Graph]] = {}

    def graph(self, graph: Graph) -> Graph:
        """The rewritten graph, of the same parameter and result types."""
        done = self._done.get(id(graph))
        if done is None:
            rewrite = self._rewrite()
            assert rewrite is not None, "who rewrites is there meanwhile"
            done = self._done[id(graph)] = (graph, rewrite(graph))
        return done[1]

    def op(self, op: Op) -> Op:
        """The op with rewritten regions; itself if none changes."""
        if not has_regions(op) or not op.regions():
            return op
        changed = {}
        for field in dataclasses.fields(op):  # type: ignore[arg-type]  # every op is a dataclass
            value = getattr(op, field.name)
            new = self._value(value)
            if new is not value:
                changed[field.name] = new
        return dataclasses.replace(op, **changed) if changed else op  # type: ignore[type-var]  # as above

    def equation(self, eqn: Equation) -> Equation:
        """The equation of the op with rewritten regions; itself if none changes."""
        op = self.op(eqn.op)
        return eqn if op is eqn.op else Equation(op, eqn.operands, eqn.results, eqn.loc)

    def _value(self, value: object) -> object:
        if isinstance(value, Graph):
            return self.graph(value)
        if isinstance(value, tuple) and any(isinstance(item, Graph) for item in value):
            new = tuple([self._value(item) for item in value])
            return value if all(a is b for a, b in zip(new, value, strict=True)) else new
        return value


def with_region(op: Op, index: int, graph: Graph) -> Op:
    """The op with another graph as one of its regions, by its number in `Op.regions`."""
    count = 0
    for field in dataclasses.fields(op):  # type: ignore[arg-type]  # every op is a dataclass
        value = getattr(op, field.name)
        own = value if isinstance(value, tuple) else (value,)
        graphs = [place for place, item in enumerate(own) if isinstance(item, Graph)]
        if index - count < len(graphs):
            place = graphs[index - count]
            new = (*own[:place], graph, *own[place + 1 :])
            changed = {field.name: new if isinstance(value, tuple) else graph}
            return dataclasses.replace(op, **changed)  # type: ignore[type-var]  # as above
        count += len(graphs)
    raise IndexError(f"'{op.name}' has {count} regions, and none of number {index}")


#: What takes the place of an equation, whose regions are rewritten already; None where it stays.
Rule = Callable[[Equation], Sequence[Equation] | None]


class EquationRewriter:
    """Rewrites graphs, and their regions, equation by equation."""

    def __init__(self, rule_of: Callable[[Graph], Rule]) -> None:
        """`rule_of` gives the rule for the equations of one graph, once it has looked at all of them."""
        self._rule_of = rule_of
        self._regions = RegionRewriter(self.graph)

    def graph(self, graph: Graph) -> Graph:
        """The graph with what the rule gives in the place of equations; the graph itself where all stay."""
        rule = self._rule_of(graph)
        equations: list[Equation] = []
        has_changed = False
        for eqn in graph.equations:
            op = self._regions.op(eqn.op)
            own = eqn if op is eqn.op else Equation(op, eqn.operands, eqn.results, eqn.loc)
            instead = rule(own)
            has_changed |= own is not eqn or instead is not None
            equations.extend([own] if instead is None else instead)
        return Graph(graph.name, graph.params, tuple(equations), graph.results) if has_changed else graph
