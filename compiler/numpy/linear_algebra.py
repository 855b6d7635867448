"""Norms of vectors and matrices."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rematc.compiler.numpy.elementwise import truth
from rematc.compiler.numpy.operands import ArrayLike, fail, here, normalize_axes, value_of, wrap
from rematc.compiler.numpy.reductions import reduce_value
from rematc.compiler.trace import Tracer
from rematc.ir.core import Value
from rematc.ir.ops import reduction
from rematc.ir.types import F64


def norm(x: ArrayLike, ord: object = None, axis: object = None, keepdims: object = False) -> Tracer:
    """As np.linalg.norm, but for the norms that need singular values (2 and -2 of matrices, "nuc")."""
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
    if value.type.dtype.is_complex:
        fail("norms of complex arrays are not supported; use the real and imaginary parts")
    return value if value.type.dtype.is_float else here().convert(value, F64)


def _euclidean(x: Value, axes: tuple[int, ...], keepdims: object) -> Value:
    b = here()
    return b.sqrt(reduce_value(reduction.ReduceSum, b.multiply(x, x), axes, keepdims))


def _vector_norm(x: Value, order: object, axes: tuple[int, ...], keepdims: object) -> Value:
    b = here()
    if order == 2:
        return _euclidean(x, axes, keepdims)
    magnitude = b.abs(x)
    if order == np.inf:
        return reduce_value(reduction.ReduceMax, magnitude, axes, keepdims)
    if order == -np.inf:
        return reduce_value(reduction.ReduceMin, magnitude, axes, keepdims)
    if order == 0:
        return reduce_value(reduction.ReduceSum, b.convert(truth(b, x), x.type.dtype), axes, keepdims)
    if order == 1:
        return reduce_value(reduction.ReduceSum, magnitude, axes, keepdims)
    if not isinstance(order, (int, float)):
        fail(f"the order {order!r} of a vector norm is not supported; use a number, np.inf or -np.inf")
    powers = b.power(magnitude, b.full(x.type, order))
    total = reduce_value(reduction.ReduceSum, powers, axes, keepdims)
    return b.power(total, b.full(total.type, 1 / order))


def _matrix_norm(x: Value, order: object, axes: tuple[int, ...], keepdims: object) -> Value:
    if order == "fro":
        return _euclidean(x, axes, keepdims)
    if order not in (1, -1, np.inf, -np.inf):
        fail(
            f"the order {order!r} of a matrix norm needs singular values, which are not supported; use 'fro', 1 or inf"
        )
    rows, columns = axes
    summed, chosen = (rows, columns) if order in (1, -1) else (columns, rows)
    sums = reduce_value(reduction.ReduceSum, here().abs(x), (summed,), True)
    make = reduction.ReduceMax if order in (1, np.inf) else reduction.ReduceMin
    found = reduce_value(make, sums, (chosen,), True)
    if keepdims:
        return found
    return here().reshape(found, [size for d, size in enumerate(x.type.shape) if d not in axes])


FUNCTIONS: dict[Callable[..., object], Callable[..., object]] = {
    np.linalg.norm: norm,
    np.linalg.vector_norm: vector_norm,
    np.linalg.matrix_norm: matrix_norm,
}
