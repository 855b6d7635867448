"""Functions that rearrange the elements of one array: reshape, transpose, broadcast, flip, roll, diagonals, triangles.

The parameters are those of the NumPy functions of the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rematc.compiler.frontends.numpy.einsum import diagonal_value
from rematc.compiler.frontends.numpy.operands import (
    ArrayLike,
    as_ir_dtype,
    broadcast_shape,
    broadcast_value,
    converted,
    dtype_of,
    fail,
    here,
    normalize_axes,
    normalize_axis,
    shape_of,
    slice_along,
    static_int,
    static_shape,
    value_of,
    wrap,
)
from rematc.compiler.frontends.numpy.reductions import accumulator
from rematc.compiler.frontends.numpy.reshaping import ravel, reshape, resize
from rematc.compiler.frontends.numpy.views import (
    Permuted,
    ReadOnly,
    Reversed,
    array_of,
    array_or_scalar_of,
    itself,
    view_of,
)
from rematc.compiler.tracing.trace import Tracer
from rematc.ir.types import I64, TensorType
from rematc.ir.values import Value


def transpose(a: ArrayLike, axes: object = None) -> Tracer:
    """As np.transpose."""
    rank = len(shape_of(a))
    order = tuple(range(rank))[::-1] if axes is None else normalize_axes(axes, rank, "np.transpose")
    if len(order) != rank:
        fail(f"np.transpose by {len(order)} axes of an array of {rank} dimensions")
    return _permuted(a, order)


def _permuted(a: ArrayLike, order: Sequence[int]) -> Tracer:
    return view_of(a, here().transpose(value_of(a), order), Permuted(tuple(order)))


def matrix_transpose(x: ArrayLike, /) -> Tracer:
    """As np.matrix_transpose: the last two dimensions exchanged."""
    if len(shape_of(x)) < 2:
        fail(f"the transpose of a matrix takes 2 dimensions or more, got shape {shape_of(x)}")
    return swapaxes(x, -1, -2)


def swapaxes(a: ArrayLike, axis1: object, axis2: object) -> Tracer:
    """As np.swapaxes."""
    order = list(range(len(shape_of(a))))
    first, second = (normalize_axis(axis, len(order), "np.swapaxes") for axis in (axis1, axis2))
    order[first], order[second] = order[second], order[first]
    return _permuted(a, order)


def moveaxis(a: ArrayLike, source: object, destination: object) -> Tracer:
    """As np.moveaxis."""
    x = value_of(a)
    sources = normalize_axes(source, x.type.rank, "np.moveaxis")
    targets = normalize_axes(destination, x.type.rank, "np.moveaxis")
    if len(sources) != len(targets):
        fail(f"np.moveaxis from {len(sources)} axes to {len(targets)}")
    order = [axis for axis in range(x.type.rank) if axis not in sources]
    for target, axis in sorted(zip(targets, sources, strict=True)):
        order.insert(target, axis)
    return _permuted(a, order)


def rollaxis(a: ArrayLike, axis: object, start: object = 0) -> Tracer:
    """As np.rollaxis."""
    rank = len(shape_of(a))
    source = normalize_axis(axis, rank, "np.rollaxis")
    before = static_int(start, "start of np.rollaxis")
    before += rank if before < 0 else 0
    return moveaxis(a, source, before - 1 if before > source else before)


def expand_dims(a: ArrayLike, axis: object) -> Tracer:
    """As np.expand_dims."""
    x = value_of(a)
    added = len(axis) if isinstance(axis, (tuple, list)) else 1
    places = normalize_axes(axis, x.type.rank + added, "np.expand_dims")
    sizes = iter(x.type.shape)
    return reshape(a, tuple([1 if d in places else next(sizes) for d in range(x.type.rank + added)]))


def squeeze(a: ArrayLike, axis: object = None) -> Tracer:
    """As np.squeeze."""
    x = value_of(a)
    if axis is None:
        return reshape(a, tuple([size for size in x.type.shape if size != 1]))
    dropped = normalize_axes(axis, x.type.rank, "np.squeeze")
    for d in dropped:
        if x.type.shape[d] != 1:
            fail(f"np.squeeze of axis {d}, which has size {x.type.shape[d]}: only axes of size 1 can go")
    return reshape(a, tuple([size for d, size in enumerate(x.type.shape) if d not in dropped]))


def broadcast_to(array: ArrayLike, shape: object, subok: bool = False) -> Tracer:
    """As np.broadcast_to."""
    x, target = value_of(array), static_shape(shape, "np.broadcast_to")
    if broadcast_shape("np.broadcast_to", (x.type.shape, target)) != target:
        fail(f"an array of shape {x.type.shape} does not broadcast to {target}")
    step = ReadOnly("np.broadcast_to", lambda whole: broadcast_value(here(), whole, target))
    return view_of(array, step.read(x), step)


def broadcast_arrays(*args: ArrayLike, subok: bool = False) -> tuple[Tracer, ...]:
    """As np.broadcast_arrays."""
    shape = broadcast_shape("np.broadcast_arrays", [shape_of(a) for a in args])
    if all(shape_of(a) == shape for a in args):
        return tuple([itself(a, value_of(a)) for a in args])
    return tuple([broadcast_to(a, shape) for a in args])


def _at_least(rank: int, place: Callable[[tuple[int, ...]], tuple[int, ...]]) -> Callable[..., object]:
    def apply(*arys: ArrayLike) -> object:
        results = [
            reshape(a, place(x.type.shape)) if x.type.rank < rank else itself(a, x)
            for a, x in [(a, value_of(a)) for a in arys]
        ]
        return results[0] if len(results) == 1 else tuple(results)

    return apply


def _three(shape: tuple[int, ...]) -> tuple[int, ...]:
    return {0: (1, 1, 1), 1: (1, *shape, 1)}.get(len(shape), (*shape, 1))


atleast_1d = _at_least(1, lambda shape: (1,))
atleast_2d = _at_least(2, lambda shape: (1, *(shape or (1,))))
atleast_3d = _at_least(3, _three)


def flip(m: ArrayLike, axis: object = None) -> Tracer:
    """As np.flip."""
    x = value_of(m)
    step = Reversed(normalize_axes(axis, x.type.rank, "np.flip"))
    return view_of(m, step.read(x), step)


def fliplr(m: ArrayLike) -> Tracer:
    """As np.fliplr."""
    return flip(m, 1)


def flipud(m: ArrayLike) -> Tracer:
    """As np.flipud."""
    return flip(m, 0)


def rot90(m: ArrayLike, k: int = 1, axes: Sequence[int] = (0, 1)) -> Tracer:
    """As np.rot90."""
    first, second = normalize_axes(tuple(axes), len(shape_of(m)), "np.rot90")
    match k % 4:
        case 1:
            return swapaxes(flip(m, second), first, second)
        case 2:
            return flip(m, (first, second))
        case 3:
            return flip(swapaxes(m, first, second), second)
    return itself(m, value_of(m))


def roll(a: ArrayLike, shift: object, axis: object = None) -> Tracer:
    """As np.roll, by shifts that are known while tracing."""
    if axis is None:
        flat = roll(ravel(a), shift, 0)
        return wrap(here().reshape(flat.value, shape_of(a)))
    x, b = value_of(a), here()
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    shifts = shift if isinstance(shift, (tuple, list)) else (shift,)
    for one_axis, by in np.broadcast(np.asarray(axes, object), np.asarray(shifts, object)):
        along = normalize_axis(one_axis, x.type.rank, "np.roll")
        size = x.type.shape[along]
        steps = static_int(by, "shift of np.roll") % size if size else 0
        if steps:
            x = b.concatenate(
                [slice_along(x, along, size - steps, size), slice_along(x, along, 0, size - steps)], along
            )
    return wrap(x)


# -- diagonals and triangles -----------------------------------------------------------------------------------------


def diagonal(a: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tracer:
    """As np.diagonal."""
    x = value_of(a)
    if x.type.rank < 2:
        fail(f"np.diagonal takes 2 dimensions or more, got shape {x.type.shape}")
    first, second = normalize_axes((axis1, axis2), x.type.rank, "np.diagonal")
    places = static_int(offset, "offset of np.diagonal")
    step = ReadOnly("np.diagonal", lambda whole: diagonal_value(whole, first, second, places))
    return view_of(a, step.read(x), step)


def trace(a: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: object = None) -> Tracer:
    """As np.trace."""
    b, x = here(), diagonal(a, offset, axis1, axis2).value
    x = b.convert(x, accumulator(x.type.dtype) if dtype is None else as_ir_dtype(dtype))
    return wrap(b.reduce_sum(x, (x.type.rank - 1,)))


def diag(v: ArrayLike, k: int = 0) -> Tracer:
    """As np.diag: a matrix's diagonal, or the matrix that has a vector for its diagonal."""
    x, b, offset = value_of(v), here(), static_int(k, "offset of np.diag")
    if x.type.rank == 2:
        return diagonal(v, offset)
    if x.type.rank != 1:
        fail(f"np.diag takes a vector or a matrix, got shape {x.type.shape}")
    size = x.type.shape[0]
    zero = b.zeros(x.type.with_shape(()))
    # Rows of size + 1, each with its element in front: read in rows of `size`, they lie on the diagonal.
    rows = b.pad(b.reshape(x, (size, 1)), zero, (0, 0), (0, size))
    square = b.reshape(b.slice(b.reshape(rows, (size * (size + 1),)), (0,), (size * size,)), (size, size))
    return wrap(b.pad(square, zero, (max(-offset, 0), max(offset, 0)), (max(offset, 0), max(-offset, 0))))


