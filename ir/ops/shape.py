"""Ops that move elements without computing: broadcasts, reshapes, transposes, slices, pads, concatenations.

All of them are linear. The transpose of a slice is a pad and the reverse; the transpose of a broadcast is a sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rematc.ir.batches import Batch
from rematc.ir.core import Emitter, Op
from rematc.ir.errors import TypeMismatchError
from rematc.ir.facts import Storage, Weight
from rematc.ir.ops.batching import element_type, shifted
from rematc.ir.ops.elementwise import check_arity
from rematc.ir.registry import register
from rematc.ir.slicings import Part, Slicing, except_along, kept_by_reshape
from rematc.ir.types import TensorType
from rematc.ir.values import Array, Derivatives, LinearOperand, Operands, Primals, Tangents, Types, Value


def check_dimensions(op: Op, dimensions: Sequence[int], rank: int, what: str = "dimensions") -> None:
    """Raise TypeMismatchError unless `dimensions` are distinct dimensions of an array of this rank."""
    if len(set(dimensions)) != len(dimensions) or not all(0 <= d < rank for d in dimensions):
        raise TypeMismatchError(
            f"'{op.name}' takes distinct {what} from 0 up to the rank {rank}, got {list(dimensions)}"
        )


def check_per_dimension(op: Op, what: str, values: Sequence[int], operand: TensorType) -> None:
    """Raise TypeMismatchError unless there is one entry for each dimension of the operand."""
    if len(values) != operand.rank:
        raise TypeMismatchError(
            f"'{op.name}' takes one entry of {what} for each dimension of {operand}, got {list(values)}"
        )


def others(dimensions: Sequence[int], rank: int) -> tuple[int, ...]:
    """The dimensions of an array of this rank that are not in `dimensions`, in order."""
    taken = frozenset(dimensions)
    return tuple([d for d in range(rank) if d not in taken])


def inverse(permutation: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes `permutation`."""
    place = {dimension: i for i, dimension in enumerate(permutation)}
    return tuple([place[i] for i in range(len(permutation))])


def zeros_if_none(b: Emitter, value: Value | None, type: TensorType) -> Value:
    """`value`, or zeros where it is a symbolic zero."""
    return b.zeros(type) if value is None else value


class Rearrangement(Op):
    """Family base: one operand, whose elements the result repeats, moves or leaves out.

    A member gives `move` (NumPy) and `adjoint`: the cotangent of the operand.
    """

    __slots__ = ()
    storage = Storage.FUSED
    weight = Weight.LIGHT

    def move(self, x: Array) -> Array:
        raise NotImplementedError

    def adjoint(self, b: Emitter, ct: Value, operand: TensorType) -> Value:
        raise NotImplementedError

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (np.asarray(self.move(operands[0]), order="C"),)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        return (None if tangents[0] is None else b.emit1(self, tangents[0]),)

    def transpose(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        return (None if cts[0] is None else self.adjoint(b, cts[0], operands[0].type),)


@register
@dataclass(frozen=True, slots=True)
class BroadcastInDim(Rearrangement):
    """The operand broadcast to `shape`.

    Attributes:
        shape: the result's shape.
        dimensions: for each dimension of the operand the dimension of the result, strictly increasing. An
            operand's dimension has the result's size there, or 1.
    """

    name = "broadcast_in_dim"
    shape: tuple[int, ...]
    dimensions: tuple[int, ...]

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 1)
        (x,) = operands
        check_per_dimension(self, "dimensions", self.dimensions, x)
        check_dimensions(self, self.dimensions, len(self.shape))
        if list(self.dimensions) != sorted(self.dimensions):
            raise TypeMismatchError(
                f"'{self.name}' takes increasing dimensions, got {list(self.dimensions)}; transpose the operand first"
            )
        for size, d in zip(x.shape, self.dimensions, strict=True):
            if size not in (1, self.shape[d]):
                raise TypeMismatchError(
                    f"'{self.name}' of {x} to {list(self.shape)} along {list(self.dimensions)}: "
                    f"size {size} is neither 1 nor {self.shape[d]}"
                )
        return (x.with_shape(self.shape),)

    def move(self, x: Array) -> Array:
        shape = [1] * len(self.shape)
        for size, d in zip(x.shape, self.dimensions, strict=True):
            shape[d] = size
        return np.broadcast_to(x.reshape(shape), self.shape)

    def adjoint(self, b: Emitter, ct: Value, operand: TensorType) -> Value:
        sizes = dict(zip(self.dimensions, operand.shape, strict=True))
        broadcast = [d for d, size in enumerate(self.shape) if size != 1 and sizes.get(d, 1) == 1]
        return b.reshape(b.reduce_sum(ct, broadcast), operand.shape)

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        return b.emit(BroadcastInDim((batch.size, *self.shape), (0, *shifted(self.dimensions))), *batch.operands)

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        (x,) = operands
        sources = {place: d for d, place in enumerate(self.dimensions) if x.shape[d] == self.shape[place]}
        return tuple([Slicing((sources.get(place),), (place,)) for place in range(len(self.shape))])

    def part(self, b: Emitter, part: Part, operands: Primals) -> tuple[Value, ...]:
        return b.emit(BroadcastInDim(part.cut(self.shape, part.slicing.results[0]), self.dimensions), *operands)


