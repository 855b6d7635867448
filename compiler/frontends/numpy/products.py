"""Products of arrays: dot, matmul, tensordot and their kin, on `dot_general`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rematc.compiler.frontends.numpy.operands import (
    ArrayLike,
    broadcast_shape,
    broadcast_value,
    fail,
    here,
    normalize_axes,
    normalize_axis,
    promote,
    promote_arrays,
    wrap,
)
from rematc.compiler.tracing.trace import Tracer
from rematc.ir.ops.matrices import conjugate
from rematc.ir.types import BOOL, I64
from rematc.ir.values import Value

Dims = Sequence[int]


def contract_values(x: Value, y: Value, contract: tuple[Dims, Dims], batch: tuple[Dims, Dims] = ((), ())) -> Value:
    """`dot_general`; on booleans, whether any pair of elements is true, as NumPy has it."""
    b = here()
    if x.type.dtype.is_bool:
        counted = b.dot_general(b.convert(x, I64), b.convert(y, I64), contract, batch)
        return b.convert(counted, BOOL)
    return b.dot_general(x, y, contract, batch)


def _check_sizes(what: str, x: Value, y: Value, dx: int, dy: int) -> None:
    if x.type.shape[dx] != y.type.shape[dy]:
        fail(
            f"{what} of shapes {x.type.shape} and {y.type.shape}: dimension {dx} of the first has size "
            f"{x.type.shape[dx]}, dimension {dy} of the second {y.type.shape[dy]}; they must be equal"
        )


def matmul(x1: ArrayLike, x2: ArrayLike) -> Tracer:
    """As np.matmul: the matrices in the last two dimensions multiplied, those in front broadcast."""
    (x, y), _ = promote(x1, x2)
    if x.type.rank == 0 or y.type.rank == 0:
        fail("np.matmul takes no scalars; multiply with * instead")
    return wrap(matmul_values(x, y, "np.matmul"))


def matmul_values(x: Value, y: Value, what: str) -> Value:
    """`matmul` of values of one dtype and of at least one dimension."""
    dx, dy = x.type.rank - 1, max(y.type.rank - 2, 0)
    _check_sizes(what, x, y, dx, dy)
    if x.type.rank <= 2 and y.type.rank <= 2:
        return contract_values(x, y, ((dx,), (dy,)))
    if y.type.rank <= 2:
        # The right operand is one matrix: the batch of the left one is rows.
        return contract_values(x, y, ((dx,), (dy,)))
    if x.type.rank == 1:
        return contract_values(x, y, ((0,), (dy,)))
    if x.type.rank == 2:
        rows_first = contract_values(x, y, ((1,), (dy,)))
        order = [*range(1, rows_first.type.rank - 1), 0, rows_first.type.rank - 1]
        return here().transpose(rows_first, order)
    return _batched_matmul(x, y, what)


def _batched_matmul(x: Value, y: Value, what: str) -> Value:
    b = here()
    outer = broadcast_shape(f"{what} (the dimensions before the last two)", (x.type.shape[:-2], y.type.shape[:-2]))
    x = broadcast_value(b, x, (*outer, *x.type.shape[-2:]))
    y = broadcast_value(b, y, (*outer, *y.type.shape[-2:]))
    batch = range(len(outer))
    return contract_values(x, y, ((x.type.rank - 1,), (y.type.rank - 2,)), (batch, batch))


def dot(a: ArrayLike, b: ArrayLike) -> Tracer:
    """As np.dot: the last dimension of `a` with the last but one of `b`; a scalar multiplies."""
    x, y = promote_arrays(a, b)
    if x.type.rank == 0 or y.type.rank == 0:
        shape = x.type.shape or y.type.shape
        return wrap(here().multiply(broadcast_value(here(), x, shape), broadcast_value(here(), y, shape)))
    dx, dy = x.type.rank - 1, max(y.type.rank - 2, 0)
    _check_sizes("np.dot", x, y, dx, dy)
    return wrap(contract_values(x, y, ((dx,), (dy,))))


def vdot(a: ArrayLike, b: ArrayLike) -> Tracer:
    """As np.vdot: the sum of products of all elements, the first conjugated."""
    x, y = promote_arrays(a, b)
    flat = [here().reshape(value, (value.type.size,)) for value in (conjugate(here(), x), y)]
    _check_sizes("np.vdot", flat[0], flat[1], 0, 0)
    return wrap(contract_values(flat[0], flat[1], ((0,), (0,))))


def inner(a: ArrayLike, b: ArrayLike) -> Tracer:
    """As np.inner: the last dimensions of both."""
    x, y = promote_arrays(a, b)
    if x.type.rank == 0 or y.type.rank == 0:
        return dot(a, b)
    _check_sizes("np.inner", x, y, x.type.rank - 1, y.type.rank - 1)
    return wrap(contract_values(x, y, ((x.type.rank - 1,), (y.type.rank - 1,))))


def outer(a: ArrayLike, b: ArrayLike) -> Tracer:
    """As np.outer: the products of all pairs."""
    x, y = promote_arrays(a, b)
    build, shape = here(), (x.type.size, y.type.size)
    column = build.broadcast_in_dim(build.reshape(x, (x.type.size,)), shape, (0,))
    row = build.broadcast_in_dim(build.reshape(y, (y.type.size,)), shape, (1,))
    return wrap(build.multiply(column, row))


def tensordot(a: ArrayLike, b: ArrayLike, axes: object = 2) -> Tracer:
    """As np.tensordot."""
    x, y = promote_arrays(a, b)
    if isinstance(axes, (int, np.integer)):
        count = int(axes)
        if not 0 <= count <= min(x.type.rank, y.type.rank):
            fail(f"np.tensordot over {count} axes of arrays of shapes {x.type.shape} and {y.type.shape}")
        pair = (tuple(range(x.type.rank - count, x.type.rank)), tuple(range(count)))
    else:
        if not isinstance(axes, (tuple, list)) or len(axes) != 2:
            fail(f"np.tensordot takes a number of axes or a pair of lists of axes, got {axes!r}")
        pair = (
            normalize_axes(axes[0], x.type.rank, "np.tensordot"),
            normalize_axes(axes[1], y.type.rank, "np.tensordot"),
        )
    if len(pair[0]) != len(pair[1]):
        fail(f"np.tensordot sums over {len(pair[0])} axes of the first array and {len(pair[1])} of the second")
    for dx, dy in zip(*pair, strict=True):
        _check_sizes("np.tensordot", x, y, dx, dy)
    return wrap(contract_values(x, y, pair))


def vecdot(x1: ArrayLike, x2: ArrayLike, axis: int = -1) -> Tracer:
    """As np.vecdot: the inner products of vectors along `axis`, the first conjugated, the others broadcast."""
    x, y = promote_arrays(x1, x2)
    b = here()
    x, y = [_axis_last(value, axis) for value in (conjugate(b, x), y)]
    _check_sizes("np.vecdot", x, y, x.type.rank - 1, y.type.rank - 1)
    shape = broadcast_shape("np.vecdot", (x.type.shape, y.type.shape))
    x, y = broadcast_value(b, x, shape), broadcast_value(b, y, shape)
    batch, last = range(len(shape) - 1), (len(shape) - 1,)
    return wrap(contract_values(x, y, (last, last), (batch, batch)))


def _axis_last(x: Value, axis: int) -> Value:
    along = normalize_axis(axis, x.type.rank, "np.vecdot")
    return here().transpose(x, [*[d for d in range(x.type.rank) if d != along], along])


def matvec(x1: ArrayLike, x2: ArrayLike) -> Tracer:
    """As np.matvec: matrices times vectors."""
    x, y = promote_arrays(x1, x2)
    column = here().reshape(y, (*y.type.shape, 1))
    result = matmul_values(x, column, "np.matvec")
    return wrap(here().reshape(result, result.type.shape[:-1]))


def vecmat(x1: ArrayLike, x2: ArrayLike) -> Tracer:
    """As np.vecmat: vectors, conjugated, times matrices."""
    x, y = promote_arrays(x1, x2)
    row = here().reshape(conjugate(here(), x), (*x.type.shape[:-1], 1, x.type.shape[-1]))
    result = matmul_values(row, y, "np.vecmat")
    return wrap(here().reshape(result, (*result.type.shape[:-2], result.type.shape[-1])))


def kron(a: ArrayLike, b: ArrayLike) -> Tracer:
    """As np.kron."""
    x, y = promote_arrays(a, b)
    build, rank = here(), max(x.type.rank, y.type.rank)
    sx = (1,) * (rank - x.type.rank) + x.type.shape
    sy = (1,) * (rank - y.type.rank) + y.type.shape
    pairs = tuple([size for pair in zip(sx, sy, strict=True) for size in pair])
    left = build.broadcast_in_dim(build.reshape(x, sx), pairs, range(0, 2 * rank, 2))
    right = build.broadcast_in_dim(build.reshape(y, sy), pairs, range(1, 2 * rank, 2))
    sizes = [m * n for m, n in zip(sx, sy, strict=True)]
    return wrap(build.reshape(build.multiply(left, right), sizes))


def cross(  # NumPy's signature
    a: ArrayLike, b: ArrayLike, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Tracer:
    """As np.cross, for vectors of three components."""
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = promote_arrays(a, b)
    x, y = _axis_last(x, axisa), _axis_last(y, axisb)
    if x.type.shape[-1] != 3 or y.type.shape[-1] != 3:
        fail(f"np.cross takes vectors of 3 components, got {x.type.shape[-1]} and {y.type.shape[-1]}")
    build = here()
    shape = broadcast_shape("np.cross", (x.type.shape, y.type.shape))
    x, y = broadcast_value(build, x, shape), broadcast_value(build, y, shape)
    x1, x2, y1, y2 = _turned(x, 1), _turned(x, 2), _turned(y, 1), _turned(y, 2)
    product = build.subtract(build.multiply(x1, y2), build.multiply(x2, y1))
    target = normalize_axis(axisc, len(shape), "np.cross")
    order = list(range(len(shape) - 1))
    order.insert(target, len(shape) - 1)
    return wrap(build.transpose(product, order))


def _turned(x: Value, steps: int) -> Value:
    """The last dimension rotated to the left."""
    b, none, shape = here(), [0] * (x.type.rank - 1), x.type.shape
    head = b.slice(x, [*none, 0], [*shape[:-1], steps])
    tail = b.slice(x, [*none, steps], shape)
    return b.concatenate([tail, head], x.type.rank - 1)


FUNCTIONS: dict[Callable[..., object], Callable[..., object]] = {
    np.dot: dot,
    np.vdot: vdot,
    np.inner: inner,
    np.outer: outer,
    np.tensordot: tensordot,
    np.kron: kron,
    np.cross: cross,
    np.linalg.matmul: matmul,
    np.linalg.tensordot: tensordot,
    np.linalg.outer: outer,
    np.linalg.cross: cross,
    np.linalg.vecdot: vecdot,
}
