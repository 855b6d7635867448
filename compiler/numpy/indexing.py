"""Reading elements: `x[index]`, take, take_along_axis and their kin.

Slices, integers and None become slices, reversals and reshapes; one traced integer a dimension becomes a dynamic
slice; index arrays become one gather, with NumPy's rules for where their dimensions go. An index that is traced
counts from the end where it is negative; outside the array it is clamped, for compiled code cannot raise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
from rematc.compiler.numpy.operands import (
    ArrayLike,
    as_operand,
    broadcast_operand,
    broadcast_shape,
    dispatching,
    fail,
    here,
    normalize_axis,
    shape_of,
    value_of,
    view_of,
    wrap,
)
from rematc.compiler.numpy.shaping import ravel
from rematc.compiler.tracing.trace import Tracer
from rematc.ir.core import Array, Value
from rematc.ir.ops.dynamic import DynamicSlice
from rematc.ir.ops.indexing import Gather
from rematc.ir.ops.windows import GatherDimensions
from rematc.ir.types import I32, I64, DType, Kind


def getitem(x: ArrayLike, index: object) -> Tracer:
    """x[index]."""
    value = value_of(x)
    entries = parse_index(index, value.type.shape)
    if has_arrays(entries):
        return wrap(_gathered(value, as_arrays(entries)))
    if any(isinstance(entry, IndexArray) for entry in entries):
        value, entries = _at_traced_points(value, entries)
    return view_of(x, sliced(value, entries))


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


def _gathered(x: Value, entries: list[Entry]) -> Value:
    arrays = [entry for entry in entries if isinstance(entry, IndexArray)]
    if len(arrays) == 1 and (line := _as_range(arrays[0], entries, x)) is not None:
        return sliced(x, [line if entry is arrays[0] else entry for entry in entries])
    shape, place = broadcast_indices(entries), place_of_arrays(entries)
    x = sliced(x, _with_whole_ranges(entries, x.type.shape))
    # Now every entry stands for one dimension.
    chosen = [d for d, entry in enumerate(entries) if isinstance(entry, IndexArray)]
    sizes = [1 if d in chosen else size for d, size in enumerate(x.type.shape)]
    rest = [size for d, size in enumerate(x.type.shape) if d not in chosen]
    b, dtype = here(), index_dtype(entries)
    if 0 in (*shape, *rest):
        return b.zeros(x.type.with_shape((*rest[:place], *shape, *rest[place:])))
    indices = [index_value(entry, x.type.shape[d], dtype) for entry, d in zip(arrays, chosen, strict=True)]
    rank = len(shape) + len(rest)
    dims = GatherDimensions(
        offset_dims=tuple([d for d in range(rank) if not place <= d < place + len(shape)]),
        collapsed_slice_dims=tuple(chosen),
        start_index_map=tuple(chosen),
        index_vector_dim=len(shape),
    )
    return b.emit1(Gather(dims, tuple(sizes)), x, index_vectors(indices, shape))


def _with_whole_ranges(entries: Sequence[Entry], shape: tuple[int, ...]) -> list[Entry]:
    """The entries with everything in place of each index array."""
    sizes = iter(shape)
    whole: list[Entry] = []
    for entry in entries:
        size = 0 if isinstance(entry, NewAxis) else next(sizes)
        whole.append(Range(0, 1, size, size) if isinstance(entry, IndexArray) else entry)
    return whole


def _as_range(entry: IndexArray, entries: Sequence[Entry], x: Value) -> Range | None:
    """The range that a concrete vector of evenly spaced indices is."""
    indices = entry.array
    if isinstance(indices, Tracer) or indices.ndim != 1 or indices.size == 0:
        return None
    steps = np.diff(indices)
    step = int(steps[0]) if steps.size else 1
    if step == 0 or not (steps == step).all():
        return None
    dimension = [item for item in entries if not isinstance(item, NewAxis)].index(entry)
    return Range(int(indices[0]), step, indices.size, x.type.shape[dimension])


# -- functions -------------------------------------------------------------------------------------------------------


def take(a: ArrayLike, indices: ArrayLike, axis: object = None, mode: str = "raise") -> Tracer:
    """As np.take; mode "raise" clamps where the indices are traced."""
    if axis is None:
        a, axis = ravel(a), 0
    shape = shape_of(a)
    along, chosen = normalize_axis(axis, len(shape), "np.take"), as_operand(indices)
    if mode == "clip":
        chosen = np.clip(chosen, 0, shape[along] - 1)  # type: ignore[call-overload]  # dispatches on tracers
    elif mode == "wrap":
        chosen = np.remainder(chosen, shape[along])  # type: ignore[call-overload]  # as above
    elif mode != "raise":
        fail(f"np.take takes the modes raise, clip and wrap, got {mode!r}")
    if not isinstance(chosen, Tracer):
        chosen = np.asarray(chosen)
    return getitem(a, (*[slice(None)] * along, chosen))


def take_along_axis(arr: ArrayLike, indices: ArrayLike, axis: object = -1) -> Tracer:
    """As np.take_along_axis."""
    if axis is None:
        arr, axis = ravel(arr), 0
    x, chosen = value_of(arr), as_operand(indices)
    along = normalize_axis(axis, x.type.rank, "np.take_along_axis")
    own = shape_of(chosen)
    if len(own) != x.type.rank:
        fail(
            f"np.take_along_axis: indices of shape {own} for an array of shape {x.type.shape}; the ranks must be equal"
        )
    outer = broadcast_shape(
        "np.take_along_axis (without the axis)",
        [(*shape[:along], 1, *shape[along + 1 :]) for shape in (x.type.shape, own)],
    )
    b, rank = here(), x.type.rank
    size = x.type.shape[along]
    x = b.broadcast_in_dim(x, (*outer[:along], size, *outer[along + 1 :]), range(rank))
    entry = IndexArray(chosen if isinstance(chosen, Tracer) else _checked(np.asarray(chosen), size))
    index = index_value(entry, size, index_dtype([entry]))
    index = broadcast_operand(wrap(index), index.type.dtype, (*outer[:along], own[along], *outer[along + 1 :]))
    others = tuple([d for d in range(rank) if d != along])
    dims = GatherDimensions((), (along,), (along,), rank, others, others)
    return wrap(b.emit1(Gather(dims, (1,) * rank), x, index))


def _checked(indices: Array, size: int) -> Array:
    """Concrete indices counted from the front."""
    (entry,) = parse_index(indices, (size,))
    assert isinstance(entry, IndexArray) and not isinstance(entry.array, Tracer)
    return entry.array


def delete(arr: ArrayLike, obj: object, axis: object = None) -> Tracer:
    """As np.delete, of places known while tracing."""
    if isinstance(obj, Tracer):
        fail("np.delete at traced places has a shape that depends on data; use np.where or a mask that multiplies")
    if axis is None:
        arr, axis = ravel(arr), 0
    shape = shape_of(arr)
    along = normalize_axis(axis, len(shape), "np.delete")
    kept = np.delete(np.arange(shape[along]), obj)  # type: ignore[call-overload]  # whatever NumPy takes
    return getitem(arr, (*[slice(None)] * along, kept))


def compress(condition: ArrayLike, a: ArrayLike, axis: object = None) -> Tracer:
    """As np.compress, by a condition known while tracing."""
    if isinstance(condition, Tracer):
        fail("np.compress by a traced condition has a shape that depends on data; use np.where(condition, x, y)")
    if axis is None:
        a, axis = ravel(a), 0
    along = normalize_axis(axis, len(shape_of(a)), "np.compress")
    kept = np.flatnonzero(np.asarray(condition))
    return getitem(a, (*[slice(None)] * along, kept))


def ix_(*args: ArrayLike) -> tuple[object, ...]:
    """As np.ix_: vectors of indices, each along its own dimension."""
    mesh: list[object] = []
    for place, given in enumerate(args):
        x = as_operand(given)
        if not isinstance(x, Tracer):
            x = dispatching.flatnonzero(x) if np.asarray(x).dtype == np.bool_ else np.asarray(x)
        elif x.value.type.dtype.is_bool:
            fail("np.ix_ of a traced mask has a shape that depends on data; use rematc.numpy.flatnonzero(mask, size=n)")
        if len(shape_of(x)) != 1:
            fail(f"np.ix_ takes vectors, got shape {shape_of(x)}")
        mesh.append(dispatching.reshape(x, [-1 if d == place else 1 for d in range(len(args))]))
    return tuple(mesh)


FUNCTIONS: dict[Callable[..., object], Callable[..., object]] = {
    np.take: take,
    np.ix_: ix_,
    np.take_along_axis: take_along_axis,
    np.delete: delete,
    np.compress: compress,
}