@register
@dataclass(frozen=True, slots=True)
class Reshape(Rearrangement):
    """The operand's elements in row-major order, in another shape of the same size."""

    name = "reshape"
    storage = Storage.BITCAST
    shape: tuple[int, ...]

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 1)
        result = operands[0].with_shape(self.shape)
        if min(self.shape, default=0) < 0 or result.size != operands[0].size:
            raise TypeMismatchError(f"'{self.name}' of {operands[0]} ({operands[0].size} elements) to {result}")
        return (result,)

    def move(self, x: Array) -> Array:
        return x.reshape(self.shape)

    def adjoint(self, b: Emitter, ct: Value, operand: TensorType) -> Value:
        return b.reshape(ct, operand.shape)

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        return b.emit(Reshape((batch.size, *self.shape)), *batch.operands)

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        pairs = kept_by_reshape(operands[0], results[0])
        return tuple([Slicing((d,), (place,)) for d, place in pairs])

    def part(self, b: Emitter, part: Part, operands: Primals) -> tuple[Value, ...]:
        return b.emit(Reshape(part.cut(self.shape, part.slicing.results[0])), *operands)


@register
@dataclass(frozen=True, slots=True)
class Transpose(Rearrangement):
    """The operand with its dimensions permuted: dimension i of the result is dimension `permutation[i]`."""

    name = "transpose"
    permutation: tuple[int, ...]

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 1)
        (x,) = operands
        check_per_dimension(self, "permutation", self.permutation, x)
        check_dimensions(self, self.permutation, x.rank)
        return (x.with_shape(tuple([x.shape[d] for d in self.permutation])),)

    def move(self, x: Array) -> Array:
        return np.transpose(x, self.permutation)

    def adjoint(self, b: Emitter, ct: Value, operand: TensorType) -> Value:
        return b.transpose(ct, inverse(self.permutation))

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        return b.emit(Transpose((0, *shifted(self.permutation))), *batch.operands)

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        return tuple([Slicing((d,), (place,)) for place, d in enumerate(self.permutation)])


@register
@dataclass(frozen=True, slots=True)
class Reverse(Rearrangement):
    """The operand backwards along `dimensions`."""

    name = "reverse"
    dimensions: tuple[int, ...]

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 1)
        check_dimensions(self, self.dimensions, operands[0].rank)
        return (operands[0],)

    def move(self, x: Array) -> Array:
        return np.flip(x, self.dimensions)

    def adjoint(self, b: Emitter, ct: Value, operand: TensorType) -> Value:
        return b.reverse(ct, self.dimensions)

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        return b.emit(Reverse(shifted(self.dimensions)), *batch.operands)

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        return tuple([Slicing((d,), (d,)) for d in others(self.dimensions, operands[0].rank)])


