"""Rows for ir/ops/transcendental.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from jax import lax

from rematc.ir.core import Op
from rematc.ir.ops.transcendental import (
    Cbrt,
    Cosine,
    Exponential,
    ExponentialMinusOne,
    Log,
    Logistic,
    LogPlusOne,
    Rsqrt,
    Sine,
    Sqrt,
    Tan,
    Tanh,
)
from rematc.ir.types import BF16, C64, C128, F16, F32, F64, DType
from tests.support.samples import Sample, Tolerance, literal, uniform

FLOATS = (F32, F64, BF16, F16)
INEXACT = (*FLOATS, C64, C128)
EDGES = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan]
# Arguments where a formula for larger ones would lose all digits.
TINY = [1e-6, -1e-6, 1e-8, 0.0, -0.0]
SATURATED = Tolerance(1e-9, 0.0, "y = 1 - d is rounded to a unit of 1, which is much for d")
RELATIVE = Tolerance(1e-6, 0.0, "the digits of small results are the point")


def unary(
    op: Op, low: float, high: float, jax: Callable[..., Any], dtypes: tuple[DType, ...] = INEXACT
) -> tuple[Sample, ...]:
    """Rows in all element types, and one of zeros, infinities and NaN."""
    return (
        *(Sample(op, (uniform(dtype, low, high, 3, 4),), (0,), jax) for dtype in dtypes),
        *(Sample(op, (literal(dtype, EDGES),), signed_zeros=True, label="edges") for dtype in (F32, F64)),
    )


SAMPLES = (
    *unary(Exponential(), -2, 2, lax.exp),
    Sample(Exponential(is_accurate=True), (uniform(F32, -2, 2),), (0,), lax.exp, label="accurate"),
    *unary(ExponentialMinusOne(), -2, 2, lax.expm1),
    *unary(Log(), 0.2, 3, lax.log),
    *unary(LogPlusOne(), -0.6, 3, lax.log1p),
    *unary(Logistic(), -3, 3, lax.logistic),
    *unary(Sine(), -4, 4, lax.sin),
    *unary(Cosine(), -4, 4, lax.cos),
    *unary(Tan(), -1, 1, lax.tan),
    *unary(Tanh(), -2, 2, lax.tanh),
    *unary(Sqrt(), 0.2, 3, lax.sqrt),
    *unary(Rsqrt(), 0.2, 3, lax.rsqrt),
    *unary(Cbrt(), 0.2, 3, lax.cbrt, FLOATS),
    *unary(Cbrt(), -3, -0.2, lax.cbrt, (F64,)),
    *(
        Sample(op, (literal(F32, TINY),), tolerance=RELATIVE, label="tiny")
        for op in (ExponentialMinusOne(), LogPlusOne())
    ),
    Sample(Sqrt(), (literal(F64, [0.0]),), (0,), lax.sqrt, step=None, label="zero"),
    Sample(Tanh(), (literal(F64, [3.0, -5.0, 7.0]),), (0,), lax.tanh, SATURATED, label="saturated"),
    Sample(Exponential(), (uniform(F64, -1, 1),), (0,), lax.exp, label="scalar"),
    Sample(Sine(), (uniform(F32, -1, 1, 0, 3),), (0,), lax.sin, label="empty"),
)
