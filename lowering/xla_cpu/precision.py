"""Pass: 16-bit floating-point numbers in 32 bits where XLA on the CPU computes with them so.

Before:  %0: bf16[4] = add %x, %y   %1: f32[4] = convert %0
After:   %2: f32[4] = convert %x   %3: f32[4] = convert %y   %4: f32[4] = add %2, %3   %0: bf16[4] = convert %4

Of float16 these are products alone. Of bfloat16 it is all that computes; since jaxlib 0.12 what only moves elements and
most matrix products take it as it is (XLA's `FloatNormalization`): none that reads, in the order of its dimensions, a
transpose or what follows from one element by element, which lies in memory as the library does not read it. A result
that is converted to 32 bits is not rounded in between.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from rematc.ir.core import Equation, Graph
from rematc.ir.facts import Storage
from rematc.ir.ops.conversion import Convert
from rematc.ir.ops.convolution import Convolution
from rematc.ir.ops.dot import DotGeneral
from rematc.ir.ops.shape import Transpose
from rematc.ir.ops.structural import Constant, OptimizationBarrier
from rematc.ir.types import BF16, F16, F32, F64, TensorType
from rematc.ir.values import Value
from rematc.lowering.target import Target
from rematc.passes.dce import DeadCode

#: What XLA changes no types of, or moves conversions before.
_OPEN = frozenset(("bitcast_convert", "broadcast_in_dim", "custom_call", "reshape", "to_memory", "transpose"))
#: Of these what a conversion to 32 bits is moved before.
_MOVED_BEFORE = frozenset(("reshape", "transpose"))
#: What only moves elements.
_MOVES = frozenset(
    (
        *("concatenate", "dynamic_slice", "dynamic_update_slice", "gather", "pad", "reverse", "scatter", "scatter_add"),
        *("scatter_maximum", "scatter_minimum", "scatter_multiply", "select", "slice", "sort"),
    )
)
#: A matrix product smaller than this in all directions is not the library's.
_SMALLEST_PRODUCT = 8


def in_computed_types(graph: Graph, target: Target) -> Graph:
    """The graph with a conversion wherever XLA has one; its regions as they are."""
    values = (value for eqn in graph.equations for value in (*eqn.operands, *eqn.results))
    return _Widening(graph, target).graph if any(_is_narrow(value.type) for value in values) else graph


@dataclass(frozen=True, slots=True)
class Factor:
    """An operand of a matrix product.

    Attributes:
        type: its type.
        contract: the dimensions that are summed over.
        batch: those that are paired.
    """

    type: TensorType
    contract: tuple[int, ...]
    batch: tuple[int, ...]

    @property
    def free(self) -> list[int]:
        """All other dimensions."""
        return [d for d in range(self.type.rank) if d not in self.contract and d not in self.batch]

    @property
    def is_plain(self) -> bool:
        """Whether it is one matrix for each element of a batch: others are brought into that order before."""
        return len(self.contract) == len(self.free) == 1 and self.batch == tuple(range(len(self.batch)))

    def before(self, transpose: bool) -> Factor:
        """What the product takes where the operand is a transpose: of one matrix, that is a part of the product."""
        if not transpose or self.type.rank != 2 or self.batch:
            return self
        return replace(self, contract=tuple(1 - d for d in self.contract))

    def size(self, dimensions: Iterable[int]) -> int:
        """How many elements it has along dimensions."""
        return math.prod(self.type.shape[d] for d in dimensions)


def is_library_product(x: Factor, y: Factor) -> bool:
    """Whether XLA's library takes a product of matrices: it reads the rows of the first one."""
    rows, columns, terms = x.size(x.free), y.size(y.free), x.size(x.contract)
    if x.type.dtype not in (BF16, F32, F64) or min(rows, columns) == 1 or max(rows, columns, terms) < _SMALLEST_PRODUCT:
        return False
    return not (x.is_plain and y.is_plain) or x.contract[0] == x.type.rank - 1


def _is_narrow(type: TensorType) -> bool:
    return type.dtype.is_float and type.dtype.bits < F32.bits


