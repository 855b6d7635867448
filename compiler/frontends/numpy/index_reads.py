"""What index entries read: slices, reversals and reshapes, and dynamic slices at traced points.

Also the indices themselves as values, which reading and writing share.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rematc.compiler.frontends.numpy.index_entries import Entry, IndexArray, NewAxis, Point, Range
from rematc.compiler.frontends.numpy.operands import here, value_of
from rematc.compiler.tracing.trace import Tracer
from rematc.ir.ops.dynamic import DynamicSlice
from rematc.ir.types import I32, I64, DType, Kind
from rematc.ir.values import Value


def read(x: Value, entries: Sequence[Entry]) -> Value:
    """The elements at ranges, points, new axes and traced scalars."""
    if any(isinstance(entry, IndexArray) for entry in entries):
        x, entries = _at_traced_points(x, entries)
    return sliced(x, entries)


def sliced(x: Value, entries: Sequence[Entry]) -> Value:
    """Ranges, points and new axes."""
    b = here()
    start: list[int] = []
    limit: list[int] = []
    strides: list[int] = []
    backwards: list[int] = []
    shape: list[int] = []
    for entry in entries:
        match entry:
            case NewAxis():
                shape.append(1)
                continue
            case Point(index):
                first, last, step = index, index, 1
            case Range(begin, step, count, _):
                end = begin + (count - 1) * step
                first, last = (begin, end) if step > 0 else (end, begin)
                if step < 0 and count > 1:
                    backwards.append(len(start))
                if not count:
                    first, last = 0, -1
                shape.append(count)
            case IndexArray():
                raise AssertionError("index arrays are gathered")
        start.append(first)
        limit.append(last + 1)
        strides.append(abs(step))
    return b.reshape(b.reverse(b.slice(x, start, limit, strides), backwards), shape)


def _at_traced_points(x: Value, entries: Sequence[Entry]) -> tuple[Value, list[Entry]]:
    """The array cut to the traced scalars among `entries`, and what is left of these."""
    b, dimension = here(), 0
    begins: dict[int, Value] = {}
    left: list[Entry] = []
    for entry in entries:
        if isinstance(entry, IndexArray):
            begins[dimension] = index_value(entry, x.type.shape[dimension], I64)
            entry = Point(0)  # noqa: PLW2901  # what is left of it
        left.append(entry)
        dimension += not isinstance(entry, NewAxis)
    zero = b.full(b.constant(np.asarray(0)).type, 0)
    sizes = tuple([1 if d in begins else size for d, size in enumerate(x.type.shape)])
    cut = b.emit1(DynamicSlice(sizes), x, *[begins.get(d, zero) for d in range(x.type.rank)])
    return cut, left


def index_value(entry: IndexArray, size: int, dtype: DType) -> Value:
    """Indices in this dtype, counted from the front."""
    if not isinstance(entry.array, Tracer):
        return value_of(entry.array, dtype)
    b, own = here(), value_of(entry.array)
    index = b.convert(own, dtype)
    if own.type.dtype.kind is Kind.UINT:
        return index
    from_end = b.compare(index, b.zeros(index.type), "LT")
    return b.select(from_end, b.add(index, b.full(index.type, size)), index)


def index_dtype(entries: Sequence[Entry]) -> DType:
    """int32, or int64 where a traced index has 64 bits or is unsigned and may not fit."""
    for entry in entries:
        if isinstance(entry, IndexArray) and isinstance(entry.array, Tracer):
            dtype = entry.array.value.type.dtype
            if dtype.bits == 64 or (dtype.bits == 32 and dtype.kind is Kind.UINT):
                return I64
    return I32


def index_vectors(indices: Sequence[Value], shape: tuple[int, ...]) -> Value:
    """Indices of several dimensions as vectors, in a new last dimension; of one dimension, as they are."""
    b = here()
    whole = [b.broadcast_in_dim(v, shape, range(len(shape) - v.type.rank, len(shape))) for v in indices]
    if len(whole) == 1:
        return whole[0]
    return b.concatenate([b.reshape(v, (*shape, 1)) for v in whole], len(shape))
