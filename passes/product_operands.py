"""What products of matrices are not to compute of their operands, because it is dearer there, is behind a barrier.

Before:  %2 = dot_general %d, %v   %3 = multiply %2, %z   %4 = dot_general %3, %k   %5 = dot_general %3, %q
After:   %2 = dot_general %d, %v   %6 = multiply %2, %z   %3 = optimization_barrier %6
         %4 = dot_general %3, %k   %5 = dot_general %3, %q

XLA for TPUs has a product compute elements of its operands, which saves memory where they would be in memory beside
what they follow from. Two things it does so are dear, as its modules for v4 to v6e show:

- Where two products read the gradient of scores, it writes the product from which that follows, and computes the
  exponentials, quotients and sums along rows in both. Behind a barrier the gradient is written, in the kernel of that
  product, and rounded to bfloat16 where the products that read it round: half the memory, and less time.
- What is reduced along a row and repeated along it, as the maximum that a softmax subtracts, it computes for each
  element anew, as a window as long as two rows. A kernel holds such windows for rows of `Fusion.rows` elements at most.
  For longer ones several arrays as large as the scores are written, and XLA's own estimate of the time is beyond
  bounds. Behind a barrier the reduction is written, an element a row. So are the maxima of shorter rows of what
  products of 16-bit numbers give, but for those in loops: with them XLA computes such a product once more in each
  kernel, and writes neither scores nor gradients of scores.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rematc.ir.core import Equation, Graph
from rematc.ir.ops.arithmetic import Maximum, Minimum
from rematc.ir.ops.conversion import Convert
from rematc.ir.ops.dot import DotGeneral
from rematc.ir.ops.reduction import Extremum, Reduction
from rematc.ir.ops.shape import BroadcastInDim
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.ir.values import Value
from rematc.passes.kernels import Fusion, kernels
from rematc.passes.manager import Pass
from rematc.passes.readers import is_renamed, is_reordered, read_only_by, readers_of
from rematc.passes.regions import EquationRewriter, Rule

#: What may stand between a reduction along rows and its repetition along them.
_BETWEEN = (Convert, Maximum, Minimum)
_NARROW = 16


@dataclass(frozen=True, slots=True)
class ProductOperands(Pass):
    """The pass that does so, for a device that fuses like this; in regions, too."""

    name: ClassVar[str] = "product_operands"
    fusion: Fusion

    def run(self, graph: Graph) -> Graph:
        return EquationRewriter(lambda one: self._rule(one, is_region=one is not graph)).graph(graph)

    def _rule(self, graph: Graph, is_region: bool) -> Rule:
        if not any(_is_product(eqn) for eqn in graph.equations):
            return lambda _: None
        program = _Program.of(graph, self.fusion, is_region)
        written = frozenset((*program.shared(), *program.repeated()))

        def rule(eqn: Equation) -> list[Equation] | None:
            if len(eqn.results) != 1 or eqn.results[0] not in written:
                return None
            (result,) = eqn.results
            computed = Value(result.type)
            barrier = Equation(OptimizationBarrier(), (computed,), (result,), eqn.loc)
            return [Equation(eqn.op, eqn.operands, (computed,), eqn.loc), barrier]

        return rule


@dataclass(frozen=True, slots=True)
class _Program:
    """A graph, what of it is in memory, and where its values are computed and read; results are read past its end."""

    graph: Graph
    fusion: Fusion
    is_region: bool
    stored: frozenset[Value]
    producer: Mapping[Value, int]
    readers: Mapping[Value, Sequence[int]]

    @staticmethod
    def of(graph: Graph, fusion: Fusion, is_region: bool) -> _Program:
        producer = {value: index for index, eqn in enumerate(graph.equations) for value in eqn.results}
        stored = frozenset(kernels(graph.equations, graph.results, fusion).stored)
        return _Program(graph, fusion, is_region, stored, producer, readers_of(graph))

    # -- reductions that are repeated --------------------------------------------------------------------------------

    def repeated(self) -> Iterator[Value]:
        """What is reduced along rows and repeated along them, and is to be written."""
        for eqn in self.graph.equations:
            if isinstance(eqn.op, BroadcastInDim):
                reduction = self._reduction_of(eqn.operands[0])
                if reduction is not None and self._is_repeated(reduction, eqn.results[0]):
                    yield reduction.results[0]

    def _reduction_of(self, value: Value) -> Equation | None:
        """The reduction that a value is, if it is converted or compared with others at most."""
        seen, waiting = set[Value](), [value]
        while waiting:
            one = waiting.pop()
            if one in seen or one not in self.producer:
                continue
            seen.add(one)
            eqn = self.graph.equations[self.producer[one]]
            if isinstance(eqn.op, Reduction):
                return eqn
            if isinstance(eqn.op, _BETWEEN) or is_renamed(eqn):
                waiting.extend(eqn.operands)
        return None

    def _is_repeated(self, reduction: Equation, repeated: Value) -> bool:
        return reduction.operands[0].type.shape == repeated.type.shape and self._is_dear(reduction)

    def _is_dear(self, eqn: Equation) -> bool:
        """Whether it reduces rows, and what repeats that along them had better read it."""
        is_maximum = isinstance(eqn.op, Extremum) and not self.is_region
        return self._is_long(eqn) or (is_maximum and self._is_of_narrow_numbers(eqn.operands[0]))

    def _is_of_narrow_numbers(self, value: Value) -> bool:
        """Whether it follows, element by element, from the product of numbers of 16 bits or fewer."""
        found = [self.graph.equations[self.producer[one]] for one in self._part(value)[1] if one in self.producer]
        return any(_is_product(eqn) and eqn.operands[0].type.dtype.bits <= _NARROW for eqn in found)

    def _is_long(self, eqn: Equation) -> bool:
        """Whether it reduces rows that are too long for a kernel to reduce them beside a product."""
        if not isinstance(eqn.op, Reduction):
            return False
        shape = eqn.operands[0].type.shape
        return math.prod([shape[d] for d in eqn.op.dimensions]) > self.fusion.rows

    # -- factors of several products ---------------------------------------------------------------------------------

    def shared(self) -> Iterator[Value]:
        """What several products read, and is to be written in the place of a product."""
        for_products = read_only_by(self.graph, _is_product, is_reordered)
        for eqn in self.graph.equations:
            if len(eqn.results) == 1 and eqn.results[0] in for_products and eqn.op.is_fusible and not is_reordered(eqn):
                (value,) = eqn.results
                if self._products_of(value) > 1 and self._is_in_place_of_a_product(value):
                    yield value

    def _products_of(self, value: Value) -> int:
        """How many products read a value, which nothing else does."""
        count, waiting = 0, [value]
        while waiting:
            for index in self.readers.get(waiting.pop(), ()):
                eqn = self.graph.equations[index]
                count += _is_product(eqn)
                waiting.extend(() if _is_product(eqn) else eqn.results)
        return count

    def _is_in_place_of_a_product(self, value: Value) -> bool:
        """Whether it follows, in one kernel, from the result of a product of its size, which nothing else needs."""
        part, sources = self._part(value)
        if any(self._is_dear(self.graph.equations[index]) for index in part):
            return False
        return any(self._is_product_for(source, part, value) for source in sources)

    def _is_product_for(self, source: Value, part: set[int], value: Value) -> bool:
        """Whether a source is a product, of which no part of a program but this needs more than the value."""
        index = self.producer.get(source, -1)
        if index < 0 or not _is_product(self.graph.equations[index]) or source.type.size != value.type.size:
            return False
        waiting, seen = [source], set[Value]()
        while waiting:
            one = waiting.pop()
            if one in seen or one is value:
                continue
            seen.add(one)
            readers = self.readers.get(one, ())
            if not part.issuperset(readers):
                return False
            waiting.extend(result for reader in readers for result in self.graph.equations[reader].results)
        return True

    def _part(self, value: Value) -> tuple[set[int], set[Value]]:
        """The equations that a value is computed by, sums along its rows among them, and what they read."""
        part, sources = set[int](), set[Value]()
        waiting = [value]
        while waiting:
            one = waiting.pop()
            index = self.producer.get(one, -1)
            eqn = self.graph.equations[index] if index >= 0 else None
            is_inside = one is value or (eqn is not None and self._is_computed_with(one, eqn, value))
            if eqn is not None and is_inside and not _is_product(eqn):
                if index not in part:
                    part.add(index)
                    waiting.extend(eqn.operands)
            else:
                sources.add(one)
        return part, sources

    def _is_computed_with(self, one: Value, eqn: Equation, value: Value) -> bool:
        """Whether what is computed on the way to a value belongs to it."""
        if one not in self.stored:
            return eqn.op.is_fusible
        return isinstance(eqn.op, Reduction) and eqn.operands[0].type.shape == value.type.shape


def _is_product(eqn: Equation) -> bool:
    return isinstance(eqn.op, DotGeneral)
