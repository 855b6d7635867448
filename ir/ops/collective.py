"""Collectives: ops over all elements of a batch, which `vmap` calls by the name of its axis.

They have a meaning inside the `vmap` that binds the name; the vmap pass replaces each by ops on the batch dimension
(`resolve`). To the batch dimensions of other axes they are like any op. As functions of the whole batch they are
linear, and so are their transposes: the adjoint of a sum, which gives every element the same, is a sum of cotangents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rematc.ir.batches import Batch
from rematc.ir.core import Emitter, Op, VmapContext
from rematc.ir.errors import CompileError, TypeMismatchError
from rematc.ir.ops.batching import NO_OPERANDS, batch_alike, shifted
from rematc.ir.ops.dynamic import DynamicSlice
from rematc.ir.ops.elementwise import NOT_LINEAR, NUMBERS, ORDERED, check_arity, check_kind
from rematc.ir.ops.reduction import ReduceMax, ReduceMin
from rematc.ir.registry import register
from rematc.ir.types import I32, Kind, TensorType
from rematc.ir.values import Array, Derivatives, Operands, Primals, Tangents, Types, Value


class Collective(Op):
    """Family base of ops over the elements of a batch.

    Attributes:
        axis: the name of the batch dimension.
        size: how many elements it has.
    """

    __slots__ = ()
    axis: str
    size: int

    @property
    def axes(self) -> frozenset[str]:
        return frozenset((self.axis,))

    def vmap(self, b: VmapContext, batch: Batch) -> tuple[Value, ...]:
        if b.axis == self.axis:
            return self.resolve(b, batch)
        return self.beside(b, batch)

    def beside(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        """The op on a batch of another axis."""
        return batch_alike(self, b, batch)

    def resolve(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        """The op on the batch that it names, whose dimension is the first of the batched operands."""
        raise NotImplementedError

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        raise CompileError(f"'{self.name}' has a value only inside vmap(..., axis_name='{self.axis}')")


class AxisReduction(Collective):
    """Family base: the operands of all elements combined; every element gets the result."""

    __slots__ = ()
    kinds: ClassVar[frozenset[Kind]] = ORDERED
    no_transpose: ClassVar[str] = NOT_LINEAR

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 1)
        check_kind(self, operands[0], self.kinds)
        return (operands[0],)


@register
@dataclass(frozen=True, slots=True)
class AxisSum(AxisReduction):
    """The sum over all elements of the batch."""

    name = "axis_sum"
    axis: str
    size: int
    kinds = NUMBERS

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        return (None if tangents[0] is None else b.emit1(self, tangents[0]),)

    def transpose(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        return (None if cts[0] is None else b.emit1(self, cts[0]),)

    def resolve(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        (x,) = batch.operands
        return (b.reduce_sum(x, (0,)) if batch.is_batched[0] else b.scale(x, batch.size),)


class AxisExtremum(AxisReduction):
    """Family base of maximum and minimum. Equal extrema share the derivative equally."""

    __slots__ = ()
    reduction: ClassVar[type[ReduceMax] | type[ReduceMin]]

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        (x,), (y,), (t,) = primals, results, tangents
        if t is None:
            return (None,)
        add = AxisSum(self.axis, self.size)
        is_extremum = b.compare(x, y, "EQ")
        count = b.emit1(add, b.convert(is_extremum, t.type.dtype))
        return (b.divide(b.emit1(add, b.select(is_extremum, t, b.zeros(t.type))), count),)

    def resolve(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        return b.emit(self.reduction((0,)), *batch.operands) if batch.is_batched[0] else tuple(batch.operands)


@register
@dataclass(frozen=True, slots=True)
class AxisMax(AxisExtremum):
    """The maximum over all elements of the batch; NaN if there is one."""

    name = "axis_max"
    axis: str
    size: int
    reduction = ReduceMax


@register
@dataclass(frozen=True, slots=True)
class AxisMin(AxisExtremum):
    """The minimum over all elements of the batch; NaN if there is one."""

    name = "axis_min"
    axis: str
    size: int
    reduction = ReduceMin


@register
@dataclass(frozen=True, slots=True)
class AxisGather(Collective):
    """The operands of all elements along a new dimension; every element gets all of them. Linear.

    Attributes:
        dimension: the place of the new dimension.
    """

    name = "axis_gather"
    axis: str
    size: int
    dimension: int = 0

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 1)
        (x,) = operands
        if not 0 <= self.dimension <= x.rank:
            raise TypeMismatchError(f"'{self.name}' of {x} takes a dimension up to {x.rank}, got {self.dimension}")
        return (x.with_shape((*x.shape[: self.dimension], self.size, *x.shape[self.dimension :])),)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        return (None if tangents[0] is None else b.emit1(self, tangents[0]),)

    def transpose(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        """The cotangents that all elements have for what this one gave, added up."""
        (ct,), x = cts, operands[0].type
        if ct is None:
            return (None,)
        total = b.emit1(AxisSum(self.axis, self.size), ct)
        zero = b.zeros(TensorType(I32, ()))
        starts = [zero] * total.type.rank
        starts[self.dimension] = b.emit1(AxisIndex(self.axis, self.size))
        sizes = (*x.shape[: self.dimension], 1, *x.shape[self.dimension :])
        return (b.reshape(b.emit1(DynamicSlice(sizes), total, *starts), x.shape),)

    def beside(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        return b.emit(AxisGather(self.axis, self.size, self.dimension + 1), *batch.operands)

    def resolve(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        x = batch.batched(b, batch.operands[0], batch.is_batched[0])
        order = list(shifted(range(x.type.rank - 1)))
        order.insert(self.dimension, 0)
        return (b.transpose(x, order),)


@register
@dataclass(frozen=True, slots=True)
class AxisIndex(Collective):
    """The number of this element in its batch."""

    name = "axis_index"
    axis: str
    size: int
    no_jvp = "does not exist: the op has no operands"
    no_transpose = "does not exist: the op has no operands"
    no_vmap = NO_OPERANDS

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 0)
        return (TensorType(I32, ()),)

    def resolve(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        return (b.iota(TensorType(I32, (batch.size,)), 0),)