class _Widening:
    """A graph, equation by equation.

    Attributes:
        graph: the graph with its conversions.
    """

    def __init__(self, graph: Graph, target: Target) -> None:
        self._target = target
        self._equations: list[Equation] = []
        self._new: dict[Value, Value] = {}
        #: By the 16-bit value: what it is in 32 bits, of what it is the rounding, and what only moves it.
        self._wide: dict[Value, Value] = {}
        self._exact: dict[Value, Value] = {}
        self._moved: dict[Value, Equation] = {}
        #: The order in which the dimensions of what follows from a transpose lie in memory, outermost first.
        self._order: dict[Value, tuple[int, ...]] = {}
        for eqn in graph.equations:
            self._take(eqn, [self._new.get(value, value) for value in eqn.operands])
        results = tuple([self._new.get(value, value) for value in graph.results])
        # A value that is nowhere taken in 16 bits is not computed in them.
        self.graph = DeadCode().run(Graph(graph.name, graph.params, tuple(self._equations), results))

    def _take(self, eqn: Equation, operands: list[Value]) -> None:
        op = eqn.op
        self._note_order(eqn)
        if op.storage is Storage.ALIAS and len(eqn.results) == 1:
            self._new[eqn.results[0]] = operands[0]
        elif isinstance(op, Convert) and op.dtype is F32 and _is_narrow(operands[0].type):
            exact = self._exact.get(operands[0])
            self._new[eqn.results[0]] = self._widened(operands[0]) if exact is None else exact
        elif self._is_kept(eqn, operands):
            kept = Equation(op, tuple(operands), eqn.results, eqn.loc)
            self._equations.append(kept)
            if op.name in _MOVED_BEFORE:
                self._moved[eqn.results[0]] = kept
        else:
            self._widen(eqn, operands)

    def _is_kept(self, eqn: Equation, operands: list[Value]) -> bool:
        op = eqn.op
        narrow = {value.type.dtype for value in (*eqn.operands, *eqn.results) if _is_narrow(value.type)}
        if not narrow or op.name in _OPEN or isinstance(op, Constant | Convert | OptimizationBarrier) or op.regions():
            return True
        if narrow == {F16}:
            return not isinstance(op, DotGeneral | Convolution)
        if not self._target.keeps_bfloat16:
            return False
        if isinstance(op, DotGeneral):
            factors = [self._factor(op, side, value) for side, value in enumerate(operands)]
            is_read = [x.is_plain and value in self._order for x, value in zip(factors, eqn.operands, strict=True)]
            return is_library_product(*factors) and not any(is_read)
        return op.name in _MOVES

    def _note_order(self, eqn: Equation) -> None:
        """Where a result lies as XLA infers it: a transpose moves nothing, and elementwise work goes on like that."""
        if isinstance(eqn.op, OptimizationBarrier):
            pairs = zip(eqn.results, eqn.operands, strict=True)
            self._order.update({result: self._order[x] for result, x in pairs if x in self._order})
        elif isinstance(eqn.op, Transpose):
            (operand,), (result,) = eqn.operands, eqn.results
            given, permutation = self._order.get(operand, tuple(range(operand.type.rank))), eqn.op.permutation
            order = tuple([permutation.index(d) for d in given])
            if order != tuple(range(len(order))):
                self._order[result] = order
        elif len(eqn.operands) in (1, 2) and eqn.op.is_elementwise and eqn.operands[0] in self._order:
            self._order.update(dict.fromkeys(eqn.results, self._order[eqn.operands[0]]))

    def _factor(self, op: DotGeneral, side: int, operand: Value) -> Factor:
        moved = self._moved.get(operand)
        is_transpose = moved is not None and moved.op.name == "transpose"
        return Factor(operand.type, op.contract[side], op.batch[side]).before(is_transpose)

    def _widen(self, eqn: Equation, operands: list[Value]) -> None:
        """The equation in 32 bits, between conversions."""
        computed = [Value(_in_32_bits(value.type)) for value in eqn.results]
        taken = [self._widened(value) if _is_narrow(value.type) else value for value in operands]
        self._equations.append(Equation(eqn.op, tuple(taken), tuple(computed), eqn.loc))
        for value, exact in zip(eqn.results, computed, strict=True):
            if _is_narrow(value.type):
                self._equations.append(Equation(Convert(value.type.dtype), (exact,), (value,), eqn.loc))
                self._exact[value] = exact
            else:
                self._new[value] = exact

    def _widened(self, value: Value) -> Value:
        found = self._wide.get(value)
        if found is None:
            found = self._wide[value] = Value(_in_32_bits(value.type))
            moved = self._moved.get(value)
            op, source = (Convert(F32), value) if moved is None else (moved.op, self._widened(moved.operands[0]))
            self._equations.append(Equation(op, (source,), (found,)))
        return found


def _in_32_bits(type: TensorType) -> TensorType:
    return type.with_dtype(F32) if _is_narrow(type) else type
