"""Rows for ir/ops/reduction.py."""

from __future__ import annotations

import math
from typing import Any

import jax
from jax import lax
from jax import numpy as jnp

from rematc.ir.ops.reduction import (
    Argmax,
    Argmin,
    ReduceAnd,
    ReduceMax,
    ReduceMin,
    ReduceOr,
    ReduceProd,
    ReduceSum,
)
from rematc.ir.types import BF16, BOOL, C64, F8E4M3FN, F16, F32, F64, I4, I8, I32, I64, U8, U32, DType
from tests.support.samples import Sample, Tolerance, booleans, distinct, integers, literal, normal, uniform

SUMMED = Tolerance(1e-6, 1e-6, "XLA and NumPy add in different orders")
#: One unit in the last place: each rounds once from float32, but sums in different orders may fall on either side.
ROUNDED = Tolerance(2**-8, 2**-8, "rounded once from sums in different orders")


def sum_over(*dimensions: int) -> ReduceSum:
    return ReduceSum(dimensions)


def product_in_jax(x: jax.Array) -> jax.Array:
    return jnp.prod(x, (0, 2))


NAN, INF = math.nan, math.inf
SPECIAL = [[1.0, NAN, -INF], [3.0, 2.0, -INF]]
TIES = [[1.0, 3.0, 3.0, -2.0], [-2.0, -2.0, 3.0, 0.0]]


def extrema() -> list[Sample]:
    rows = []
    for op, in_jax in ((ReduceMax, jnp.max), (ReduceMin, jnp.min)):
        rows += [
            Sample(op((0, 2)), (distinct(F32, 2, 3, 4),), differentiable=(0,), jax=lambda x, f=in_jax: f(x, (0, 2))),
            Sample(op((1,)), (distinct(F64, 3, 1),), differentiable=(0,)),
            # At a tie the derivative is the mean of the tangents, a subgradient that differences do not see.
            Sample(
                op((1,)),
                (literal(F32, TIES),),
                differentiable=(0,),
                jax=lambda x, f=in_jax: f(x, 1),
                step=None,
                label="ties",
            ),
            Sample(op((0,)), (literal(F32, SPECIAL),), label="special"),
            Sample(op((0,)), (normal(F32, 0, 3),), label="of nothing"),
            Sample(op((0,)), (literal(F8E4M3FN, [[1.0, 2.0], [4.0, -2.0]]),)),
            Sample(op((0,)), (normal(F8E4M3FN, 0, 3),), label="of nothing"),
            Sample(op((0,)), (integers(I32, -9, 9, 4, 3),), jax=lambda x, f=in_jax: f(x, 0)),
            Sample(op((0,)), (integers(U8, 0, 255, 4, 3),)),
            Sample(op((0,)), (booleans(2, 4),)),
        ]
    return rows


def bitwise() -> list[Sample]:
    rows = []
    for op, in_jax in ((ReduceAnd, jnp.bitwise_and.reduce), (ReduceOr, jnp.bitwise_or.reduce)):
        rows += [
            Sample(op((0,)), (booleans(2, 5),), jax=lambda x, f=in_jax: f(x, 0)),
            Sample(op((0, 1)), (booleans(2, 5),)),
            Sample(op((1,)), (integers(I32, -9, 9, 2, 2),), jax=lambda x, f=in_jax: f(x, 1)),
            Sample(op((1,)), (integers(U8, 0, 255, 2, 2),)),
            Sample(op((0,)), (booleans(0, 2),), label="of nothing"),
            Sample(op((0,)), (integers(U8, 0, 255, 0, 2),), label="of nothing"),
        ]
    return rows


def indices() -> list[Sample]:
    rows = []
    for op, in_jax in ((Argmax, lax.argmax), (Argmin, lax.argmin)):

        def row(values: object, dtype: DType = F32, label: str = "", op: Any = op, in_jax: Any = in_jax) -> Sample:
            return Sample(op(0, I32), (literal(dtype, values),), jax=lambda x: in_jax(x, 0, "int32"), label=label)

        rows += [
            Sample(op(1, I64), (distinct(F32, 3, 4),), differentiable=(0,), jax=lambda x, f=in_jax: f(x, 1, "int64")),
            Sample(op(0, U8), (distinct(F64, 5),), differentiable=(0,)),
            row([1.0, 3.0, 0.0, 3.0, 0.0], label="ties"),
            row([1.0, NAN, INF, NAN], label="first NaN"),
            row([-INF, -INF], label="-inf"),
            row([INF, INF], label="inf"),
            row([3, 255, 255, 0, 0], U8),
            row([-3, 4, 4, -3], I8),
            row([False, True, True, False], BOOL),
            row([1.0, 2.0, 2.0], BF16),
        ]
    return rows


SAMPLES = (
    Sample(
        sum_over(0, 2),
        (normal(F32, 2, 3, 4),),
        differentiable=(0,),
        jax=lambda x: jnp.sum(x, (0, 2)),
        tolerance=SUMMED,
    ),
    Sample(sum_over(), (normal(F32, 3),), differentiable=(0,)),
    Sample(sum_over(1, 0), (normal(C64, 2, 3),), differentiable=(0,), tolerance=SUMMED),
    Sample(sum_over(0), (normal(F32, 0, 3),), differentiable=(0,), label="of nothing"),
    Sample(sum_over(0), (uniform(BF16, 0, 1, 300, 2),), differentiable=(0,), tolerance=ROUNDED, label="long"),
    Sample(sum_over(0), (uniform(F16, 0, 1, 300, 2),), differentiable=(0,), tolerance=ROUNDED, label="long"),
    Sample(sum_over(0), (integers(I32, -9, 9, 4, 3),), jax=lambda x: jnp.sum(x, 0, x.dtype)),
    Sample(sum_over(0), (integers(U8, 0, 255, 4, 3),), label="wraps"),
    Sample(sum_over(0), (integers(I4, -8, 7, 4, 3),), label="wraps"),
    Sample(ReduceProd((0, 2)), (normal(F32, 2, 3, 3),), differentiable=(0,), jax=product_in_jax),
    Sample(ReduceProd((0,)), (normal(F64, 7, 2),), differentiable=(0,)),
    Sample(ReduceProd((1,)), (normal(F64, 2, 8),), differentiable=(0,)),
    Sample(ReduceProd((1,)), (normal(C64, 2, 5),), differentiable=(0,)),
    Sample(ReduceProd((0,)), (literal(F32, [[2.0, 0.0, 0.0], [3.0, 5.0, 0.0]]),), differentiable=(0,), label="zeros"),
    Sample(ReduceProd((0,)), (normal(F32, 1, 2),), differentiable=(0,)),
    Sample(ReduceProd((0,)), (normal(F32, 0, 2),), differentiable=(0,), label="of nothing"),
    Sample(ReduceProd(()), (normal(F32, 3),), differentiable=(0,)),
    Sample(ReduceProd((0,)), (uniform(BF16, 0.9, 1.1, 20, 2),), tolerance=ROUNDED),
    Sample(ReduceProd((0,)), (integers(U32, 0, 9, 4, 3),)),
    *extrema(),
    *bitwise(),
    *indices(),
)
