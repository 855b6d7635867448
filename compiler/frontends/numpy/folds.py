"""`ufunc.reduce` and `ufunc.accumulate` of associative ufuncs that have no reduction of their own, in log n rounds."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from rematc.compiler.frontends.numpy.elementwise import Rule
from rematc.compiler.frontends.numpy.operands import (
    ArrayLike,
    as_ir_dtype,
    broadcast_operand,
    converted,
    fail,
    here,
    normalize_axes,
    normalize_axis,
    slice_along,
    value_of,
    wrap,
)
from rematc.compiler.frontends.numpy.promotion import ir_dtype, resolve
from rematc.compiler.tracing.trace import Tracer
from rematc.ir.types import BOOL
from rematc.ir.values import Value

#: The ufuncs that may combine elements in any order.
ASSOCIATIVE = frozenset(
    {
        *("bitwise_and", "bitwise_or", "bitwise_xor", "logical_xor", "fmax", "fmin"),
        *("gcd", "lcm", "hypot", "logaddexp", "logaddexp2"),
    }
)


def _operand(ufunc: np.ufunc, x: ArrayLike, dtype: object) -> Value:
    """The operand in the dtype that the ufunc combines in."""
    value = value_of(x)
    kind = value.type.dtype.numpy if dtype is None else as_ir_dtype(dtype).numpy
    try:
        _, given = resolve(ufunc, (kind, kind))
    except TypeError:
        fail(f"np.{ufunc.__name__} is not defined for dtype {kind}; convert with x.astype(...) first")
    return converted(here(), value, ir_dtype(given[0]))


def reduction(ufunc: np.ufunc, combine: Rule) -> Callable[..., Tracer]:
    """`ufunc.reduce`, with NumPy's parameters."""
    what = f"np.{ufunc.__name__}.reduce"

    def apply(
        x: ArrayLike,
        axis: object = 0,
        dtype: object = None,
        keepdims: object = False,
        initial: ArrayLike = None,
        where: ArrayLike = True,
    ) -> Tracer:
        b, value = here(), _operand(ufunc, x, dtype)
        shape, element = value.type.shape, value.type.dtype
        axes = normalize_axes(axis, len(shape), what)
        neutral = ufunc.identity if initial is None else initial
        if neutral is None and (where is not True or 0 in [shape[d] for d in axes]):
            fail(f"{what} has no neutral element, so it needs initial=... for a mask or for no elements")
        if where is not True:
            mask = broadcast_operand(where, BOOL, shape)
            value = b.select(mask, value, broadcast_operand(neutral, element, shape))
        rest = [d for d in range(len(shape)) if d not in axes]
        kept = tuple([shape[d] for d in rest])
        lines = b.reshape(b.transpose(value, (*rest, *axes)), (*kept, math.prod(shape[d] for d in axes)))
        result = _folded(lines, combine) if lines.type.shape[-1] else broadcast_operand(neutral, element, kept)
        if initial is not None:
            result = combine(b, result, broadcast_operand(initial, element, kept))
        return wrap(b.reshape(result, [1 if d in axes else n for d, n in enumerate(shape)]) if keepdims else result)

    return apply


def _folded(lines: Value, combine: Rule) -> Value:
    """The elements of the last dimension combined: each round one half with the other."""
    b, last = here(), lines.type.rank - 1
    while (size := lines.type.shape[last]) > 1:
        half = size // 2
        pairs = combine(b, slice_along(lines, last, 0, half), slice_along(lines, last, half, 2 * half))
        left = [slice_along(lines, last, 2 * half, size)] if size % 2 else []
        lines = b.concatenate([pairs, *left], last)
    return b.reshape(lines, lines.type.shape[:-1])


def accumulation(ufunc: np.ufunc, combine: Rule) -> Callable[..., Tracer]:
    """`ufunc.accumulate`, with NumPy's parameters."""

    def apply(x: ArrayLike, axis: object = 0, dtype: object = None) -> Tracer:
        b, value = here(), _operand(ufunc, x, dtype)
        along = normalize_axis(axis, value.type.rank, f"np.{ufunc.__name__}.accumulate")
        size, reach = value.type.shape[along], 1
        # After each round an element combines as many before it as the reach says, itself included.
        while reach < size:
            earlier, later = slice_along(value, along, 0, size - reach), slice_along(value, along, reach, size)
            head = slice_along(value, along, 0, reach)
            value = b.concatenate([head, combine(b, earlier, later)], along)
            reach *= 2
        return wrap(value)

    return apply
