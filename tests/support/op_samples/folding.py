"""Rows for ir/ops/folding.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from jax import lax
from jax import numpy as jnp

from rematc.ir.builder import Builder
from rematc.ir.core import Graph
from rematc.ir.ops.folding import Reduce, ReduceWindow
from rematc.ir.ops.logical import Xor
from rematc.ir.ops.transcendental import LogPlusOne
from rematc.ir.types import F32, F64, I32, U8, DType, TensorType
from rematc.ir.values import Value
from tests.support.samples import Sample, distinct, integers, literal, normal, uniform

Combine = Callable[..., tuple[Value, ...]]


def function(name: str, dtypes: tuple[DType, ...], combine: Combine) -> Graph:
    """A function of twice as many scalars as there are element types."""
    b = Builder(name)
    params = [b.parameter(TensorType(dtype, ())) for dtype in (*dtypes, *dtypes)]
    return b.build(*combine(b, *params))


def log_add_exp(b: Builder, x: Value, y: Value) -> tuple[Value, ...]:
    larger, difference = b.maximum(x, y), b.subtract(x, y)
    infinite = b.compare(difference, difference, "NE")
    tail = b.emit1(LogPlusOne(), b.exponential(b.negate(b.abs(difference))))
    return (b.select(infinite, b.add(x, y), b.add(larger, tail)),)


def product(b: Builder, x: Value, y: Value) -> tuple[Value, ...]:
    return (b.multiply(x, y),)


def complex_product(b: Builder, x: Value, y: Value, u: Value, v: Value) -> tuple[Value, ...]:
    """(x + iy)(u + iv), by parts."""
    real = b.subtract(b.multiply(x, u), b.multiply(y, v))
    return real, b.add(b.multiply(x, v), b.multiply(y, u))


def greater(b: Builder, x: Value, i: Value, y: Value, j: Value) -> tuple[Value, ...]:
    """Of two pairs the one with the greater first, of equals the one with the lower second."""
    wins = b.logical_or(b.compare(x, y, "GT"), b.logical_and(b.compare(x, y, "EQ"), b.compare(i, j, "LE")))
    return b.select(wins, x, y), b.select(wins, i, j)


def exclusive_or(b: Builder, x: Value, y: Value) -> tuple[Value, ...]:
    return (b.emit1(Xor(), x, y),)


def sums_of_logs(dtype: DType) -> Graph:
    return function("log_add_exp", (dtype,), log_add_exp)


PRODUCT = function("product", (F64,), product)
COMPLEX = function("complex_product", (F64, F64), complex_product)
GREATER = function("greater", (F64, I32), greater)
FROM_NOTHING, ONE, ZERO = literal(F64, -math.inf), literal(F64, 1.0), literal(F64, 0.0)


def in_jax(axis: int) -> Any:
    return lambda x, _: jnp.logaddexp.reduce(x, axis=axis)


def windowed(body: Graph, *sizes: int, **fields: Any) -> ReduceWindow:
    ones = (1,) * len(sizes)
    defaults = {
        "window_strides": ones,
        "padding": ((0, 0),) * len(sizes),
        "base_dilations": ones,
        "window_dilations": ones,
    }
    return ReduceWindow(body, sizes, **{**defaults, **fields})


def windowed_product_in_jax(op: ReduceWindow) -> Any:
    def run(x: Any, start: Any) -> Any:
        return lax.reduce_window(
            x,
            start,
            lax.mul,
            op.window_dimensions,
            op.window_strides,
            op.padding,
            op.base_dilations,
            op.window_dilations,
        )

    return run


STRIDED = windowed(PRODUCT, 2, 3, window_strides=(2, 1), padding=((1, 0), (0, 2)), window_dilations=(1, 2))
GAPS = windowed(PRODUCT, 3, 2, base_dilations=(2, 1), padding=((-1, 1), (1, 1)))
PAIRS = windowed(COMPLEX, 1, 3, padding=((0, 0), (1, 1)))

SAMPLES = (
    # The functions are of one element type: rows in single precision have no derivative in double.
    Sample(Reduce((1,), sums_of_logs(F32)), (normal(F32, 3, 5), literal(F32, -math.inf)), jax=in_jax(1)),
    Sample(Reduce((1,), sums_of_logs(F64)), (normal(F64, 3, 5), FROM_NOTHING), (0,), in_jax(1)),
    Sample(Reduce((0, 2), PRODUCT), (uniform(F64, 0.5, 1.5, 2, 3, 4), ONE), (0, 1)),
    Sample(Reduce((0,), PRODUCT), (literal(F64, [2.0, 0.0, 3.0, 0.0, 5.0]), ONE), (0,), label="zeros"),
    Sample(Reduce((), PRODUCT), (uniform(F64, 0.5, 1.5, 3), ONE), (0, 1), label="no-dimensions"),
    Sample(Reduce((1,), PRODUCT), (uniform(F64, 0.5, 1.5, 3, 0), ONE), (1,), label="no-elements"),
    Sample(Reduce((0,), PRODUCT), (uniform(F64, 0.5, 1.5, 2, 0), ONE), label="no-lines"),
    Sample(Reduce((1,), COMPLEX), (normal(F64, 2, 7), normal(F64, 2, 7), ONE, ZERO), (0, 1)),
    Sample(
        Reduce((1,), GREATER), (distinct(F64, 2, 6), integers(I32, 0, 99, 2, 6), FROM_NOTHING, literal(I32, 99)), (0,)
    ),
    Sample(Reduce((0,), function("xor", (U8,), exclusive_or)), (integers(U8, 0, 255, 6, 2), literal(U8, 0))),
    Sample(STRIDED, (uniform(F64, 0.5, 1.5, 5, 6), ONE), (0, 1)),
    Sample(STRIDED, (uniform(F64, 0.5, 1.5, 5, 6), ONE), (0,), windowed_product_in_jax(STRIDED), label="jax"),
    Sample(GAPS, (uniform(F64, 0.5, 1.5, 3, 4), ONE), (0, 1)),
    Sample(PAIRS, (normal(F64, 2, 5), normal(F64, 2, 5), ONE, ZERO), (0, 1)),
    Sample(windowed(sums_of_logs(F32), 3, padding=((2, 0),)), (normal(F32, 6), literal(F32, -math.inf))),
    Sample(windowed(PRODUCT, 5), (uniform(F64, 0.5, 1.5, 3), ONE), (0,), label="no-window-fits"),
)
