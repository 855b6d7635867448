"""What is written at index entries: an array with some elements replaced, or combined with others.

Ranges and points become a dynamic_update_slice, or a padded array and a mask where steps are not one; index arrays
become one scatter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rematc.compiler.frontends.numpy.index_entries import (
    Entry,
    IndexArray,
    NewAxis,
    Point,
    Range,
    as_arrays,
    broadcast_indices,
    has_arrays,
    place_of_arrays,
)
from rematc.compiler.frontends.numpy.index_reads import index_dtype, index_value, index_vectors, read
from rematc.compiler.frontends.numpy.operands import ArrayLike, as_operand, broadcast_operand, here, value_of
from rematc.ir.builder import Builder
from rematc.ir.ops import indexing
from rematc.ir.ops.dynamic import DynamicUpdateSlice
from rematc.ir.ops.gather_scatter import ScatterDimensions
from rematc.ir.types import BOOL, I64
from rematc.ir.values import Value

Combine = Callable[[Builder, Value, Value], Value]


def replace(b: Builder, old: Value, new: Value) -> Value:
    """The combination that forgets the old element."""
    return new


def written(
    x: Value, entries: list[Entry], value: ArrayLike, combine: Combine, scatter: type[indexing.Scattering]
) -> Value:
    """`x` with x[entries] replaced by, or combined with, a value that broadcasts to it."""
    is_window = _is_window(entries)
    if has_arrays(entries) or (not is_window and any(isinstance(entry, IndexArray) for entry in entries)):
        return _scattered(x, as_arrays(entries), value, scatter)
    new = broadcast_operand(as_operand(value), x.type.dtype, _shape_of_entries(entries))
    if is_window:
        old = new if combine is replace else read(x, entries)
        return _window_replaced(x, entries, combine(here(), old, new))
    return _spread_and_masked(x, entries, new, combine)


def selected_shape(entries: list[Entry]) -> tuple[int, ...]:
    """The shape of what the entries select."""
    if not has_arrays(entries):
        return _shape_of_entries(entries)
    entries = as_arrays(entries)
    shape, place = broadcast_indices(entries), place_of_arrays(entries)
    kept = [entry for entry in entries if not isinstance(entry, IndexArray)]
    sizes = [entry.count if isinstance(entry, Range) else 1 for entry in kept]
    return (*sizes[:place], *shape, *sizes[place:])


def _shape_of_entries(entries: Sequence[Entry]) -> tuple[int, ...]:
    """The shape of what ranges, points and traced scalars select."""
    sizes = [entry.count if isinstance(entry, Range) else 1 for entry in entries if isinstance(entry, (Range, NewAxis))]
    return tuple(sizes)


def _is_window(entries: Sequence[Entry]) -> bool:
    """Whether the ranges have no gaps: then the elements lie together."""
    return all(abs(entry.step) == 1 or entry.count <= 1 for entry in entries if isinstance(entry, Range))


def _window_replaced(x: Value, entries: Sequence[Entry], new: Value) -> Value:
    """`x` with `new`, of the shape of `x[entries]`, in the window that the entries are."""
    b, own = here(), [entry for entry in entries if not isinstance(entry, NewAxis)]
    sizes = [entry.count if isinstance(entry, Range) else 1 for entry in own]
    backwards = [d for d, entry in enumerate(own) if isinstance(entry, Range) and entry.step < 0]
    window = b.reverse(b.reshape(new, sizes), backwards)
    begins = []
    for entry, size in zip(own, x.type.shape, strict=True):
        match entry:
            case IndexArray():
                begins.append(index_value(entry, size, I64))
            case Point(index):
                begins.append(value_of(np.asarray(index), I64))
            case Range(start, step, count, _):
                begins.append(value_of(np.asarray(start if step > 0 else start + (count - 1) * step), I64))
            case _:
                raise AssertionError("new axes are no dimension of the array")
    if 0 in sizes:
        return x
    return b.emit1(DynamicUpdateSlice(), x, window, *begins) if begins else window


def _spread_and_masked(x: Value, entries: Sequence[Entry], new: Value, combine: Combine) -> Value:
    """Ranges with steps: `new` spread over an array of the shape of `x`, chosen where the index chooses."""
    b, own = here(), [entry for entry in entries if isinstance(entry, (Range, Point))]
    ranges = [Range(e.index, 1, 1, n) if isinstance(e, Point) else e for e, n in zip(own, x.type.shape, strict=True)]
    if any(entry.count == 0 for entry in ranges):
        return x
    sizes = [entry.count for entry in ranges]
    low = [min(entry.start, entry.start + (entry.count - 1) * entry.step) for entry in ranges]
    gaps = [abs(entry.step) - 1 if entry.count > 1 else 0 for entry in ranges]
    ends = [begin + (count - 1) * (gap + 1) + 1 for begin, count, gap in zip(low, sizes, gaps, strict=True)]
    high = [size - end for size, end in zip(x.type.shape, ends, strict=True)]
    backwards = [d for d, entry in enumerate(ranges) if entry.step < 0]
    window = b.reverse(b.reshape(new, sizes), backwards)
    spread = b.pad(window, b.zeros(x.type.with_shape(())), low, high, gaps)
    ones = b.full(x.type.with_dtype(BOOL).with_shape(tuple(sizes)), True)
    chosen = b.pad(ones, b.full(ones.type.with_shape(()), False), low, high, gaps)
    return b.select(chosen, combine(b, x, spread), x)


def _scattered(x: Value, entries: list[Entry], value: ArrayLike, scatter: type[indexing.Scattering]) -> Value:
    """Index arrays, together with ranges: whole ranges are the windows, others become index arrays of their own."""
    b, shape, place = here(), broadcast_indices(entries), place_of_arrays(entries)
    kept = [entry for entry in entries if not isinstance(entry, IndexArray)]
    sizes = [entry.count if isinstance(entry, Range) else 1 for entry in kept]
    new = broadcast_operand(as_operand(value), x.type.dtype, (*sizes[:place], *shape, *sizes[place:]))
    if 0 in new.type.shape:
        return x
    # In order: the dimensions of the index arrays, of the parts, of the whole ranges.
    axes = [d if d < place else d + len(shape) for d in range(len(kept))]
    parts = [axis for axis, e in zip(axes, kept, strict=True) if isinstance(e, Range) and not e.is_whole]
    wholes = [axis for axis, e in zip(axes, kept, strict=True) if isinstance(e, Range) and e.is_whole]
    dropped = [axis for axis, e in zip(axes, kept, strict=True) if isinstance(e, NewAxis)]
    order = [*range(place, place + len(shape)), *parts, *wholes, *dropped]
    batch = tuple([new.type.shape[d] for d in (*range(place, place + len(shape)), *parts)])
    updates = b.reshape(b.transpose(new, order), (*batch, *[new.type.shape[d] for d in wholes]))
    own = [entry for entry in entries if not isinstance(entry, NewAxis)]
    indexed = [d for d, e in enumerate(own) if isinstance(e, IndexArray) or (isinstance(e, Range) and not e.is_whole)]
    vectors = index_vectors(_batch_indices(x, own, indexed, len(shape), len(batch)), batch)
    dims = ScatterDimensions(
        update_window_dims=tuple(range(len(batch), len(batch) + len(wholes))),
        inserted_window_dims=tuple(indexed),
        scatter_dims_to_operand_dims=tuple(indexed),
        index_vector_dim=len(batch),
    )
    return b.emit1(scatter(dims), x, vectors, updates)  # type: ignore[call-arg]  # every member has these fields


def _batch_indices(x: Value, own: Sequence[Entry], indexed: Sequence[int], rank: int, batch_rank: int) -> list[Value]:
    """For each indexed dimension its indices, shaped so that they broadcast to the batch shape."""
    b, dtype = here(), index_dtype(own)
    found, position = [], rank
    for d in indexed:
        entry = own[d]
        if isinstance(entry, IndexArray):
            value = index_value(entry, x.type.shape[d], dtype)
            tail = [1] * (batch_rank - rank)
            found.append(b.reshape(value, (*value.type.shape, *tail)))
        elif isinstance(entry, Range):
            line = value_of(entry.indices, dtype)
            found.append(b.reshape(line, (entry.count, *[1] * (batch_rank - position - 1))))
            position += 1
    return found