def diagflat(v: ArrayLike, k: int = 0) -> Tracer:
    """As np.diagflat."""
    return diag(ravel(v), k)


def _triangle(keep: str) -> Callable[..., Tracer]:
    def apply(m: ArrayLike, k: int = 0) -> Tracer:
        x, b, offset = value_of(m), here(), static_int(k, "k of np.tril and np.triu")
        if x.type.rank == 1:
            x = b.broadcast_in_dim(x, (x.type.shape[0], x.type.shape[0]), (1,))
        if x.type.rank == 0:
            fail("np.tril and np.triu take a matrix, got a scalar")
        matrix = TensorType(I64, x.type.shape[-2:])
        rows, columns = b.iota(matrix, 0), b.iota(matrix, 1)
        reach = b.add(rows, b.full(matrix, offset)) if offset else rows
        mask = b.compare(columns, reach, keep)
        return wrap(b.select(broadcast_value(b, mask, x.type.shape), x, b.zeros(x.type)))

    return apply


tril = _triangle("LE")
triu = _triangle("GE")


# -- copies ----------------------------------------------------------------------------------------------------------


def copy(a: ArrayLike, order: str = "K", subok: bool = False) -> Tracer:
    """As np.copy: arrays in a graph are values, so it is another tracer of the same one."""
    return array_of(value_of(a), is_dense=order == "C" or len([size for size in shape_of(a) if size != 1]) <= 1)