@register
@dataclass(frozen=True, slots=True)
class Slice(Rearrangement):
    """Elements `start[i], start[i] + strides[i], ...` below `limit[i]` of each dimension i."""

    name = "slice"
    start: tuple[int, ...]
    limit: tuple[int, ...]
    strides: tuple[int, ...]

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 1)
        (x,) = operands
        for what, values in (("start", self.start), ("limit", self.limit), ("strides", self.strides)):
            check_per_dimension(self, what, values, x)
        for size, start, limit, stride in zip(x.shape, self.start, self.limit, self.strides, strict=True):
            if not (0 <= start <= limit <= size and stride >= 1):
                raise TypeMismatchError(
                    f"'{self.name}' of {x} from {list(self.start)} to {list(self.limit)} in steps of "
                    f"{list(self.strides)}; expected 0 <= start <= limit <= size and steps of at least 1"
                )
        return (x.with_shape(self._sizes()),)

    def _sizes(self) -> tuple[int, ...]:
        ranges = zip(self.start, self.limit, self.strides, strict=True)
        return tuple([-((start - limit) // stride) for start, limit, stride in ranges])

    def move(self, x: Array) -> Array:
        return x[tuple(map(slice, self.start, self.limit, self.strides))]

    def adjoint(self, b: Emitter, ct: Value, operand: TensorType) -> Value:
        gaps = [stride - 1 for stride in self.strides]
        # The place after the last element taken; nothing is taken where the size is 0.
        ends = [
            start + (size - 1) * stride + 1 if size else start
            for start, stride, size in zip(self.start, self.strides, ct.type.shape, strict=True)
        ]
        high = [size - end for size, end in zip(operand.shape, ends, strict=True)]
        return b.pad(ct, b.zeros(ct.type.with_shape(())), self.start, high, gaps)

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        return b.emit(Slice((0, *self.start), (batch.size, *self.limit), (1, *self.strides)), *batch.operands)

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        whole = [d for d in range(operands[0].rank) if results[0].shape[d] == operands[0].shape[d]]
        return tuple([Slicing((d,), (d,)) for d in whole])

    def part(self, b: Emitter, part: Part, operands: Primals) -> tuple[Value, ...]:
        return b.emit(Slice(self.start, part.cut(self.limit, part.slicing.results[0]), self.strides), *operands)


@register
@dataclass(frozen=True, slots=True)
class Pad(Op):
    """The first operand with the second, a scalar, around and between its elements.

    Attributes:
        low: how many to add before each dimension; a negative number cuts elements off.
        high: how many to add after each dimension, likewise.
        interior: how many to add between two elements of each dimension.
    """

    name = "pad"
    storage = Storage.FUSED_ONCE
    weight = Weight.MODERATE
    low: tuple[int, ...]
    high: tuple[int, ...]
    interior: tuple[int, ...]

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 2)
        x, fill = operands
        for what, values in (("low", self.low), ("high", self.high), ("interior", self.interior)):
            check_per_dimension(self, what, values, x)
        if fill.rank != 0 or fill.dtype is not x.dtype:
            raise TypeMismatchError(f"'{self.name}' of {x} takes a scalar {x.dtype}[] to fill with, got {fill}")
        shape = self._shape(x.shape)
        if min(self.interior, default=0) < 0 or min(shape, default=0) < 0:
            raise TypeMismatchError(
                f"'{self.name}' of {x} by {list(self.low)}, {list(self.high)}, {list(self.interior)} "
                f"leaves {list(shape)}; expected sizes and interior of at least 0"
            )
        return (x.with_shape(shape),)

    def _spread(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape once the interior is filled."""
        return tuple([size + max(size - 1, 0) * gap for size, gap in zip(shape, self.interior, strict=True)])

    def _shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return tuple(map(sum, zip(self._spread(shape), self.low, self.high, strict=True)))

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        x, fill = operands
        padded = np.full(self._shape(x.shape), fill, x.dtype)
        source, target = [], []
        for size, low, step, length in zip(
            x.shape, self.low, [gap + 1 for gap in self.interior], padded.shape, strict=True
        ):
            # Element i goes to low + i * step, where that lies inside.
            first = max(0, -(low // step))
            last = min(size, (length - 1 - low) // step + 1)
            source.append(slice(first, max(last, first)))
            begin = low + first * step
            target.append(slice(begin, max(begin + (last - first) * step, begin), step))
        padded[tuple(target)] = x[tuple(source)]
        return (padded,)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        x, fill = [zeros_if_none(b, tangent, primal.type) for tangent, primal in zip(tangents, primals, strict=True)]
        return (b.emit1(self, x, fill),)

    def transpose(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        (ct,), (x, fill) = cts, operands
        if ct is None:
            return (None, None)
        return (
            self._ct_of_operand(b, ct) if isinstance(x, LinearOperand) else None,
            self._ct_of_fill(b, ct, x.type) if isinstance(fill, LinearOperand) else None,
        )

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        x, fill = batch.operands
        op = Pad((0, *self.low), (0, *self.high), (0, *self.interior))
        if not batch.is_batched[1]:
            return b.emit(op, x, fill)
        # Each element of the batch has a filling of its own: pad with anything, then choose.
        padded = b.emit1(op, batch.batched(b, x, batch.is_batched[0]), b.zeros(fill.type.with_shape(())))
        mask = self._inside(b, element_type(x, batch.is_batched[0]))
        fills = b.broadcast_in_dim(fill, padded.type.shape, (0,))
        return (b.select(batch.batched(b, mask, False), padded, fills),)

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        padding = zip(self.low, self.high, self.interior, strict=True)
        return tuple([Slicing((d, None), (d,)) for d, sizes in enumerate(padding) if not any(sizes)])

    def _ct_of_operand(self, b: Emitter, ct: Value) -> Value:
        zero = b.zeros(ct.type.with_shape(()))
        spread = b.pad(ct, zero, [-low for low in self.low], [-high for high in self.high])
        steps = [gap + 1 for gap in self.interior]
        return b.slice(spread, [0] * len(steps), spread.type.shape, steps)

    def _ct_of_fill(self, b: Emitter, ct: Value, x: TensorType) -> Value:
        # A mask and not the difference of two sums: that would cancel, and turn an infinity inside into a NaN.
        return b.reduce_sum(b.select(self._inside(b, x), b.zeros(ct.type), ct), range(ct.type.rank))

    def _inside(self, b: Emitter, x: TensorType) -> Value:
        """Which elements of the result are elements of the operand."""
        padded = b.emit1(self, b.full(x, 1), b.zeros(x.with_shape(())))
        return b.compare(padded, b.zeros(padded.type), "NE")


@register
@dataclass(frozen=True, slots=True)
class Concatenate(Op):
    """The operands one after another along `dimension`; their other sizes agree."""

    name = "concatenate"
    storage = Storage.FUSED_ONCE
    weight = Weight.MODERATE
    dimension: int

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        if not operands:
            raise TypeMismatchError(f"'{self.name}' takes at least one operand, got none")
        first = operands[0]
        check_dimensions(self, (self.dimension,), first.rank)
        for other in operands[1:]:
            if other.rank != first.rank or self._extended(first, other.shape[self.dimension]) != other:
                listed = ", ".join(map(str, operands))
                raise TypeMismatchError(
                    f"'{self.name}' takes operands that differ in dimension {self.dimension} alone, got {listed}"
                )
        return (self._extended(first, sum([operand.shape[self.dimension] for operand in operands])),)

    def _extended(self, type: TensorType, size: int) -> TensorType:
        return type.with_shape((*type.shape[: self.dimension], size, *type.shape[self.dimension + 1 :]))

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (np.concatenate(operands, self.dimension),)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        filled = [zeros_if_none(b, tangent, primal.type) for tangent, primal in zip(tangents, primals, strict=True)]
        return (b.emit1(self, *filled),)

    def transpose(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        (ct,) = cts
        if ct is None:
            return (None,) * len(operands)
        start, limit = [0] * ct.type.rank, list(ct.type.shape)
        found: list[Value | None] = []
        for operand in operands:
            limit[self.dimension] = start[self.dimension] + operand.type.shape[self.dimension]
            found.append(b.slice(ct, start, limit) if isinstance(operand, LinearOperand) else None)
            start[self.dimension] = limit[self.dimension]
        return tuple(found)

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        return b.emit(Concatenate(self.dimension + 1), *batch.all_batched(b))

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        return except_along(self.dimension, operands, results)
