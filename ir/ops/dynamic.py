"""Slices at a start that is computed: one window read or replaced. A start outside is moved inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rematc.ir.batches import Batch
from rematc.ir.core import Emitter, Op
from rematc.ir.errors import TypeMismatchError
from rematc.ir.facts import Storage, Weight
from rematc.ir.ops.batching import element_type
from rematc.ir.ops.gather_scatter import GatherDimensions, ScatterDimensions, clamped
from rematc.ir.ops.indexing import Gather, Scatter
from rematc.ir.ops.shape import check_per_dimension, zeros_if_none
from rematc.ir.registry import register
from rematc.ir.slicings import Part, Slicing
from rematc.ir.types import TensorType
from rematc.ir.values import Array, Derivatives, LinearOperand, Operands, Primals, Tangents, Types, Value


def _check_starts(op: Op, x: TensorType, sizes: Sequence[int], starts: Types) -> None:
    if not all(0 <= size <= length for size, length in zip(sizes, x.shape, strict=True)):
        raise TypeMismatchError(f"'{op.name}' of {x} in a window {list(sizes)}; expected a window that fits")
    if len(starts) != x.rank or any(s.rank or not s.dtype.is_integer or s != starts[0] for s in starts):
        listed = ", ".join(map(str, starts))
        raise TypeMismatchError(
            f"'{op.name}' of {x} takes {x.rank} scalar integers of one type as the start, got {listed or 'none'}"
        )


def _window(x: Array, sizes: Sequence[int], starts: Sequence[Array]) -> tuple[slice, ...]:
    begins = [
        min(max(int(start), 0), length - size) for start, length, size in zip(starts, x.shape, sizes, strict=True)
    ]
    return tuple([slice(begin, begin + size) for begin, size in zip(begins, sizes, strict=True)])


def _given(starts: Operands) -> list[Value]:
    found = [start for start in starts if not isinstance(start, LinearOperand)]
    assert len(found) == len(starts), "integers have no cotangents"
    return found


def _dimensions_of_window(rank: int) -> GatherDimensions:
    """Those of one window at an index vector."""
    every = tuple(range(rank))
    return GatherDimensions(every, (), every, 0)


def _index_vectors(b: Emitter, starts: Batch) -> Value:
    """The starts as index vectors: [batch, dimensions]."""
    columns = [b.reshape(start, (starts.size, 1)) for start in starts.all_batched(b)]
    return b.concatenate(columns, 1)


@register
@dataclass(frozen=True, slots=True)
class DynamicSlice(Op):
    """A window of the first operand; the start is given by a scalar for each dimension. Linear in the first operand.

    Attributes:
        slice_sizes: sizes of the window, one for each dimension.
    """

    name = "dynamic_slice"
    storage = Storage.FUSED
    weight = Weight.MODERATE
    slice_sizes: tuple[int, ...]

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        if not operands:
            raise TypeMismatchError(f"'{self.name}' takes an array and its start, got no operands")
        x, *starts = operands
        check_per_dimension(self, "slice_sizes", self.slice_sizes, x)
        _check_starts(self, x, self.slice_sizes, starts)
        return (x.with_shape(self.slice_sizes),)

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        x, *starts = operands
        return (np.array(x[_window(x, self.slice_sizes, starts)]),)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        return (None if tangents[0] is None else b.emit1(self, tangents[0], *primals[1:]),)

    def transpose(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        (ct,), (x, *starts) = cts, operands
        none = (None,) * len(starts)
        if ct is None:
            return (None, *none)
        return (b.emit1(DynamicUpdateSlice(), b.zeros(x.type), ct, *_given(starts)), *none)

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        x, *starts = batch.operands
        if any(batch.is_batched[1:]):
            dims = _dimensions_of_window(len(starts))
            indices = _index_vectors(b, batch[1:])
            return Gather(dims, self.slice_sizes).vmap(b, Batch(batch.size, (x, indices), (batch.is_batched[0], True)))
        if not starts:
            return (x,)
        return b.emit(DynamicSlice((batch.size, *self.slice_sizes)), x, b.zeros(starts[0].type), *starts)

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        starts = (None,) * (len(operands) - 1)
        whole = [d for d, size in enumerate(self.slice_sizes) if size == operands[0].shape[d]]
        return tuple([Slicing((d, *starts), (d,)) for d in whole])

    def part(self, b: Emitter, part: Part, operands: Primals) -> tuple[Value, ...]:
        return b.emit(DynamicSlice(part.cut(self.slice_sizes, part.slicing.results[0])), *operands)


@register
@dataclass(frozen=True, slots=True)
class DynamicUpdateSlice(Op):
    """The first operand with a window of it replaced by the second; then the start, a scalar for each dimension.

    Linear in the first two operands.
    """

    name = "dynamic_update_slice"

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        if len(operands) < 2:
            raise TypeMismatchError(
                f"'{self.name}' takes an array, an update and its start, got {len(operands)} operands"
            )
        x, update, *starts = operands
        if update.dtype is not x.dtype or update.rank != x.rank:
            raise TypeMismatchError(f"'{self.name}' of {x} takes an update of its element type and rank, got {update}")
        _check_starts(self, x, update.shape, starts)
        return (x,)

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        x, update, *starts = operands
        result = np.array(x)
        result[_window(x, update.shape, starts)] = update
        return (result,)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        x, update, *starts = primals
        tx, tu = zeros_if_none(b, tangents[0], x.type), zeros_if_none(b, tangents[1], update.type)
        return (b.emit1(self, tx, tu, *starts),)

    def transpose(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        (ct,), (x, update, *starts) = cts, operands
        none = (None,) * len(starts)
        if ct is None:
            return (None, None, *none)
        given = _given(starts)
        ct_x = b.emit1(self, ct, b.zeros(update.type), *given) if isinstance(x, LinearOperand) else None
        if not isinstance(update, LinearOperand):
            return (ct_x, None, *none)
        return (ct_x, b.emit1(DynamicSlice(update.type.shape), ct, *given), *none)

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        x, update, *starts = batch.operands
        if any(batch.is_batched[2:]):
            dims = _dimensions_of_window(len(starts))
            indices = _index_vectors(b, batch[2:])
            shape, window = element_type(x, batch.is_batched[0]).shape, element_type(update, batch.is_batched[1]).shape
            inside = clamped(b, replace(dims, index_vector_dim=1), shape, window, indices)
            op = Scatter(ScatterDimensions.of(dims), unique_indices=True)
            return op.vmap(b, Batch(batch.size, (x, inside, update), (batch.is_batched[0], True, batch.is_batched[1])))
        x, update = batch[:2].all_batched(b)
        if not starts:
            return (update,)
        return b.emit(self, x, update, b.zeros(starts[0].type), *starts)

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        starts = (None,) * (len(operands) - 2)
        whole = [d for d, size in enumerate(operands[1].shape) if size == operands[0].shape[d]]
        return tuple([Slicing((d, d, *starts), (d,)) for d in whole])
