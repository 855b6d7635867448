"""Medians, quantiles and percentiles, with and without NaNs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rematc.compiler.frontends.numpy.elementwise import is_nan
from rematc.compiler.frontends.numpy.indexing import getitem
from rematc.compiler.frontends.numpy.operands import ArrayLike, fail, here, is_traced, normalize_axes, value_of, wrap
from rematc.compiler.frontends.numpy.promotion import ir_dtype
from rematc.compiler.frontends.numpy.reductions import Axis
from rematc.compiler.frontends.numpy.sorting import sorted_along
from rematc.compiler.tracing.trace import Tracer
from rematc.ir.ops import rounding
from rematc.ir.ops.sorting import take_along
from rematc.ir.types import F32, F64, I64, DType, TensorType
from rematc.ir.values import Value

#: The alpha and beta of each method in the article of Hyndman and Fan (1996), which NumPy follows.
_CONTINUOUS = {
    "linear": (1.0, 1.0),
    "interpolated_inverted_cdf": (0.0, 1.0),
    "hazen": (0.5, 0.5),
    "weibull": (0.0, 0.0),
    "median_unbiased": (1 / 3, 1 / 3),
    "normal_unbiased": (3 / 8, 3 / 8),
}
_STEPS = ("lower", "higher", "midpoint", "nearest", "inverted_cdf", "averaged_inverted_cdf")
#: The methods for which a line without NaNs may have any length.
_OF_ANY_LENGTH = ("linear", "lower", "higher", "midpoint", "nearest")


def _lines(a: ArrayLike, axis: Axis, what: str) -> tuple[Value, tuple[int, ...]]:
    """The sorted elements along the axes, in the last dimension; the shape of the result with the axes kept."""
    x, b = value_of(a), here()
    if what != "np.median" and (x.type.dtype.is_complex or x.type.dtype.is_bool):
        fail(f"{what} takes real numbers, got {x.type}")
    axes = normalize_axes(axis, x.type.rank, what)
    rest = [d for d in range(x.type.rank) if d not in axes]
    kept = [x.type.shape[d] for d in rest]
    moved = b.reshape(b.transpose(x, (*rest, *axes)), (*kept, int(np.prod([x.type.shape[d] for d in axes]))))
    shape = tuple([1 if d in axes else size for d, size in enumerate(x.type.shape)])
    return sorted_along(moved, moved.type.rank - 1), shape


def _with_nan(lines: Value, result: Value, lead: int) -> Value:
    """The result, but NaN where the line has one: then the last element is NaN. `lead`: dimensions in front."""
    b, rank = here(), lines.type.rank
    if not lines.type.dtype.is_inexact or not lines.type.shape[-1]:
        return result
    start = [0] * (rank - 1) + [lines.type.shape[-1] - 1]
    last = b.reshape(b.slice(lines, start, lines.type.shape), lines.type.shape[:-1])
    mask = b.broadcast_in_dim(is_nan(b, last), result.type.shape, range(lead, result.type.rank))
    return b.select(mask, b.full(result.type, np.nan), result)


def _middle_dtype(x: DType) -> DType:
    return x if x.is_inexact else F64


def median(a: ArrayLike, axis: Axis = None, overwrite_input: bool = False, keepdims: object = False) -> Tracer:
    """As np.median: the mean of the two middle elements, which may be one."""
    lines, shape = _lines(a, axis, "np.median")
    b, n = here(), lines.type.shape[-1]
    if not n:
        fail("np.median over no elements; it has no value")
    below, above = [getitem(wrap(lines), (..., place)).value for place in ((n - 1) // 2, n // 2)]
    dtype = _middle_dtype(lines.type.dtype)
    result = _with_nan(lines, _mean(b.convert(below, dtype), b.convert(above, dtype)), 0)
    return wrap(b.reshape(result, shape) if keepdims else result)


def _mean(x: Value, y: Value) -> Value:
    """(x + y) / 2, in float32 at least."""
    b, dtype = here(), x.type.dtype
    wide = F32 if dtype.is_float and dtype.bits < F32.bits else dtype
    return b.convert(b.scale(b.add(b.convert(x, wide), b.convert(y, wide)), 0.5), dtype)


# -- quantiles ---------------------------------------------------------------------------------------------------------


def _virtual(method: str, n: int, q: Any) -> tuple[Any, Any, Any]:
    """Places of the two elements around each quantile of n, and the weight of the second."""
    if method in _CONTINUOUS:
        alpha, beta = _CONTINUOUS[method]
        place = (n - 1) * q if method == "linear" else n * q + (alpha + q * (1 - alpha - beta)) - 1
        low = np.floor(place)
        weight = place - low
    elif method in ("inverted_cdf", "averaged_inverted_cdf"):
        place = n * q - 1
        low = np.floor(place)
        at_tie = 0.0 if method == "inverted_cdf" else 0.5
        weight = np.where(place == low, at_tie, 1.0)
    else:
        place = (n - 1) * q
        low = np.floor(place)
        fraction = place - low
        weight = _step_weight(method, low, fraction)
    is_above, is_below = place >= n - 1, place < 0
    low = np.where(is_above, n - 1, np.where(is_below, 0, low))
    high = np.where(is_above, n - 1, np.where(is_below, 0, low + 1))
    return low.astype(np.int64), np.minimum(high, n - 1).astype(np.int64), weight


def _step_weight(method: str, low: Any, fraction: Any) -> Any:
    match method:
        case "lower":
            return np.zeros_like(fraction)
        case "higher":
            return np.where(fraction == 0, 0.0, 1.0)
        case "midpoint":
            return np.where(fraction == 0, 0.0, 0.5)
    return np.where((fraction > 0.5) | ((fraction == 0.5) & (low % 2 == 1)), 1.0, 0.0)


def _known_quantiles(q: ArrayLike, scale: float, what: str) -> tuple[Any, bool]:
    """The quantiles, and whether they are one Python number."""
    if is_traced(q):
        fail(f"{what} takes quantiles that are known while tracing; pass them as Python numbers or a NumPy array")
    found = np.asarray(q) if scale == 1 else np.true_divide(np.asarray(q), scale)
    if found.size and not (found.min() >= 0 and found.max() <= 1):
        fail(f"{what}: quantiles must lie between 0 and {scale:g}")
    return found, type(q) in (int, float)


def _check_method(method: str, known: tuple[str, ...], what: str) -> None:
    if method not in known:
        fail(f"{what} has the methods {', '.join(known)} on traced arrays, got {method!r}")


def _interpolated(low: Value, high: Value, weight: Value) -> Value:
    """low + weight (high - low), in the weight's type and from the nearer end, as NumPy rounds it."""
    b, dtype = here(), weight.type.dtype
    step = b.convert(b.subtract(high, low), dtype)
    low, high = b.convert(low, dtype), b.convert(high, dtype)
    near_low = b.add(low, b.multiply(step, weight))
    near_high = b.subtract(high, b.multiply(step, b.subtract(b.full(weight.type, 1), weight)))
    inside = b.select(b.compare(weight, b.full(weight.type, 0.5), "GE"), near_high, near_low)
    # At an element itself, which may be infinite, there is nothing to interpolate.
    return b.select(b.compare(weight, b.zeros(weight.type), "EQ"), low, inside)


