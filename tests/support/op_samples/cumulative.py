"""Rows for ir/ops/cumulative.py."""

from __future__ import annotations

import math
from typing import Any

import jax
from jax import lax

from rematc.ir.core import Op
from rematc.ir.ops.cumulative import (
    Cumulative,
    CumulativeLogsumexp,
    CumulativeMax,
    CumulativeMin,
    CumulativeProduct,
    CumulativeSum,
    LinearRecurrence,
)
from rematc.ir.types import BF16, C64, C128, F8E5M2, F16, F32, F64, I4, I8, I32, U8, DType
from tests.support.samples import Factory, Sample, Tolerance, booleans, distinct, integers, literal, normal, uniform

FLOATS = (F32, F64, BF16, F16)
REORDERED = Tolerance(2e-6, 2e-6, "sums of both signs are rounded in another order")


def in_jax(op: Cumulative) -> Any:
    """The function of lax, for rows in double precision: it takes long to compile."""
    functions: dict[type[Op], Any] = {
        CumulativeSum: lax.cumsum,
        CumulativeProduct: lax.cumprod,
        CumulativeMax: lax.cummax,
        CumulativeMin: lax.cummin,
        CumulativeLogsumexp: lax.cumlogsumexp,
    }

    return lambda x: functions[type(op)](x, op.dimension, op.is_reversed)


def recurrence_in_jax(op: LinearRecurrence) -> Any:
    def run(a: jax.Array, x: jax.Array) -> Any:
        def combine(earlier: Any, later: Any) -> Any:
            return earlier[0] * later[0], later[0] * earlier[1] + later[1]

        return lax.associative_scan(combine, (a, x), op.is_reversed, axis=op.dimension)[1]

    return run


def row(op: Cumulative, operand: Factory, dtype: DType, label: str = "", tolerance: Tolerance | None = None) -> Sample:
    return Sample(op, (operand,), (0,), in_jax(op) if dtype is F64 else None, tolerance, label=label)


def everywhere(cls: Any, operand: Any) -> tuple[Sample, ...]:
    return (
        *(row(cls(1), operand(dtype, 3, 5), dtype) for dtype in FLOATS),
        row(cls(1, True), operand(F64, 2, 6, 2), F64, "reversed"),
    )


def lengths() -> tuple[Sample, ...]:
    """Lines without elements, of one, of one run, of several rounds; no lines."""
    return (
        *(row(CumulativeSum(0), normal(F64, n), F64, tolerance=REORDERED) for n in (1, 8, 9, 70)),
        row(CumulativeProduct(0, True), positive(F64, 2 * 21), F64, "rounds"),
        *(Sample(CumulativeSum(d, True), (normal(F32, 3, 0),), label=f"empty-{d}") for d in (0, 1)),
    )


def positive(dtype: DType, *shape: int) -> Factory:
    return uniform(dtype, 0.5, 1.5, *shape)


def integral() -> tuple[Sample, ...]:
    """Integers whose results wrap around, and booleans."""
    found = [
        Sample(cls(0), (integers(dtype, low, high, 8),))
        for cls in (CumulativeSum, CumulativeProduct, CumulativeMax, CumulativeMin)
        for dtype, low, high in ((I32, -9, 9), (U8, 0, 255))
    ]
    found += [Sample(CumulativeSum(0), (integers(dtype, -8, 7, 8),)) for dtype in (I4, I8)]
    found += [Sample(cls(0), (booleans(8),)) for cls in (CumulativeMax, CumulativeMin)]
    return tuple(found)


ZEROS = [2.0, 0.0, 3.0, 0.0, -1.0, 5.0]
EDGES = [0.0, -1.0, math.inf, 2.0, math.nan, 5.0]
FROM_NOTHING = [-math.inf, -math.inf, 1.0, -math.inf, 2.0]
TIED = integers(F64, 0, 2, 8)
A, X = uniform(F64, -1.2, 1.2, 3, 7), normal(F64, 3, 7)

SAMPLES = (
    *lengths(),
    *everywhere(CumulativeSum, normal),
    *everywhere(CumulativeProduct, positive),
    *everywhere(CumulativeMax, distinct),
    *everywhere(CumulativeMin, distinct),
    *everywhere(CumulativeLogsumexp, normal),
    *(row(cls(1), uniform(dtype, 0.5, 1.5, 2, 5), dtype) for cls in (CumulativeSum, CumulativeProduct)
      for dtype in (C64, C128)),
    row(CumulativeProduct(0), literal(F64, ZEROS), F64, "zeros"),
    row(CumulativeProduct(0, True), literal(F64, ZEROS), F64, "zeros-reversed"),
    *(Sample(cls(0), (TIED,), (0,), step=None, label="ties") for cls in (CumulativeMax, CumulativeMin)),
    *(Sample(cls(0), (literal(F32, EDGES),), label="edges") for cls in (CumulativeMax, CumulativeLogsumexp)),
    Sample(CumulativeLogsumexp(0), (literal(F64, FROM_NOTHING),), (0,), step=None, label="from-nothing"),
    Sample(CumulativeSum(0), (uniform(F8E5M2, 0.5, 2, 8),)),
    *integral(),
    Sample(LinearRecurrence(1), (A, X), (0, 1), recurrence_in_jax(LinearRecurrence(1))),
    Sample(LinearRecurrence(1, True), (A, X), (0, 1), recurrence_in_jax(LinearRecurrence(1, True)), label="reversed"),
    *(Sample(LinearRecurrence(1), (A, X), (index,), label="one") for index in (0, 1)),
    *(Sample(LinearRecurrence(0), (uniform(dtype, -1, 1, 9, 2), uniform(dtype, 0.5, 1, 9, 2)), (0, 1)) for dtype in
      (F32, BF16, C64)),
)  # fmt: skip
