"""Means, variances, averages, and the reductions that leave NaNs out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rematc.compiler.frontends.numpy import reductions
from rematc.compiler.frontends.numpy.operands import (
    ArrayLike,
    as_ir_dtype,
    broadcast_operand,
    fail,
    here,
    normalize_axes,
    promote,
    shape_of,
    value_of,
    wrap,
)
from rematc.compiler.frontends.numpy.reductions import Axis, count, ones_counted, reduce_value, select_elements
from rematc.compiler.tracing.trace import Tracer
from rematc.ir.ops import reduction
from rematc.ir.ops.complex_parts import part_dtype
from rematc.ir.ops.matrices import real_part, square_magnitude
from rematc.ir.types import BOOL, F32, F64, DType
from rematc.ir.values import Value


def _working(x: Value, dtype: object) -> tuple[Value, DType]:
    """The operand in the dtype that NumPy computes means in, and the dtype of the result."""
    b = here()
    result = as_ir_dtype(dtype) if dtype is not None else x.type.dtype if x.type.dtype.is_inexact else F64
    # Floats of 16 bits and less are averaged in float32, as NumPy does for float16.
    working = F32 if result.is_float and result.bits <= 16 else result
    return b.convert(x, working), result


def mean_value(x: Value, axes: tuple[int, ...], keepdims: object, where: ArrayLike = True) -> Value:
    """The mean of an inexact value."""
    b = here()
    total = reduce_value(reduction.ReduceSum, select_elements(x, where, 0), axes, keepdims)
    if where is not True:
        return b.divide(total, ones_counted(where, x.type, axes, keepdims))
    return b.divide(total, b.full(total.type, count(x.type.shape, axes)))


def mean(
    a: ArrayLike, axis: Axis = None, dtype: object = None, keepdims: object = False, where: ArrayLike = True
) -> Tracer:
    """As np.mean."""
    x, result = _working(value_of(a), dtype)
    axes = normalize_axes(axis, x.type.rank, "np.mean")
    return wrap(here().convert(mean_value(x, axes, keepdims, where), result))


def _variance(
    x: Value, axes: tuple[int, ...], ddof: float, keepdims: object, *, where: ArrayLike, center: ArrayLike
) -> Value:
    b = here()
    # What the mask leaves out may be NaN, and NaN times nothing is NaN in the derivative.
    x = select_elements(x, where, 0)
    if where is True and center is None and ddof == 0 and count(x.type.shape, axes) == 1:
        # One element has no variance whatever it is. So its deviation needs no root, whose derivative is infinite at 0.
        return reduce_value(reduction.ReduceSum, real_part(b, b.subtract(x, x)), axes, keepdims)
    middle = (
        mean_value(x, axes, True, where)
        if center is None
        else broadcast_operand(center, x.type.dtype, tuple([1 if d in axes else n for d, n in enumerate(x.type.shape)]))
    )
    deviation = b.subtract(x, b.broadcast_in_dim(middle, x.type.shape, range(x.type.rank)))
    square = square_magnitude(b, deviation) if x.type.dtype.is_complex else b.multiply(deviation, deviation)
    total = reduce_value(reduction.ReduceSum, select_elements(square, where, 0), axes, keepdims)
    if where is not True:
        counted = ones_counted(where, square.type, axes, keepdims)
        return b.divide(total, b.subtract(counted, b.full(counted.type, ddof)))
    freedom = count(x.type.shape, axes) - ddof
    return b.divide(total, b.full(total.type, freedom if freedom > 0 else 0))


def var(  # NumPy's signature
    a: ArrayLike,
    axis: Axis = None,
    dtype: object = None,
    ddof: float = 0,
    keepdims: object = False,
    where: ArrayLike = True,
    mean: ArrayLike = None,
    correction: float | None = None,
) -> Tracer:
    """As np.var."""
    x, result = _working(value_of(a), dtype)
    axes = normalize_axes(axis, x.type.rank, "np.var")
    value = _variance(x, axes, ddof if correction is None else correction, keepdims, where=where, center=mean)
    return wrap(here().convert(value, part_dtype(result)))


def std(a: ArrayLike, axis: Axis = None, dtype: object = None, ddof: float = 0, **options: object) -> Tracer:
    """As np.std."""
    x, result = _working(value_of(a), dtype)
    result = part_dtype(result)
    squared = var(wrap(x), axis, None, ddof, **options).value  # type: ignore[arg-type]  # var's own options
    is_of_one = count(x.type.shape, normalize_axes(axis, x.type.rank, "np.std")) == 1
    if is_of_one and ddof == 0 and not options.keys() - {"keepdims"}:
        return wrap(here().convert(squared, result))
    return wrap(here().convert(here().sqrt(squared), result))


def average(
    a: ArrayLike, axis: Axis = None, weights: ArrayLike = None, returned: bool = False, *, keepdims: object = False
) -> Tracer | tuple[Tracer, Tracer]:
    """As np.average."""
    if weights is None:
        result = mean(a, axis, keepdims=keepdims)
        of = normalize_axes(axis, len(shape_of(a)), "np.average")
        number = count(shape_of(a), of)
        return (result, wrap(here().full(result.value.type, number))) if returned else result
    (x, w), _ = promote(a, weights)
    x, _ = _working(x, None)
    b, w = here(), here().convert(w, x.type.dtype)
    axes = normalize_axes(axis, x.type.rank, "np.average")
    if w.type.shape != x.type.shape:
        if w.type.shape != tuple([x.type.shape[axis] for axis in axes]):
            fail(
                f"np.average: weights of shape {w.type.shape} fit neither the array {x.type.shape} nor its axes {axes}"
            )
        w = b.broadcast_in_dim(w, x.type.shape, axes)
    total = reduce_value(reduction.ReduceSum, w, axes, keepdims)
    result = wrap(b.divide(reduce_value(reduction.ReduceSum, b.multiply(x, w), axes, keepdims), total))
    return (result, wrap(total)) if returned else result


def _is_number(a: ArrayLike) -> Tracer:
    x, b = value_of(a), here()
    return wrap(b.compare(x, x, "EQ"))


def _mask(where: ArrayLike, shape: tuple[int, ...]) -> Value:
    return broadcast_operand(where, BOOL, shape)


def _without_nan(function: Callable[..., Tracer]) -> Callable[..., Tracer]:
    """A reduction in which NaNs are masked out."""

    def apply(a: ArrayLike, axis: Axis = None, *, where: ArrayLike = True, **options: object) -> Tracer:
        is_number = _is_number(a)
        mask = is_number if where is True else wrap(here().logical_and(is_number.value, _mask(where, is_number.shape)))
        return function(a, axis=axis, where=mask, **options)

    return apply


def _nan_extremum(function: Callable[..., Tracer], neutral: float) -> Callable[..., Tracer]:
    def apply(
        a: ArrayLike, axis: Axis = None, keepdims: object = False, initial: ArrayLike = None, where: ArrayLike = True
    ) -> Tracer:
        b, x = here(), value_of(a)
        if not x.type.dtype.is_inexact:
            return function(a, axis=axis, keepdims=keepdims, initial=initial, where=where)
        is_number = _is_number(a)
        numbers = select_elements(x, is_number, neutral)
        found = function(wrap(select_elements(numbers, where, neutral)), axis=axis, keepdims=keepdims, initial=initial)
        if initial is not None:
            return found
        some = reductions.any(is_number, axis=axis, keepdims=keepdims, where=where).value
        return wrap(b.select(some, found.value, b.full(found.value.type, float("nan"))))

    return apply


def _nan_index(function: Callable[..., Tracer], neutral: float) -> Callable[..., Tracer]:
    """Of nanargmax and nanargmin: of a line of NaNs alone, for which NumPy raises, the index is 0."""

    def apply(a: ArrayLike, axis: Axis = None, *, keepdims: object = False) -> Tracer:
        x = value_of(a)
        if x.type.dtype.is_inexact:
            x = select_elements(x, _is_number(a), neutral)
        return function(wrap(x), axis=axis, keepdims=keepdims)

    return apply


FUNCTIONS: dict[Callable[..., object], Callable[..., object]] = {
    np.mean: mean,
    np.var: var,
    np.std: std,
    np.average: average,
    np.nansum: _without_nan(reductions.sum),
    np.nanprod: _without_nan(reductions.prod),
    np.nanmean: _without_nan(mean),
    np.nanvar: _without_nan(var),
    np.nanstd: _without_nan(std),
    np.nanmax: _nan_extremum(reductions.max, -np.inf),
    np.nanmin: _nan_extremum(reductions.min, np.inf),
    np.nanargmax: _nan_index(reductions.argmax, -np.inf),
    np.nanargmin: _nan_index(reductions.argmin, np.inf),
}
