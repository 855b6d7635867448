"""Cumulative sums, products and extrema, and differences."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from rematc.compiler.frontends.numpy.elementwise import truth
from rematc.compiler.frontends.numpy.operands import (
    ArrayLike,
    as_ir_dtype,
    converted,
    dispatching,
    fail,
    here,
    normalize_axis,
    promote,
    slice_along,
    static_int,
    value_of,
    wrap,
)
from rematc.compiler.frontends.numpy.promotion import ir_dtype, resolve
from rematc.compiler.frontends.numpy.reductions import accumulator
from rematc.compiler.tracing.trace import Tracer
from rematc.ir.builder import Builder
from rematc.ir.core import Op
from rematc.ir.ops.cumulative import (
    CumulativeLogsumexp,
    CumulativeMax,
    CumulativeMin,
    CumulativeProduct,
    CumulativeSum,
)
from rematc.ir.types import DType
from rematc.ir.values import Value

CumulativeOp = Callable[[int], Op]


def _run_along(what: str, make: CumulativeOp, x: Value, axis: object) -> Value:
    """The op along an axis; None is all elements in one line."""
    b = here()
    line = b.reshape(x, (x.type.size,)) if axis is None else x
    return b.emit1(make(0 if axis is None else normalize_axis(axis, x.type.rank, what)), line)


def _accumulation(what: str, make: CumulativeOp, of_booleans: CumulativeOp) -> Callable[..., Tracer]:
    """Sums and products, in 64 bits for integers; of booleans they are logic."""

    def apply(a: ArrayLike, axis: object = None, dtype: object = None) -> Tracer:
        x = value_of(a)
        x = converted(here(), x, accumulator(x.type.dtype) if dtype is None else as_ir_dtype(dtype))
        return wrap(_run_along(what, of_booleans if x.type.dtype.is_bool else make, x, axis))

    return apply


def _extremum(what: str, make: CumulativeOp, prepare: Callable[[Builder, Value], Value]) -> Callable[..., Tracer]:
    def apply(a: ArrayLike, axis: object = None, dtype: object = None) -> Tracer:
        x, b = prepare(here(), value_of(a)), here()
        return wrap(_run_along(what, make, x if dtype is None else b.convert(x, as_ir_dtype(dtype)), axis))

    return apply


def _as_it_is(b: Builder, x: Value) -> Value:
    return x


def _log_sum(ufunc: np.ufunc, scale: float) -> Callable[..., Tracer]:
    """Running log-sums of e^(scale x), divided by the scale."""

    def apply(a: ArrayLike, axis: object = None, dtype: object = None) -> Tracer:
        x, b = value_of(a), here()
        kind = x.type.dtype.numpy
        found: DType = ir_dtype(resolve(ufunc, (kind, kind))[1][0]) if dtype is None else as_ir_dtype(dtype)
        lines = b.scale(b.convert(x, found), scale)
        return wrap(b.scale(_run_along(f"np.{ufunc.__name__}.accumulate", CumulativeLogsumexp, lines, axis), 1 / scale))

    return apply


cumsum = _accumulation("np.cumsum", CumulativeSum, CumulativeMax)
cumprod = _accumulation("np.cumprod", CumulativeProduct, CumulativeMin)
#: By the name of the ufunc.
ACCUMULATIONS = {
    "add": cumsum,
    "multiply": cumprod,
    "maximum": _extremum("np.maximum.accumulate", CumulativeMax, _as_it_is),
    "minimum": _extremum("np.minimum.accumulate", CumulativeMin, _as_it_is),
    "logical_or": _extremum("np.logical_or.accumulate", CumulativeMax, truth),
    "logical_and": _extremum("np.logical_and.accumulate", CumulativeMin, truth),
    "logaddexp": _log_sum(np.logaddexp, 1),
    "logaddexp2": _log_sum(np.logaddexp2, math.log(2)),
}


def _cumulative(function: Callable[..., Tracer], start: int) -> Callable[..., Tracer]:
    """Of the array API's names: they take no default axis for several dimensions, and may include the start."""

    def apply(x: ArrayLike, /, *, axis: object = None, dtype: object = None, include_initial: bool = False) -> Tracer:
        value = value_of(x)
        if not value.type.rank:
            value = here().reshape(value, (1,))
            x = wrap(value)
        if axis is None and value.type.rank > 1:
            fail(f"the array has shape {value.type.shape}: name the axis to accumulate over")
        along = 0 if axis is None else normalize_axis(axis, value.type.rank, "a cumulative function")
        result, b = function(x, axis=along, dtype=dtype).value, here()
        if not include_initial:
            return wrap(result)
        low = [1 if d == along else 0 for d in range(result.type.rank)]
        return wrap(b.pad(result, b.full(result.type.with_shape(()), start), low, [0] * result.type.rank))

    return apply