def astype(
    x: ArrayLike,
    dtype: object,
    /,
    order: str = "K",
    casting: str = "unsafe",
    subok: bool = True,
    copy: bool = True,
    *,
    device: object = None,
) -> Tracer:
    """As np.astype and x.astype: bool is whether an element is not zero; floats are cut towards zero."""
    value, b, target = value_of(x), here(), as_ir_dtype(dtype)
    if not np.can_cast(dtype_of(x), target.numpy, casting):  # type: ignore[arg-type]  # NumPy checks the word
        fail(f"astype does not cast {value.type} to {target.numpy} with casting={casting!r}; leave casting out")
    found = converted(b, value, target)
    return itself(x, found) if found is value and not copy else array_or_scalar_of(x, found)


def sliding_window_view(
    x: ArrayLike, window_shape: object, axis: object = None, *, subok: bool = False, writeable: bool = False
) -> Tracer:
    """As np.lib.stride_tricks.sliding_window_view: the windows' dimensions come last."""
    value = value_of(x)
    sizes = static_shape(window_shape, "np.lib.stride_tricks.sliding_window_view")
    axes = normalize_axes(axis, value.type.rank, "np.lib.stride_tricks.sliding_window_view")
    if len(sizes) != len(axes):
        fail(f"sliding_window_view has {len(sizes)} window sizes for {len(axes)} axes")
    step = ReadOnly("sliding_window_view", lambda whole: _windows(whole, sizes, axes))
    return view_of(x, step.read(value), step)


def _windows(value: Value, sizes: Sequence[int], axes: Sequence[int]) -> Value:
    b = here()
    for size, along in zip(sizes, axes, strict=True):
        count = value.type.shape[along] - size + 1
        if count < 1:
            fail(f"a window of {size} does not fit axis {along} of shape {value.type.shape}")
        shifted = [slice_along(value, along, start, start + count) for start in range(size)]
        columns = [b.reshape(part, (*part.type.shape, 1)) for part in shifted]
        value = b.concatenate(columns, value.type.rank)
    return value


FUNCTIONS: dict[Callable[..., object], Callable[..., object]] = {
    np.reshape: reshape,
    np.ravel: ravel,
    np.resize: resize,
    np.transpose: transpose,
    np.matrix_transpose: matrix_transpose,
    np.linalg.matrix_transpose: matrix_transpose,
    np.swapaxes: swapaxes,
    np.moveaxis: moveaxis,
    np.rollaxis: rollaxis,
    np.expand_dims: expand_dims,
    np.squeeze: squeeze,
    np.broadcast_to: broadcast_to,
    np.broadcast_arrays: broadcast_arrays,
    np.atleast_1d: atleast_1d,
    np.atleast_2d: atleast_2d,
    np.atleast_3d: atleast_3d,
    np.flip: flip,
    np.fliplr: fliplr,
    np.flipud: flipud,
    np.rot90: rot90,
    np.roll: roll,
    np.diagonal: diagonal,
    np.linalg.diagonal: lambda x, /, *, offset=0: diagonal(x, offset, -2, -1),
    np.trace: trace,
    np.linalg.trace: lambda x, /, *, offset=0, dtype=None: trace(x, offset, -2, -1, dtype),
    np.diag: diag,
    np.diagflat: diagflat,
    np.tril: tril,
    np.triu: triu,
    np.copy: copy,
    np.lib.stride_tricks.sliding_window_view: sliding_window_view,
}
# Newer names of NumPy 2.1.
if hasattr(np, "astype"):
    FUNCTIONS[np.astype] = astype