def _quantile(what: str, scale: float) -> Callable[..., Tracer]:
    def apply(  # NumPy's signature
        a: ArrayLike,
        q: ArrayLike,
        axis: Axis = None,
        overwrite_input: bool = False,
        method: str = "linear",
        keepdims: object = False,
    ) -> Tracer:
        _check_method(method, (*_CONTINUOUS, *_STEPS), what)
        quantiles, is_weak = _known_quantiles(q, scale, what)
        lines, shape = _lines(a, axis, what)
        b, n = here(), lines.type.shape[-1]
        if not n:
            fail(f"{what} over no elements; it has no value")
        low, high, weight = _virtual(method, n, quantiles)
        is_element = method == "linear" and quantiles.dtype.kind in "iu"
        dtype = _result_dtype(lines.type.dtype, "lower" if is_element else method, is_weak)
        ends = [_in_front(getitem(wrap(lines), (..., place)).value, low.ndim) for place in (low, high)]
        weights = b.convert(b.constant(np.asarray(weight, np.float64)), dtype)
        shares = b.broadcast_in_dim(weights, ends[0].type.shape, range(low.ndim))
        result = _with_nan(lines, _interpolated(ends[0], ends[1], shares), low.ndim)
        return wrap(b.reshape(result, (*low.shape, *shape)) if keepdims else result)

    return apply


def _in_front(x: Value, count: int) -> Value:
    """The last `count` dimensions made the first."""
    rank = x.type.rank
    return here().transpose(x, (*range(rank - count, rank), *range(rank - count)))


