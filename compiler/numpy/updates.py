"""Arrays with some elements replaced or changed, as new arrays: the functional form of `x[index] = value`.

Ranges and points become a dynamic_update_slice, or a padded array and a mask where steps are not one; index arrays
become one scatter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rematc.compiler.numpy.index_entries import (
    Entry,
    IndexArray,
    NewAxis,
    Point,
    Range,
    as_arrays,
    broadcast_indices,
    has_arrays,
    parse_index,
    place_of_arrays,
)
from rematc.compiler.numpy.indexing import getitem, index_dtype, index_value, index_vectors
from rematc.compiler.numpy.operands import (
    ArrayLike,
    as_operand,
    broadcast_operand,
    enter,
    fail,
    here,
    is_traced,
    shape_of,
    value_of,
    wrap,
)
from rematc.compiler.tracing.trace import Tracer
from rematc.ir.builder import Builder
from rematc.ir.core import Array, Value
from rematc.ir.ops import indexing
from rematc.ir.ops.dynamic import DynamicUpdateSlice
from rematc.ir.ops.windows import ScatterDimensions
from rematc.ir.types import BOOL, I64

Combine = Callable[[Builder, Value, Value], Value]


def _replace(b: Builder, old: Value, new: Value) -> Value:
    return new


def _update(combine: Combine, scatter: type[indexing.Scattering]) -> Callable[..., Tracer]:
    def apply(x: ArrayLike, index: object, value: ArrayLike) -> Tracer:
        array = value_of(x)
        mask = _mask_of(index)
        if mask is not None:
            return wrap(_masked(array, mask, as_operand(value), combine))
        entries = parse_index(index, array.type.shape)
        is_window = _is_window(entries)
        if has_arrays(entries) or (not is_window and any(isinstance(entry, IndexArray) for entry in entries)):
            return wrap(_scattered(array, as_arrays(entries), value, scatter))
        new = broadcast_operand(as_operand(value), array.type.dtype, _shape_of_entries(entries))
        if is_window:
            old = new if combine is _replace else value_of(getitem(wrap(array), index))
            return wrap(_window_replaced(array, entries, combine(here(), old, new)))
        return wrap(_spread_and_masked(array, entries, new, combine))

    return apply


_traced_set = _update(_replace, indexing.Scatter)
_traced_add = _update(Builder.add, indexing.ScatterAdd)
_traced_multiply = _update(Builder.multiply, indexing.ScatterMultiply)
_traced_min = _update(Builder.minimum, indexing.ScatterMinimum)
_traced_max = _update(Builder.maximum, indexing.ScatterMaximum)


def _mask_of(index: object) -> Tracer | None:
    """The traced mask that is the index, or its first item before nothing but whole slices."""
    items = index if isinstance(index, tuple) else (index,)
    if not items or not isinstance(items[0], Tracer) or not items[0].value.type.dtype.is_bool:
        return None
    is_all = all(item is Ellipsis or (isinstance(item, slice) and item == slice(None)) for item in items[1:])
    return items[0] if is_all else None


def _masked(x: Value, mask: Tracer, value: ArrayLike, combine: Combine) -> Value:
    """The update where a mask holds, by one value for all of the places: how many there are depends on data."""
    b, rank, shape = here(), mask.ndim, x.type.shape
    if shape[:rank] != mask.shape:
        fail(f"a boolean index of shape {mask.shape} does not match dimensions {shape[:rank]} of the array")
    given = shape_of(value)
    if len(given) > len(shape) - rank + 1 or (len(given) == len(shape) - rank + 1 and given[0] != 1):
        fail(
            f"a traced mask chooses a number of places that depends on data, so a value of shape {given} cannot be "
            "dealt out to them; use np.where(mask, y, x) with y of the shape of x"
        )
    rest = broadcast_operand(value, x.type.dtype, (1,) * (len(given) == len(shape) - rank + 1) + shape[rank:])
    new = b.broadcast_in_dim(b.reshape(rest, shape[rank:]), shape, range(rank, len(shape)))
    chosen = b.broadcast_in_dim(value_of(mask), shape, range(rank))
    return b.select(chosen, combine(b, x, new), x)


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


def _updated(update: Callable[..., Tracer], write: Callable[..., object]) -> Callable[[Any, Any, Any], Array]:
    """`update` for tracers, and for concrete arrays a copy on which `write(copy, index, value)` has worked.

    For type checkers the result is an array, as what it computes is when it runs.
    """

    def apply(x: Any, index: Any, value: Any) -> Array:
        if is_traced((x, index, value)):
            enter(x, index, value)
            result: Any = update(x, index, value)
            return result  # type: ignore[no-any-return]  # a tracer, which stands for an array
        copy = np.array(x)
        write(copy, index, value)
        return copy

    return apply


def _write(copy: Array, index: Any, value: Any) -> None:
    copy[index] = value


def _through(function: Callable[..., object]) -> Callable[..., object]:
    """An update of a concrete array by a ufunc's `at`."""

    def write(copy: Array, index: object, value: object) -> None:
        function(copy, index, value)

    return write


#: `at_set(x, index, value)` and its kin: a new array, `x` with x[index] replaced by, or combined with, `value`.
at_set = _updated(_traced_set, _write)
at_add = _updated(_traced_add, _through(np.add.at))
at_multiply = _updated(_traced_multiply, _through(np.multiply.at))
at_min = _updated(_traced_min, _through(np.minimum.at))
at_max = _updated(_traced_max, _through(np.maximum.at))
