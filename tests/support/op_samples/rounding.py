"""Rows for ir/ops/rounding.py."""

from __future__ import annotations

import math
from typing import Any

from jax import lax

from rematc.ir.ops.rounding import Ceil, Floor, IsFinite, NextAfter, Remainder, RoundNearestAfz, RoundNearestEven
from rematc.ir.types import BF16, F16, F32, F64, I8, I32, U8
from tests.support.samples import Sample, integers, literal, normal, uniform

FLOATS = (F32, F64, BF16, F16)
EDGES = [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, -0.2, math.inf, -math.inf, math.nan]
# The greatest number below a half, and one whose sum with a half is not representable.
NEAR_HALF = [0.49999997, -0.49999997, 8388609.0, -8388609.0]
FIRSTS = [x for x in EDGES for _ in EDGES]
SECONDS = EDGES * len(EDGES)
# Away from the jumps.
BETWEEN = [0.3, 1.2, -0.7, -2.4, 3.8]


def nearest_even(x: Any) -> Any:
    return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)


def nearest_away(x: Any) -> Any:
    return lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO)


ROUNDINGS = (
    (Floor(), lax.floor),
    (Ceil(), lax.ceil),
    (RoundNearestEven(), nearest_even),
    (RoundNearestAfz(), nearest_away),
)

SAMPLES = (
    *(Sample(op, (literal(dtype, BETWEEN),), (0,), jax) for op, jax in ROUNDINGS for dtype in FLOATS),
    *(Sample(op, (literal(F32, EDGES + NEAR_HALF),), signed_zeros=True, label="edges") for op, _ in ROUNDINGS),
    *(
        Sample(Remainder(), (uniform(dtype, -4.9, -4.1, 6), uniform(dtype, 0.95, 1.0, 6)), (0, 1), lax.rem)
        for dtype in FLOATS
    ),
    Sample(Remainder(), (uniform(F64, 4.1, 4.9, 3), uniform(F64, -1.0, -0.95, 3)), (1,), lax.rem),
    Sample(Remainder(), (literal(F32, FIRSTS), literal(F32, SECONDS)), signed_zeros=True, label="edges"),
    Sample(Remainder(), (literal(I32, [7, -7, 7, -7, 5, -(2**31)]), literal(I32, [3, 3, -3, -3, 0, -1])), jax=lax.rem),
    Sample(Remainder(), (integers(I8, -128, 127, 12), integers(I8, -9, 9, 12)), jax=lax.rem),
    Sample(Remainder(), (integers(U8, 0, 255, 12), integers(U8, 0, 9, 12)), jax=lax.rem),
    *(Sample(NextAfter(), (normal(dtype, 6), normal(dtype, 6)), jax=lax.nextafter) for dtype in FLOATS),
    Sample(NextAfter(), (literal(F64, FIRSTS), literal(F64, SECONDS)), signed_zeros=True, label="edges"),
    *(Sample(IsFinite(), (literal(dtype, EDGES),), (0,), lax.is_finite, step=None) for dtype in FLOATS),
)
