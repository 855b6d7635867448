"""Cumulative sums, products and extrema, and differences.

A running combination is computed by doubling: after step k each element combines the 2^k elements up to it. That is
log2(n) shifts and additions, all of which XLA fuses and every derivative passes through.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rematc.compiler.numpy.operands import (
    ArrayLike,
    as_ir_dtype,
    fail,
    here,
    normalize_axis,
    promote,
    slice_along,
    static_int,
    value_of,
    wrap,
)
from rematc.compiler.numpy.reductions import accumulator
from rematc.compiler.trace import Tracer
from rematc.ir.builder import Builder
from rematc.ir.core import Value
from rematc.ir.ops import reduction
from rematc.ir.types import DType

Combine = Callable[[Builder, Value, Value], Value]


def _accumulate(x: Value, axis: int, combine: Combine, neutral: complex) -> Value:
    b, size = here(), x.type.shape[axis]
    fill = b.full(x.type.with_shape(()), neutral)
    step = 1
    while step < size:
        low = [step if d == axis else 0 for d in range(x.type.rank)]
        high = [-step if d == axis else 0 for d in range(x.type.rank)]
        x = combine(b, x, b.pad(x, fill, low, high))
        step *= 2
    return x


def _accumulation(
    what: str, combine: Combine, neutral: Callable[[DType], complex], widen: Callable[[DType], DType]
) -> Callable[..., Tracer]:
    def apply(a: ArrayLike, axis: object = None, dtype: object = None) -> Tracer:
        x, b = value_of(a), here()
        x = b.convert(x, widen(x.type.dtype) if dtype is None else as_ir_dtype(dtype))
        if axis is None:
            x = b.reshape(x, (x.type.size,))
        along = 0 if axis is None else normalize_axis(axis, x.type.rank, what)
        return wrap(_accumulate(x, along, combine, neutral(x.type.dtype)))

    return apply


def _same(dtype: DType) -> DType:
    return dtype


cumsum = _accumulation("np.cumsum", Builder.add, lambda _: 0, accumulator)
cumprod = _accumulation("np.cumprod", Builder.multiply, lambda _: 1, accumulator)
_cummax = _accumulation("np.maximum.accumulate", Builder.maximum, reduction.lowest, _same)
_cummin = _accumulation("np.minimum.accumulate", Builder.minimum, reduction.highest, _same)
#: By the name of the ufunc.
ACCUMULATIONS = {"add": cumsum, "multiply": cumprod, "maximum": _cummax, "minimum": _cummin}


def _cumulative(function: Callable[..., Tracer], start: int) -> Callable[..., Tracer]:
    """Of the array API's names: they take no default axis for several dimensions, and may include the start."""

    def apply(x: ArrayLike, /, *, axis: object = None, dtype: object = None, include_initial: bool = False) -> Tracer:
        value = value_of(x)
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
        x = _difference(b, slice_along(x, along, 1, size), slice_along(x, along, 0, max(size - 1, 0)))
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
    b = here()
    (heights, steps), _ = promote(y, dx if x is None else x)
    along = normalize_axis(axis, heights.type.rank, "np.trapezoid")
    size = heights.type.shape[along]
    pairs = b.add(slice_along(heights, along, 1, size), slice_along(heights, along, 0, size - 1))
    if x is None:
        widths = b.broadcast_in_dim(steps, pairs.type.shape, ())
    elif steps.type.rank == 1:
        widths = b.broadcast_in_dim(diff(wrap(steps)).value, pairs.type.shape, (along,))
    else:
        widths = diff(wrap(steps), axis=along).value
    return wrap(b.reduce_sum(b.scale(b.multiply(pairs, widths), 0.5), (along,)))


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
