"""Softmaxes of products that can be written in the products' place: all that reads them otherwise comes first.

Before:  %1 = reduce_max %p   %3 = exponential (%p - %1)   %4 = reduce_sum %3   ...   %9 = gather %p, %labels
After:   %1 = reduce_max %p   %9 = gather %p, %labels   %2, %10 = optimization_barrier %1, %9
         %3 = exponential (%p - %2)   %4 = reduce_sum %3   ...

The order alone is what plans are made for (pass `readers_first`); the barrier is for XLA:CPU.

%p is read last by what writes %3, which takes its place. Without the barrier a library of XLA's computes the maximum
and the exponentials in one kernel, which writes beside what it reads, and %9 is computed when the sum is there: the
logits of a head would be there twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from rematc.ir.core import Equation, Graph
from rematc.ir.ops.dot import DotGeneral
from rematc.ir.ops.indexing import Gather
from rematc.ir.ops.reduction import ReduceMax
from rematc.ir.ops.shape import BroadcastInDim, Reshape
from rematc.ir.ops.structural import Name, OptimizationBarrier, StopGradient
from rematc.ir.values import Value
from rematc.passes.manager import Pass, register_pass
from rematc.passes.regions import RegionRewriter


class ReadersFirst:
    """Rewrites graphs, and their regions.

    With `ties` a barrier keeps readers before what is written over the product; else there is the order alone.
    """

    def __init__(self, *, ties: bool = True) -> None:
        self._ties = ties
        self._regions = RegionRewriter(self.graph)

    def graph(self, graph: Graph) -> Graph:
        """The graph whose products are read before they are written over; the graph itself where none are."""
        uses = _Uses(graph)
        order = _Order(self._ties)
        for place, eqn in enumerate(graph.equations):
            if isinstance(eqn.op, ReduceMax) and uses.comes_back(eqn):
                order.tie(uses, place)
        return order.rewritten(graph, self._regions)


@register_pass
@dataclass(frozen=True, slots=True)
class ReadersFirstPass(Pass):
    """Read products before softmaxes of them are computed."""

    name: ClassVar[str] = "readers_first"

    def run(self, graph: Graph) -> Graph:
        return ReadersFirst(ties=False).graph(graph)


class _Uses:
    """Who reads which value of a graph, and of which products values are computed element by element.

    Attributes:
        equations: the graph's.
    """

    def __init__(self, graph: Graph) -> None:
        self.equations = graph.equations
        self._made: dict[Value, int] = {}
        self._users: dict[Value, list[Equation]] = {}
        self._product: dict[Value, Value] = {}
        self._gathers: dict[Value, list[int]] = {}
        for place, eqn in enumerate(graph.equations):
            self._made.update(dict.fromkeys(eqn.results, place))
            for value in eqn.operands:
                self._users.setdefault(value, []).append(eqn)
            self._trace(eqn, place)

    def _trace(self, eqn: Equation, place: int) -> None:
        op = eqn.op
        if isinstance(op, DotGeneral):
            self._product[eqn.results[0]] = eqn.results[0]
        elif isinstance(op, OptimizationBarrier):
            of = zip(eqn.operands, eqn.results, strict=True)
            self._product.update({result: self._product[value] for value, result in of if value in self._product})
        elif op.is_elementwise or isinstance(op, (Reshape, Name, StopGradient)):
            products = {self._product[value] for value in eqn.operands if value in self._product}
            if len(products) == 1:
                self._product[eqn.results[0]] = products.pop()
        elif isinstance(op, Gather) and eqn.operands[0] in self._product:
            self._gathers.setdefault(self._product[eqn.operands[0]], []).append(place)

    def comes_back(self, eqn: Equation) -> bool:
        """Whether a product is combined, element by element, with what it is reduced to."""
        (x,), (reduced,) = eqn.operands, eqn.results
        pending, seen = [reduced], {reduced}
        while pending and x in self._product:
            for user in self._users.get(pending.pop(), ()):
                if len(user.results) != 1 or user.results[0] in seen:
                    continue
                (result,) = user.results
                is_small = result.type.size <= reduced.type.size
                if user.op.is_elementwise and not is_small:
                    if any(self._product.get(value) is self._product[x] for value in user.operands):
                        return True
                elif user.op.is_elementwise or user.op.is_identity or isinstance(user.op, (BroadcastInDim, Reshape)):
                    seen.add(result)
                    pending.append(result)
        return False

    def gathers(self, eqn: Equation, place: int) -> list[int]:
        """The gathers from the product that is reduced there, further down."""
        found = self._gathers.get(self._product[eqn.operands[0]], [])
        return [gather for gather in found if gather > place]

    def before(self, reader: int, place: int) -> list[int] | None:
        """The equations that a reader needs to stand behind a place.

        None where it needs that one, or large values, or what a barrier holds, which must stay behind it.
        """
        size = self.equations[reader].operands[0].type.bytes
        needed: set[int] = set()
        pending = [reader]
        while pending:
            current = pending.pop()
            eqn = self.equations[current]
            is_large = any(value.type.bytes >= size for value in eqn.results) and not isinstance(eqn.op, Reshape)
            if current == place or eqn.op.effect or is_large or isinstance(eqn.op, OptimizationBarrier):
                return None
            needed.add(current)
            made = {self._made.get(value, -1) for value in eqn.operands}
            pending.extend(found for found in made - needed if found >= place)
        return sorted(needed)


@dataclass(frozen=True, slots=True)
class _Order:
    """What stands behind which equations, by their places.

    Attributes:
        ties: whether there are barriers.
        moved: the equations that do.
        tied: the values that a barrier there holds.
    """

    ties: bool = True
    moved: dict[int, list[int]] = field(default_factory=dict)
    tied: dict[int, list[Value]] = field(default_factory=dict)
    _taken: set[int] = field(default_factory=set)

    def tie(self, uses: _Uses, place: int) -> None:
        """Have gathers from the product that is reduced there read it before what is behind the barrier.

        What was moved for another product stays where it is now.
        """
        if place in self._taken:
            return
        eqn = uses.equations[place]
        self.tied[place], self.moved[place] = list(eqn.results), []
        for gather in uses.gathers(eqn, place):
            needed = uses.before(gather, place)
            if gather not in self._taken and needed is not None:
                self.moved[place] += [one for one in needed if one not in self._taken]
                self._taken.update(needed)
                self.tied[place] += uses.equations[gather].results

    def rewritten(self, graph: Graph, regions: RegionRewriter) -> Graph:
        """The graph in this order."""
        env: dict[Value, Value] = {}
        equations: list[Equation] = []

        def add(eqn: Equation) -> None:
            operands = tuple([env.get(value, value) for value in eqn.operands])
            op = regions.op(eqn.op)
            is_same = op is eqn.op and operands == eqn.operands
            equations.append(eqn if is_same else Equation(op, operands, eqn.results, eqn.loc))

        for place, eqn in enumerate(graph.equations):
            if place in self._taken:
                continue
            add(eqn)
            if place in self.tied:
                for other in self.moved[place]:
                    add(graph.equations[other])
            if place in self.tied and self.ties:
                held = tuple(self.tied[place])
                env.update({value: Value(value.type, value.name) for value in held})
                equations.append(Equation(OptimizationBarrier(), held, tuple([env[value] for value in held]), eqn.loc))
        has_barriers = self.ties and self.tied
        if not has_barriers and all(new is old for new, old in zip(equations, graph.equations, strict=True)):
            return graph
        results = tuple([env.get(value, value) for value in graph.results])
        return Graph(graph.name, graph.params, tuple(equations), results)
