"""Rows for ops that move elements: shapes, slices, joins."""

from __future__ import annotations

from rematc.ir.ops.shape import BroadcastInDim, Concatenate, Pad, Reshape, Reverse, Slice, Transpose
from rematc.ir.values import Value
from tests.support.drawing import Drawing, Row, has_rank


def _broadcast(d: Drawing) -> tuple[Value, ...]:
    x = d.pick(lambda type: type.rank < 3)
    if x is None:
        return ()
    rank = x.type.rank + d.integer(0, 1)
    dimensions = tuple(sorted(d.shuffled(range(rank))[: x.type.rank]))
    shape = [d.integer(1, 3) for _ in range(rank)]
    for size, dimension in zip(x.type.shape, dimensions, strict=True):
        if size != 1:
            shape[dimension] = size
    return d.emit(BroadcastInDim(tuple(shape), dimensions), x)


def _reshape(d: Drawing) -> tuple[Value, ...]:
    x = d.value()
    shapes = [x.type.shape, tuple(reversed(x.type.shape)), (1, *x.type.shape), (x.type.size,)]
    squeezed = tuple(size for size in x.type.shape if size != 1)
    return d.emit(Reshape(d.one_of([*shapes, squeezed])), x)


def _transpose(d: Drawing) -> tuple[Value, ...]:
    x = d.value()
    return d.emit(Transpose(tuple(d.shuffled(range(x.type.rank)))), x)


def _reverse(d: Drawing) -> tuple[Value, ...]:
    x = d.value()
    return d.emit(Reverse(d.dimensions(x)), x)


def _slice(d: Drawing) -> tuple[Value, ...]:
    x = d.value()
    start = tuple(d.integer(0, min(size, 1)) for size in x.type.shape)
    strides = tuple(d.integer(1, 2) for _ in start)
    return d.emit(Slice(start, x.type.shape, strides), x)


def _pad(d: Drawing) -> tuple[Value, ...]:
    x = d.value()
    fill = d.pick(lambda type: type == x.type.with_shape(())) or d.scalar(d.integer(0, 3), x.type.dtype)
    low, high = ([d.integer(0 if size < 2 else -1, 1) for size in x.type.shape] for _ in range(2))
    interior = tuple(d.integer(0, 1) for _ in low)
    return d.emit(Pad(tuple(low), tuple(high), interior), x, fill)


def _concatenate(d: Drawing) -> tuple[Value, ...]:
    x = d.pick(has_rank)
    if x is None:
        return ()
    rest = [d.like(x) for _ in range(d.integer(0, 2))]
    return d.emit(Concatenate(d.integer(0, x.type.rank - 1)), x, *rest)


ROWS = (
    Row((BroadcastInDim,), _broadcast),
    Row((Reshape,), _reshape),
    Row((Transpose,), _transpose),
    Row((Reverse,), _reverse),
    Row((Slice,), _slice),
    Row((Pad,), _pad),
    Row((Concatenate,), _concatenate),
)
