"""Functions that put arrays together and take them apart: concatenate, stack, split, tile, repeat, pad, meshgrid.

The parameters are those of the NumPy functions of the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rematc.compiler.frontends.numpy.index_entries import Point, Range
from rematc.compiler.frontends.numpy.indexing import Indexed, getitem
from rematc.compiler.frontends.numpy.operands import (
    ArrayLike,
    as_ir_dtype,
    broadcast_value,
    fail,
    here,
    normalize_axis,
    promote,
    shape_of,
    slice_along,
    static_int,
    value_of,
    wrap,
)
from rematc.compiler.frontends.numpy.reshaping import ravel, reshape
from rematc.compiler.frontends.numpy.shaping import (
    atleast_1d,
    atleast_2d,
    atleast_3d,
    broadcast_to,
    expand_dims,
    moveaxis,
)
from rematc.compiler.frontends.numpy.views import is_dense, view_of
from rematc.compiler.tracing.trace import Tracer
from rematc.ir.values import Value


def _items(arrays: object, what: str) -> list[ArrayLike]:
    if isinstance(arrays, Tracer):
        return list(unstack(arrays))
    if not isinstance(arrays, (list, tuple, np.ndarray)) or not len(arrays):
        fail(f"{what} takes a list of one array or more")
    return list(arrays)


def concatenate(arrays: object, /, axis: object = 0, *, dtype: object = None, casting: str = "same_kind") -> Tracer:
    """As np.concatenate."""
    items = _items(arrays, "np.concatenate")
    if axis is None:
        items, axis = [ravel(item) for item in items], 0
    values, common = promote(*items)
    b, rank = here(), values[0].type.rank
    if rank == 0:
        fail("np.concatenate takes no scalars; use np.stack")
    along = normalize_axis(axis, rank, "np.concatenate")
    expected = _without(values[0], along)
    for value in values:
        if value.type.rank != rank or _without(value, along) != expected:
            shapes = ", ".join(str(value.type.shape) for value in values)
            fail(f"np.concatenate of shapes {shapes} along axis {along}: the other dimensions must be equal")
    target = common if dtype is None else as_ir_dtype(dtype)
    if not np.can_cast(common.numpy, target.numpy, casting):  # type: ignore[arg-type]  # NumPy checks the word
        fail(f"np.concatenate does not cast {common.numpy} to {target.numpy} with casting={casting!r}")
    return wrap(b.concatenate([b.convert(value, target) for value in values], along))


def _without(x: Value, axis: int) -> tuple[int, ...]:
    return (*x.type.shape[:axis], *x.type.shape[axis + 1 :])


def stack(arrays: object, axis: object = 0, *, dtype: object = None, casting: str = "same_kind") -> Tracer:
    """As np.stack."""
    items = _items(arrays, "np.stack")
    values, _ = promote(*items)
    if len({value.type.shape for value in values}) > 1:
        shapes = ", ".join(str(value.type.shape) for value in values)
        fail(f"np.stack takes arrays of one shape, got {shapes}")
    place = normalize_axis(axis, values[0].type.rank + 1, "np.stack")
    return concatenate([expand_dims(wrap(value), place) for value in values], place, dtype=dtype, casting=casting)


def _stacked_along(axis: int, prepare: Callable[..., object]) -> Callable[..., Tracer]:
    def apply(tup: object, *, dtype: object = None, casting: str = "same_kind") -> Tracer:
        items = [prepare(item) for item in _items(tup, "stacking")]
        return concatenate(items, 0 if len(shape_of(items[0])) == 1 else axis, dtype=dtype, casting=casting)

    return apply


vstack = _stacked_along(0, atleast_2d)
hstack = _stacked_along(1, atleast_1d)
dstack = _stacked_along(2, atleast_3d)


def column_stack(tup: object) -> Tracer:
    """As np.column_stack: vectors become columns."""
    items = _items(tup, "np.column_stack")
    values = [wrap(value) for value in promote(*items)[0]]
    return concatenate([_column(x) for x in values], 1)


def _column(x: Tracer) -> Tracer:
    return x if x.ndim >= 2 else wrap(here().reshape(x.value, (x.size, 1)))


def append(arr: ArrayLike, values: ArrayLike, axis: object = None) -> Tracer:
    """As np.append."""
    return concatenate((arr, values), axis)


def block(arrays: object) -> Tracer:
    """As np.block: nested lists, the innermost joined along the last dimension."""
    depth = _depth(arrays)
    return _block(arrays, depth, max(depth, _largest_rank(arrays)))


def _depth(arrays: object) -> int:
    return 1 + _depth(arrays[0]) if isinstance(arrays, list) else 0


def _largest_rank(arrays: object) -> int:
    return max(_largest_rank(item) for item in arrays) if isinstance(arrays, list) else len(shape_of(arrays))


def _block(arrays: object, depth: int, rank: int) -> Tracer:
    if isinstance(arrays, list):
        return concatenate([_block(item, depth - 1, rank) for item in arrays], -depth)
    x = value_of(arrays)
    return wrap(here().reshape(x, (1,) * (rank - x.type.rank) + x.type.shape))


# -- taking apart ----------------------------------------------------------------------------------------------------


def array_split(ary: ArrayLike, indices_or_sections: object, axis: object = 0) -> list[Tracer]:
    """As np.array_split."""
    x = value_of(ary)
    along = normalize_axis(axis, x.type.rank, "np.array_split")
    size = x.type.shape[along]
    if isinstance(indices_or_sections, (list, tuple, np.ndarray)):
        inner = [static_int(index, "index of np.split") for index in indices_or_sections]
        cuts = [slice(None, index).indices(size)[1] for index in inner]
    else:
        sections = static_int(indices_or_sections, "number of sections of np.split")
        if sections < 1:
            fail(f"np.split into {sections} sections")
        each, extra = divmod(size, sections)
        cuts = [(section + 1) * each + min(section + 1, extra) for section in range(sections - 1)]
    before, starts, stops = (slice(None),) * along, [0, *cuts], [*cuts, size]
    return [getitem(ary, (*before, slice(start, stop))) for start, stop in zip(starts, stops, strict=True)]


def split(ary: ArrayLike, indices_or_sections: object, axis: object = 0) -> list[Tracer]:
    """As np.split: equal sections."""
    shape = shape_of(ary)
    size = shape[normalize_axis(axis, len(shape), "np.split")]
    if not isinstance(indices_or_sections, (list, tuple, np.ndarray)):
        sections = static_int(indices_or_sections, "number of sections of np.split")
        if sections < 1 or size % sections:
            fail(f"np.split of size {size} into {sections} equal sections; np.array_split takes unequal ones")
    return array_split(ary, indices_or_sections, axis)


def hsplit(ary: ArrayLike, indices_or_sections: object) -> list[Tracer]:
    """As np.hsplit."""
    return split(ary, indices_or_sections, 1 if len(shape_of(ary)) > 1 else 0)


def vsplit(ary: ArrayLike, indices_or_sections: object) -> list[Tracer]:
    """As np.vsplit."""
    return split(ary, indices_or_sections, 0)


def dsplit(ary: ArrayLike, indices_or_sections: object) -> list[Tracer]:
    """As np.dsplit."""
    return split(ary, indices_or_sections, 2)


def unstack(x: ArrayLike, /, *, axis: object = 0) -> tuple[Tracer, ...]:
    """As np.unstack: the sub-arrays along one dimension."""
    value = value_of(x)
    if value.type.rank == 0:
        fail("a traced scalar cannot be taken apart")
    along = normalize_axis(axis, value.type.rank, "np.unstack")
    shape = _without(value, along)
    pieces = [slice_along(value, along, i, i + 1) for i in range(value.type.shape[along])]
    rows = [here().reshape(piece, shape) for piece in pieces]
    if not shape:
        return tuple([wrap(row) for row in rows])
    whole = [Range(0, 1, size, size) for size in value.type.shape]
    steps = [Indexed((*whole[:along], Point(i), *whole[along + 1 :])) for i in range(len(rows))]
    return tuple(
        [view_of(x, row, step, is_dense=not along and is_dense(x)) for row, step in zip(rows, steps, strict=True)]
    )


# -- repeating -------------------------------------------------------------------------------------------------------


def tile(A: ArrayLike, reps: object) -> Tracer:  # noqa: N803  # NumPy's name
    """As np.tile."""
    x, b = value_of(A), here()
    counts = tuple(reps) if isinstance(reps, (tuple, list, np.ndarray)) else (reps,)
    times = [static_int(count, "repetition of np.tile") for count in counts]
    rank = max(x.type.rank, len(times))
    times = [1] * (rank - len(times)) + times
    shape = (1,) * (rank - x.type.rank) + x.type.shape
    pairs = [size for pair in zip(times, shape, strict=True) for size in pair]
    spread = b.broadcast_in_dim(b.reshape(x, shape), pairs, range(1, 2 * rank, 2))
    return wrap(b.reshape(spread, [count * size for count, size in zip(times, shape, strict=True)]))


def repeat(a: ArrayLike, repeats: object, axis: object = None) -> Tracer:
    """As np.repeat, by numbers that are known while tracing."""
    if axis is None:
        a, axis = ravel(a), 0
    x, b = value_of(a), here()
    along = normalize_axis(axis, x.type.rank, "np.repeat")
    if isinstance(repeats, Tracer):
        fail(
            "np.repeat by a traced number would have a shape that depends on data; pass the number as a Python "
            "integer, or name the length: rematc.numpy.repeat(x, repeats, total_repeat_length=n)"
        )
    counts = np.asarray(repeats)
    size = x.type.shape[along]
    if counts.size == 1:
        times = int(counts.reshape(())[()])
        wide = (*x.type.shape[: along + 1], times, *x.type.shape[along + 1 :])
        kept = [d if d <= along else d + 1 for d in range(x.type.rank)]
        spread = b.broadcast_in_dim(x, wide, kept)
        return wrap(b.reshape(spread, (*x.type.shape[:along], size * times, *x.type.shape[along + 1 :])))
    if counts.shape != (size,):
        fail(f"np.repeat: {counts.shape} numbers for an axis of size {size}")
    return getitem(wrap(x), (*[slice(None)] * along, np.repeat(np.arange(size), counts)))


def meshgrid(*xi: ArrayLike, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> tuple[Tracer, ...]:
    """As np.meshgrid."""
    b, vectors = here(), [value_of(ravel(x)) for x in xi]
    rank = len(vectors)
    places = list(range(rank))
    if indexing == "xy" and rank > 1:
        places[:2] = [1, 0]
    shape = [0] * rank
    for place, vector in zip(places, vectors, strict=True):
        shape[place] = vector.type.shape[0]
    results = []
    for place, vector in zip(places, vectors, strict=True):
        own = [size if d == place else 1 for d, size in enumerate(shape)]
        if copy:
            value = b.reshape(vector, own)
            results.append(wrap(value if sparse else broadcast_value(b, value, tuple(shape))))
        else:
            found = reshape(xi[len(results)], own)
            results.append(found if sparse else broadcast_to(found, shape))
    return tuple(results)


def vander(x: ArrayLike, N: int | None = None, increasing: bool = False) -> Tracer:  # noqa: N803  # NumPy's name
    """As np.vander: the powers of a vector as columns."""
    b, value = here(), value_of(x)
    if value.type.rank != 1:
        fail(f"np.vander takes a vector, got shape {value.type.shape}")
    value = b.convert(value, as_ir_dtype(np.promote_types(value.type.dtype.numpy, int)))
    columns = [b.full(value.type, 1)]
    count = value.type.shape[0] if N is None else static_int(N, "number of columns of np.vander")
    if not count:
        return wrap(b.zeros(value.type.with_shape((value.type.shape[0], 0))))
    for _ in range(count - 1):
        columns.append(b.multiply(columns[-1], value))
    ordered: Sequence[Value] = columns if increasing else columns[::-1]
    return moveaxis(stack([wrap(column) for column in ordered]), 0, -1)


FUNCTIONS: dict[Callable[..., object], Callable[..., object]] = {
    np.concatenate: concatenate,
    np.stack: stack,
    np.vstack: vstack,
    np.hstack: hstack,
    np.dstack: dstack,
    np.column_stack: column_stack,
    np.append: append,
    np.block: block,
    np.array_split: array_split,
    np.split: split,
    np.hsplit: hsplit,
    np.vsplit: vsplit,
    np.dsplit: dsplit,
    np.tile: tile,
    np.repeat: repeat,
    np.meshgrid: meshgrid,
    np.vander: vander,
}
# Newer names of NumPy 2.1.
if hasattr(np, "unstack"):
    FUNCTIONS[np.unstack] = unstack
