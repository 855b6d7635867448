"""Rows for slices, gathers and scatters at computed places, inside and outside."""

from __future__ import annotations

import numpy as np

from rematc.ir.ops.dynamic import DynamicSlice, DynamicUpdateSlice
from rematc.ir.ops.elementwise import ORDERED
from rematc.ir.ops.gather_scatter import GatherDimensions, ScatterDimensions
from rematc.ir.ops.indexing import Gather, Scatter, ScatterAdd, ScatterMaximum, ScatterMinimum, ScatterMultiply
from rematc.ir.types import I32, TensorType
from rematc.ir.values import Value
from tests.support.drawing import Drawing, Row, is_numeric


def _starts(d: Drawing, x: Value) -> list[Value]:
    """Starts of a window, inside or outside: constants, or a value that is there."""
    index = d.pick(lambda type: type == TensorType(I32, ()))
    if index is not None and d.flip():
        return [index] * x.type.rank
    return [d.scalar(d.integer(-1, 3), I32) for _ in x.type.shape]


def _dynamic_slice(d: Drawing) -> tuple[Value, ...]:
    x = d.value()
    sizes = tuple(d.integer(min(size, 1), size) for size in x.type.shape)
    return d.emit(DynamicSlice(sizes), x, *_starts(d, x))


def _dynamic_update_slice(d: Drawing) -> tuple[Value, ...]:
    x = d.value()

    def fits(type: TensorType) -> bool:
        is_inside = type.rank == x.type.rank and all(m <= n for m, n in zip(type.shape, x.type.shape, strict=True))
        return type.dtype is x.type.dtype and is_inside

    update = d.pick(fits)
    assert update is not None, "x itself fits"
    return d.emit(DynamicUpdateSlice(), x, update, *_starts(d, x))


def _indices(d: Drawing, size: int, is_unique: bool) -> Value:
    """Index vectors of one number: constants, or the values of the pool."""
    drawn = d.pick(lambda type: type.dtype is I32 and type.rank == 1 and 0 < type.size <= 3)
    if drawn is not None and not is_unique and d.flip():
        return d.b.reshape(drawn, (*drawn.type.shape, 1))
    found = d.shuffled(range(-1, size + 1))[: d.integer(1, 3)] if is_unique else d.some(range(-1, size + 1), 1, 3)
    return d.b.constant(np.array(found, np.int32).reshape(-1, 1))


def _rows_of(x: Value) -> tuple[GatherDimensions, tuple[int, ...]]:
    rest = tuple(range(1, x.type.rank))
    dims = GatherDimensions(offset_dims=rest, collapsed_slice_dims=(0,), start_index_map=(0,), index_vector_dim=1)
    return dims, (1, *x.type.shape[1:])


def _gather(d: Drawing) -> tuple[Value, ...]:
    x = d.pick(lambda type: type.rank > 0 and type.size > 0)
    if x is None:
        return ()
    dims, sizes = _rows_of(x)
    return d.emit(Gather(dims, sizes), x, _indices(d, x.type.shape[0], is_unique=False))


def _scatter(d: Drawing) -> tuple[Value, ...]:
    """Rows of one array written over, or combined with, rows of another.

    Where rows are set, and where they are multiplied and differentiated, no two go to one place.
    """
    x = d.pick(lambda type: type.rank > 0 and is_numeric(type))
    if x is None:
        return ()
    kinds: list[type[ScatterAdd | Scatter | ScatterMultiply | ScatterMinimum | ScatterMaximum]]
    kinds = [ScatterAdd, Scatter, ScatterMultiply]
    if x.type.dtype.kind in ORDERED:
        kinds += [ScatterMinimum, ScatterMaximum]
    cls = d.one_of(kinds)
    is_unique = cls in (Scatter, ScatterMultiply) or d.flip()
    dims, sizes = _rows_of(x)
    indices = _indices(d, x.type.shape[0], is_unique)
    rows = d.emit(Gather(dims, sizes), d.like(x), _indices_like(d, indices, x.type.shape[0]))
    if not rows:
        return ()
    return (*rows, *d.emit(cls(ScatterDimensions.of(dims), unique_indices=is_unique), x, indices, rows[0]))


def _indices_like(d: Drawing, indices: Value, size: int) -> Value:
    count = indices.type.shape[0]
    return d.b.constant(np.array(d.some(range(size), count, count), np.int32).reshape(-1, 1))


ROWS = (
    Row((DynamicSlice,), _dynamic_slice),
    Row((DynamicUpdateSlice,), _dynamic_update_slice),
    Row((Gather,), _gather),
    Row((ScatterAdd, Scatter, ScatterMultiply, ScatterMinimum, ScatterMaximum), _scatter, 2),
)
