"""Norms of vectors and matrices, and the condition number."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rematc.compiler.frontends.numpy.decompositions import singular_values
from rematc.compiler.frontends.numpy.elementwise import is_nan, truth
from rematc.compiler.frontends.numpy.matrices import matrix, square
from rematc.compiler.frontends.numpy.operands import ArrayLike, fail, here, normalize_axes, value_of, wrap
from rematc.compiler.frontends.numpy.reductions import reduce_value
from rematc.compiler.frontends.numpy.solving import inverse
from rematc.compiler.tracing.trace import Tracer
from rematc.ir.ops import reduction
from rematc.ir.ops.matrices import square_magnitude
from rematc.ir.types import F64
from rematc.ir.values import Value

#: The norms of matrices that come from singular values, and how they combine them.
_SPECTRAL = {2: reduction.ReduceMax, -2: reduction.ReduceMin, "nuc": reduction.ReduceSum}
_FROBENIUS = ("fro", "f")


def norm(x: ArrayLike, ord: object = None, axis: object = None, keepdims: object = False) -> Tracer:
    """As np.linalg.norm."""
    value = _floating(x)
    if axis is None and ord is None:
        return wrap(_euclidean(value, tuple(range(value.type.rank)), keepdims))
    axes = normalize_axes(axis, value.type.rank, "np.linalg.norm")
    match len(axes):
        case 1:
            return wrap(_vector_norm(value, 2 if ord is None else ord, axes, keepdims))
        case 2:
            return wrap(_matrix_norm(value, "fro" if ord is None else ord, axes, keepdims))
    fail(f"np.linalg.norm over {len(axes)} axes: a norm is of vectors (one axis) or matrices (two)")


def vector_norm(x: ArrayLike, /, *, axis: object = None, ord: object = 2, keepdims: object = False) -> Tracer:
    """As np.linalg.vector_norm."""
    value = _floating(x)
    return wrap(_vector_norm(value, ord, normalize_axes(axis, value.type.rank, "np.linalg.vector_norm"), keepdims))


def matrix_norm(x: ArrayLike, /, *, ord: object = "fro", keepdims: object = False) -> Tracer:
    """As np.linalg.matrix_norm."""
    value = _floating(x)
    if value.type.rank < 2:
        fail(f"np.linalg.matrix_norm takes 2 dimensions or more, got shape {value.type.shape}")
    return wrap(_matrix_norm(value, ord, (value.type.rank - 2, value.type.rank - 1), keepdims))


def _floating(x: ArrayLike) -> Value:
    value = value_of(x)
    return value if value.type.dtype.is_inexact else here().convert(value, F64)


def _euclidean(x: Value, axes: tuple[int, ...], keepdims: object) -> Value:
    b = here()
    return b.sqrt(reduce_value(reduction.ReduceSum, square_magnitude(b, x), axes, keepdims))


def _vector_norm(x: Value, order: object, axes: tuple[int, ...], keepdims: object) -> Value:
    b = here()
    if order == 2:
        return _euclidean(x, axes, keepdims)
    size = b.abs(x)
    if order == np.inf:
        return reduce_value(reduction.ReduceMax, size, axes, keepdims)
    if order == -np.inf:
        return reduce_value(reduction.ReduceMin, size, axes, keepdims)
    if order == 0:
        return reduce_value(reduction.ReduceSum, b.convert(truth(b, x), size.type.dtype), axes, keepdims)
    if order == 1:
        return reduce_value(reduction.ReduceSum, size, axes, keepdims)
    if not isinstance(order, (int, float)):
        fail(f"the order {order!r} of a vector norm is not supported; use a number, np.inf or -np.inf")
    powers = b.power(size, b.full(size.type, order))
    total = reduce_value(reduction.ReduceSum, powers, axes, keepdims)
    return b.power(total, b.full(total.type, 1 / order))


def _matrix_norm(x: Value, order: object, axes: tuple[int, ...], keepdims: object) -> Value:
    if order in _FROBENIUS:
        return _euclidean(x, axes, keepdims)
    if order in _SPECTRAL:
        found = _spectral_norm(x, order, axes)
    elif order in (1, -1, np.inf, -np.inf):
        found = _sum_norm(x, order, axes)
    else:
        fail(
            f"the order {order!r} of a matrix norm is not supported; use 'fro', 'nuc', 1, 2, np.inf or their negatives"
        )
    if not keepdims:
        return found
    return here().reshape(found, [1 if d in axes else size for d, size in enumerate(x.type.shape)])


def _sum_norm(x: Value, order: object, axes: tuple[int, ...]) -> Value:
    """The largest or smallest sum of magnitudes of a column, or of a row."""
    rows, columns = axes
    summed, chosen = (rows, columns) if order in (1, -1) else (columns, rows)
    sums = reduce_value(reduction.ReduceSum, here().abs(x), (summed,), True)
    make = reduction.ReduceMax if order in (1, np.inf) else reduction.ReduceMin
    found = reduce_value(make, sums, (chosen,), True)
    return here().reshape(found, [size for d, size in enumerate(x.type.shape) if d not in axes])


def _spectral_norm(x: Value, order: object, axes: tuple[int, ...]) -> Value:
    matrices = here().transpose(x, [*[d for d in range(x.type.rank) if d not in axes], *axes])
    s = singular_values(matrix("np.linalg.norm", wrap(matrices)))
    if s.type.shape[-1] == 0 and order == 2:
        return here().zeros(s.type.with_shape(s.type.shape[:-1]))
    return here().emit1(_SPECTRAL[order]((s.type.rank - 1,)), s)


def cond(x: ArrayLike, p: object = None) -> Tracer:
    """As np.linalg.cond: infinite where a matrix is singular, NaN where it has one."""
    b = here()
    value = matrix("np.linalg.cond", x)
    if value.type.size == 0:
        fail("np.linalg.cond is not defined on empty arrays")
    last = value.type.rank - 1
    if p is None or p in (2, -2):
        s = singular_values(value)
        ends = [b.reduce_max(s, (last - 1,)), b.reduce_min(s, (last - 1,))]
        found = b.divide(*(ends[::-1] if p == -2 else ends))
    else:
        value = square("np.linalg.cond", x)
        found = b.multiply(*[_matrix_norm(y, p, (last - 1, last), False) for y in (value, inverse(value))])
    was_nan = b.reduce_or(is_nan(b, value), (last - 1, last))
    is_lost = b.logical_and(is_nan(b, found), b.logical_not(was_nan))
    return wrap(b.select(is_lost, b.full(found.type, np.inf), found))


FUNCTIONS: dict[Callable[..., object], Callable[..., object]] = {
    np.linalg.norm: norm,
    np.linalg.vector_norm: vector_norm,
    np.linalg.matrix_norm: matrix_norm,
    np.linalg.cond: cond,
}
