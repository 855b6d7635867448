"""Reading elements: `x[index]`, take, take_along_axis and their kin.

Slices, integers and None become slices, reversals and reshapes; one traced integer a dimension becomes a dynamic
slice; index arrays become one gather, with NumPy's rules for where their dimensions go. An index that is traced
counts from the end where it is negative; outside the array it is clamped, for compiled code cannot raise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rematc.compiler.frontends.numpy.index_entries import (
    Entry,
    IndexArray,
    NewAxis,
    Range,
    as_arrays,
    broadcast_indices,
    has_arrays,
    parse_index,
    place_of_arrays,
)
from rematc.compiler.frontends.numpy.index_reads import index_dtype, index_value, index_vectors, read, sliced
from rematc.compiler.frontends.numpy.index_writes import replace, written
from rematc.compiler.frontends.numpy.operands import (
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
    wrap,
)
from rematc.compiler.frontends.numpy.reshaping import ravel
from rematc.compiler.frontends.numpy.views import is_dense, view_of
from rematc.compiler.tracing.trace import Tracer
from rematc.ir.ops import indexing as scattering
from rematc.ir.ops.gather_scatter import GatherDimensions
from rematc.ir.ops.indexing import Gather
from rematc.ir.values import Array, Value


def getitem(x: ArrayLike, index: object) -> Tracer:
    """x[index]."""
    value = value_of(x)
    entries = parse_index(index, value.type.shape)
    if has_arrays(entries):
        return wrap(_gathered(value, as_arrays(entries)))
    found = read(value, entries)
    if _is_copy(x, index, entries, found):
        return wrap(found)
    return view_of(x, found, Indexed(tuple(entries)), is_dense=is_dense(x) and _is_block(entries))


def _is_copy(x: ArrayLike, index: object, entries: Sequence[Entry], found: Value) -> bool:
    """Whether NumPy copies: a scalar, unless there is an ellipsis; and what an index array without dimensions takes."""
    items = index if isinstance(index, tuple) else (index,)
    if not found.type.rank and not any(item is Ellipsis for item in items):
        return True
    arrays = [entry.array for entry in entries if isinstance(entry, IndexArray)]
    return any(not isinstance(array, Tracer) or array.place is not None for array in arrays)


def _is_block(entries: Sequence[Entry]) -> bool:
    """Whether the elements of an array in C order that are chosen lie side by side in memory."""
    own = [entry for entry in entries if not isinstance(entry, NewAxis)]
    chosen = next((place for place, entry in enumerate(own) if isinstance(entry, Range)), len(own))
    rest = own[chosen:]
    return not rest or (
        isinstance(rest[0], Range)
        and (rest[0].step == 1 or rest[0].count == 1)
        and all(isinstance(entry, Range) and entry.is_whole for entry in rest[1:])
    )


@dataclass(frozen=True, slots=True)
class Indexed:
    """The view x[index].

    Attributes:
        entries: ranges, points, new axes and traced scalars.
    """

    entries: tuple[Entry, ...]

    def read(self, whole: Value) -> Value:
        return read(whole, self.entries)

    def write(self, whole: Value, part: Value) -> Value:
        return written(whole, list(self.entries), wrap(part), replace, scattering.Scatter)

    def is_at(self, entries: Sequence[Entry]) -> bool:
        """Whether these are the same elements."""
        return len(entries) == len(self.entries) and all(
            one == other or (isinstance(one, IndexArray) and isinstance(other, IndexArray) and one.array is other.array)
            for one, other in zip(entries, self.entries, strict=True)
        )


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
