"""Rows for ir/ops/sorting.py."""

from __future__ import annotations

import math
from typing import Any

import jax
from jax import lax

from rematc.ir.ops.sorting import Sort, TopK
from rematc.ir.types import BF16, C64, F8E4M3FN, F16, F32, F64, I4, I8, I32, U4, U8, DType
from tests.support.samples import Factory, Sample, booleans, distinct, integers, literal, normal

EDGES = [1.0, math.nan, -0.0, math.inf, 0.0, -math.nan, -math.inf, -1.0, -0.0]


def in_jax(op: Sort) -> Any:
    """lax.sort, which has no descending order."""

    def sort(*operands: jax.Array) -> Any:
        return lax.sort(operands, op.dimension, True, op.num_keys)

    return None if op.descending else sort


def row(op: Sort, *operands: Factory, differentiable: tuple[int, ...] = (), label: str = "") -> Sample:
    return Sample(op, operands, differentiable, in_jax(op), signed_zeros=True, label=label)


def top(k: int, dtype: DType, *shape: int) -> Sample:
    return Sample(TopK(k), (distinct(dtype, *shape),), (0,), lambda x: lax.top_k(x, k))


def few(dtype: DType, *shape: int) -> Factory:
    """Integers with many ties."""
    return integers(dtype, 0, 2, *shape)


SAMPLES = (
    *(row(Sort(0), distinct(dtype, 5, 3), differentiable=(0,)) for dtype in (F32, F64, BF16, F16)),
    row(Sort(1), distinct(F64, 2, 5, 3), differentiable=(0,)),
    row(Sort(1, 1, True), distinct(F64, 3, 5), normal(F64, 3, 5), differentiable=(0, 1), label="descending"),
    row(Sort(1), distinct(F64, 3, 5), normal(F64, 3, 5), integers(I32, 0, 9, 3, 5), differentiable=(0, 1)),
    row(Sort(1), distinct(F64, 3, 5), normal(F64, 3, 5), differentiable=(1,), label="payload"),
    row(Sort(0, 2), few(F64, 12), distinct(F64, 12), normal(F64, 12), differentiable=(1, 2), label="two-keys"),
    row(Sort(0, 2), few(I32, 12), booleans(12), integers(I32, 0, 99, 12), label="two-keys"),
    row(Sort(0), few(F32, 12), integers(I32, 0, 99, 12), label="stable"),
    row(Sort(0, 1, True), few(F32, 12), integers(I32, 0, 99, 12), label="stable-descending"),
    row(Sort(0), literal(F32, EDGES), integers(I32, 0, 99, 9), label="edges"),
    row(Sort(0, 1, True), literal(F64, EDGES), integers(I32, 0, 99, 9), label="descending-edges"),
    row(Sort(0), normal(C64, 6), integers(I32, 0, 99, 6), differentiable=(0,)),
    Sample(Sort(0), (literal(C64, [1 + 1j, 1 - 1j, 0, complex("nan"), -1j, complex("nanj")]),), label="edges"),
    *(row(Sort(0), integers(dtype, low, high, 9)) for dtype, low, high in ((I8, -128, 127), (U8, 0, 255))),
    *(Sample(Sort(0), (integers(dtype, low, 7, 9),)) for dtype, low in ((I4, -8), (U4, 0), (F8E4M3FN, -7))),
    row(Sort(0), booleans(9), integers(I32, 0, 99, 9)),
    Sample(Sort(0), (normal(F32, 0, 3),), label="empty"),
    *(top(3, dtype, 2, 7) for dtype in (F32, F64, BF16, F16)),
    Sample(TopK(4), (few(I32, 9),), jax=lambda x: lax.top_k(x, 4), label="ties"),
    Sample(TopK(4), (integers(U8, 0, 255, 3, 9),), jax=lambda x: lax.top_k(x, 4)),
    Sample(TopK(4), (booleans(9),)),
    Sample(TopK(9), (literal(F32, EDGES),), signed_zeros=True, label="edges"),
    Sample(TopK(0), (normal(F32, 3),), label="none"),
)
