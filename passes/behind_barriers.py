"""What products compute of their operands stands behind a barrier, not in front of it.

Before:  %2 = exponential %1   %3 = multiply %2, %s   %4, %5 = optimization_barrier %x, %3   %9 = dot_general %5, %w
After:   %4, %6, %7 = optimization_barrier %x, %1, %s   %8 = exponential %6   %5 = multiply %8, %7
         %9 = dot_general %5, %w

XLA for TPUs has a product of matrices compute elements of its operands: the gradient of logits, element by element from
the logits themselves, is in memory nowhere, though two products read it. A barrier between the two has all of it
written, beside the logits. So what these products alone read behind a barrier is computed behind it, where what it is
computed from, and is held for that, is no more. A convolution has layouts of its own, in which that may be several
times as many bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from rematc.ir.core import Equation, Graph
from rematc.ir.ops.dot import DotGeneral
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.ir.values import Value
from rematc.passes.kernels import Fusion, Kernels, kernels
from rematc.passes.manager import Pass
from rematc.passes.readers import is_renamed, read_only_by, readers_of


@dataclass(frozen=True, slots=True)
class BehindBarriers(Pass):
    """The pass that does so, for a device that fuses like this; not in the steps of loops."""

    name: ClassVar[str] = "behind_barriers"
    fusion: Fusion

    def run(self, graph: Graph) -> Graph:
        if not any(isinstance(eqn.op, OptimizationBarrier) for eqn in graph.equations):
            return graph
        found = _Found.of(graph, self.fusion)
        equations: list[Equation] = []
        for index, eqn in enumerate(graph.equations):
            moved = found.moved(index) if isinstance(eqn.op, OptimizationBarrier) else {}
            equations.extend(_behind(eqn, moved) if moved else [eqn])
        return replace(graph, equations=tuple(equations))


@dataclass(frozen=True, slots=True)
class _Part:
    """What a kernel computes to write a value.

    Attributes:
        equations: in their order.
        sources: what they read from memory.
    """

    equations: Sequence[Equation]
    sources: Sequence[Value]


@dataclass(frozen=True, slots=True)
class _Found:
    """A graph, what of it is in memory, where its values are computed and read, and which products alone read."""

    graph: Graph
    kernels: Kernels
    stored: frozenset[Value]
    producer: dict[Value, int]
    readers: dict[Value, list[int]]
    for_products: frozenset[Value]

    @staticmethod
    def of(graph: Graph, fusion: Fusion) -> _Found:
        found = kernels(graph.equations, graph.results, fusion)
        producer = {value: index for index, eqn in enumerate(graph.equations) for value in eqn.results}
        for_products = read_only_by(graph, lambda eqn: isinstance(eqn.op, DotGeneral), is_renamed)
        return _Found(graph, found, frozenset(found.stored), producer, readers_of(graph), for_products)

    def moved(self, barrier: int) -> dict[int, _Part]:
        """The operands of a barrier, by their places, that are to be computed behind it."""
        eqn = self.graph.equations[barrier]
        moved: dict[int, _Part] = {}
        for place, (operand, result) in enumerate(zip(eqn.operands, eqn.results, strict=True)):
            if self.readers[operand] != [barrier] or result not in self.for_products:
                continue
            part = self._part(operand)
            if part is not None and self._held(part, eqn, operand.type.size) <= operand.type.bytes:
                moved[place] = part
        return moved

    def _part(self, value: Value) -> _Part | None:
        """What is computed with a value; None where that is nothing, as of a product's result."""
        places: set[int] = set()
        sources: dict[Value, None] = {}
        waiting = [value]
        while waiting:
            one = waiting.pop()
            index = self.producer.get(one)
            eqn = None if index is None else self.graph.equations[index]
            is_open = one is value or one not in self.stored
            if index is None or eqn is None or not is_open or not eqn.op.is_fusible or len(eqn.results) > 1:
                sources[one] = None
            elif index not in places:
                places.add(index)
                waiting.extend(eqn.operands)
        if not places:
            return None
        return _Part([self.graph.equations[index] for index in sorted(places)], list(sources))

    def _held(self, part: _Part, barrier: Equation, size: int) -> int:
        """Bytes that are in memory behind a barrier only for what is computed there, in arrays of this size or more."""
        place = self.producer[barrier.results[0]]
        others = {*self.graph.params, *barrier.operands}
        new = [one for one in part.sources if one not in others and self.kernels.last_read.get(one, -1) <= place]
        return sum(one.type.bytes for one in new if one.type.size >= size)


def _behind(barrier: Equation, moved: dict[int, _Part]) -> list[Equation]:
    """A barrier, and behind it what is computed there."""
    held = {one: result for place, (one, result) in enumerate(_pairs(barrier)) if place not in moved}
    for part in moved.values():
        for source in part.sources:
            held.setdefault(source, Value(source.type))
    equations = [replace(barrier, operands=tuple(held), results=tuple(held.values()))]
    for place, part in moved.items():
        own = dict(held)
        for eqn in part.equations:
            (old,) = eqn.results
            new = barrier.results[place] if old is barrier.operands[place] else Value(old.type)
            equations.append(replace(eqn, operands=tuple([own[one] for one in eqn.operands]), results=(new,)))
            own[old] = new
    return equations


def _pairs(barrier: Equation) -> list[tuple[Value, Value]]:
    return list(zip(barrier.operands, barrier.results, strict=True))