def _without_nan(function: Callable[..., Tracer], neutral: float) -> Callable[..., Tracer]:
    """A running combination in which NaNs count as the neutral element."""

    def apply(a: ArrayLike, axis: object = None, dtype: object = None) -> Tracer:
        x, b = value_of(a), here()
        kept = b.select(b.compare(x, x, "EQ"), x, b.full(x.type, neutral))
        return function(wrap(kept), axis=axis, dtype=dtype)

    return apply


def diff(a: ArrayLike, n: int = 1, axis: object = -1, prepend: ArrayLike = None, append: ArrayLike = None) -> Tracer:
    """As np.diff."""
    b, x = here(), value_of(a)
    along = normalize_axis(axis, x.type.rank, "np.diff")
    ends = [end for end in (prepend, a, append) if end is not None]
    if len(ends) > 1:
        values, dtype = promote(*ends)
        line = [1 if d == along else size for d, size in enumerate(x.type.shape)]
        whole = [b.broadcast_in_dim(v, line, ()) if v.type.rank == 0 else v for v in values]
        x = b.convert(b.concatenate(whole, along), dtype)
    for _ in range(static_int(n, "n of np.diff")):
        size = x.type.shape[along]
        x = _difference(b, slice_along(x, along, min(1, size), size), slice_along(x, along, 0, max(size - 1, 0)))
    return wrap(x)


def _difference(b: Builder, later: Value, earlier: Value) -> Value:
    return b.compare(later, earlier, "NE") if later.type.dtype.is_bool else b.subtract(later, earlier)


def ediff1d(ary: ArrayLike, to_end: ArrayLike = None, to_begin: ArrayLike = None) -> Tracer:
    """As np.ediff1d."""
    flat = here().reshape(value_of(ary), (value_of(ary).type.size,))
    steps = diff(wrap(flat)).value
    ends = [None if end is None else value_of(end, steps.type.dtype) for end in (to_begin, to_end)]
    lines = [None if end is None else here().reshape(end, (end.type.size,)) for end in ends]
    return wrap(here().concatenate([part for part in (lines[0], steps, lines[1]) if part is not None], 0))


def trapezoid(y: ArrayLike, x: ArrayLike = None, dx: ArrayLike = 1.0, axis: object = -1) -> Tracer:
    """As np.trapezoid."""
    heights = value_of(y)
    along = normalize_axis(axis, heights.type.rank, "np.trapezoid")
    size = heights.type.shape[along]
    widths: ArrayLike = dx
    if x is not None:
        places = wrap(value_of(x))
        line = [-1 if d == along else 1 for d in range(heights.type.rank)]
        widths = dispatching.reshape(diff(places), line) if places.ndim == 1 else diff(places, axis=along)
    sides = [
        wrap(slice_along(heights, along, first, last)) for first, last in ((min(1, size), size), (0, max(size - 1, 0)))
    ]
    strips = dispatching.multiply(widths, dispatching.add(*sides))
    return dispatching.sum(dispatching.divide(strips, 2.0), axis=along)  # type: ignore[no-any-return]  # a tracer


FUNCTIONS: dict[Callable[..., object], Callable[..., object]] = {
    np.cumsum: cumsum,
    np.cumprod: cumprod,
    np.nancumsum: _without_nan(cumsum, 0),
    np.nancumprod: _without_nan(cumprod, 1),
    np.diff: diff,
    np.ediff1d: ediff1d,
    np.trapezoid: trapezoid,
}
# Newer names of NumPy 2.1.
if hasattr(np, "cumulative_sum"):
    FUNCTIONS[np.cumulative_sum] = _cumulative(cumsum, 0)
    FUNCTIONS[np.cumulative_prod] = _cumulative(cumprod, 1)
