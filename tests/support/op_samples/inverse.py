"""Rows for ir/ops/inverse.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from jax import lax

from rematc.ir.core import Op
from rematc.ir.ops.inverse import Acos, Acosh, Asin, Asinh, Atan, Atan2, Atanh, Cosh, Sinh
from rematc.ir.types import BF16, C64, F16, F32, F64
from tests.support.samples import Sample, literal, normal, uniform

FLOATS = (F32, F64, BF16, F16)
EDGES = [0.0, -0.0, 1.0, -1.0, 2.0, math.inf, -math.inf, math.nan]


def unary(op: Op, low: float, high: float, jax: Callable[..., Any]) -> tuple[Sample, ...]:
    return (
        *(Sample(op, (uniform(dtype, low, high, 3, 4),), (0,), jax) for dtype in (*FLOATS, C64)),
        Sample(op, (literal(F32, EDGES),), signed_zeros=True, label="edges"),
    )


SAMPLES = (
    *unary(Asin(), -0.8, 0.8, lax.asin),
    *unary(Acos(), -0.8, 0.8, lax.acos),
    *unary(Atan(), -3, 3, lax.atan),
    *unary(Sinh(), -2, 2, lax.sinh),
    *unary(Cosh(), -2, 2, lax.cosh),
    *unary(Asinh(), -3, 3, lax.asinh),
    *unary(Acosh(), 1.3, 4, lax.acosh),
    *unary(Atanh(), -0.8, 0.8, lax.atanh),
    *(Sample(Atan2(), (normal(dtype, 3, 4), uniform(dtype, 0.3, 2, 3, 4)), (0, 1), lax.atan2) for dtype in FLOATS),
    *(Sample(Atan2(), (normal(F64, 3), uniform(F64, -2, -0.3, 3)), (index,), lax.atan2) for index in (0, 1)),
    Sample(
        Atan2(),
        (literal(F32, [x for x in EDGES for _ in EDGES]), literal(F32, EDGES * len(EDGES))),
        signed_zeros=True,
        label="edges",
    ),
)