def _result_dtype(x: DType, method: str, is_weak: bool) -> DType:
    """Elements themselves keep their type; what lies between them is of the type of element and quantile together."""
    if method in ("lower", "higher", "nearest", "inverted_cdf"):
        return x
    if x.is_float and is_weak:
        return x
    return ir_dtype(np.result_type(x.numpy, np.float64))


def _nan_quantile(what: str, scale: float) -> Callable[..., Tracer]:
    """Of each line's elements that are no NaN, which are sorted to the front."""

    def apply(  # NumPy's signature
        a: ArrayLike,
        q: ArrayLike,
        axis: Axis = None,
        overwrite_input: bool = False,
        method: str = "linear",
        keepdims: object = False,
    ) -> Tracer:
        if not value_of(a).type.dtype.is_float:
            return _quantile(what, scale)(a, q, axis, method=method, keepdims=keepdims)
        _check_method(method, _OF_ANY_LENGTH, what)
        quantiles, is_weak = _known_quantiles(q, scale, what)
        lines, shape = _lines(a, axis, what)
        result = _of_numbers(lines, quantiles, method, _result_dtype(lines.type.dtype, "linear", is_weak))
        b = here()
        front = _in_front(result, quantiles.ndim)
        return wrap(b.reshape(front, (*quantiles.shape, *shape)) if keepdims else front)

    return apply


def _of_numbers(lines: Value, quantiles: Any, method: str, dtype: DType) -> Value:
    """[*lines, *quantiles]: quantiles of the numbers at the front of each sorted line; NaN where there are none."""
    b, kept = here(), lines.type.shape[:-1]
    if not lines.type.shape[-1]:
        return b.full(TensorType(dtype, (*kept, *quantiles.shape)), np.nan)
    numbers = b.reduce_sum(b.convert(b.logical_not(is_nan(b, lines)), I64), (len(kept),))
    shape = (*kept, quantiles.size)
    count = b.broadcast_in_dim(numbers, shape, range(len(kept)))
    last = b.subtract(count, b.full(count.type, 1))
    shares = b.broadcast_in_dim(b.constant(quantiles.reshape(-1).astype(np.float64)), shape, (len(kept),))
    place = b.multiply(b.convert(last, F64), shares)
    low = b.emit1(rounding.Floor(), place)
    weight = _traced_weight(method, low, b.subtract(place, low))
    first = b.maximum(b.convert(low, I64), b.zeros(last.type))
    second = b.maximum(b.minimum(b.add(first, b.full(last.type, 1)), last), b.zeros(last.type))
    ends = [take_along(b, lines, index, len(kept)) for index in (first, second)]
    found = _interpolated(ends[0], ends[1], b.convert(weight, dtype))
    return b.reshape(found, (*kept, *quantiles.shape))


def _traced_weight(method: str, low: Value, fraction: Value) -> Value:
    """As `_step_weight`."""
    b = here()
    zero, one, half = [b.full(fraction.type, number) for number in (0, 1, 0.5)]
    is_exact = b.compare(fraction, zero, "EQ")
    match method:
        case "linear":
            return fraction
        case "lower":
            return zero
        case "higher":
            return b.select(is_exact, zero, one)
        case "midpoint":
            return b.select(is_exact, zero, half)
    is_odd = b.compare(b.emit1(rounding.Remainder(), low, b.full(low.type, 2)), one, "EQ")
    at_tie = b.logical_and(b.compare(fraction, half, "EQ"), is_odd)
    return b.select(b.logical_or(b.compare(fraction, half, "GT"), at_tie), one, zero)


def nanmedian(a: ArrayLike, axis: Axis = None, overwrite_input: bool = False, keepdims: object = False) -> Tracer:
    """As np.nanmedian."""
    if not value_of(a).type.dtype.is_inexact:
        return median(a, axis, keepdims=keepdims)
    lines, shape = _lines(a, axis, "np.nanmedian")
    b = here()
    parts = [_of_numbers(lines, np.asarray(0.5), method, lines.type.dtype) for method in ("lower", "higher")]
    result = _mean(*parts)
    return wrap(b.reshape(result, shape) if keepdims else result)


FUNCTIONS: dict[Callable[..., object], Callable[..., object]] = {
    np.median: median,
    np.quantile: _quantile("np.quantile", 1),
    np.percentile: _quantile("np.percentile", 100),
    np.nanmedian: nanmedian,
    np.nanquantile: _nan_quantile("np.nanquantile", 1),
    np.nanpercentile: _nan_quantile("np.nanpercentile", 100),
}
