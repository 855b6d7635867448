"""Rows for ir/ops/arithmetic.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from jax import lax
from jax import numpy as jnp

from rematc.ir.core import Op
from rematc.ir.ops.arithmetic import (
    Abs,
    Add,
    Clamp,
    Divide,
    IntegerPower,
    Maximum,
    Minimum,
    Multiply,
    Negate,
    Power,
    Sign,
    Subtract,
)
from rematc.ir.types import BF16, C64, C128, F8E4M3FN, F8E5M2, F16, F32, F64, I4, I8, I32, I64, U4, U8, U32
from tests.support.samples import Sample, booleans, distinct, integers, literal, normal, uniform

FLOATS = (F32, F64, BF16, F16)
EDGES = [0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, math.nan]
# Every pair of edges.
FIRSTS = [x for x in EDGES for _ in EDGES]
SECONDS = [y for _ in EDGES for y in EDGES]


def edges(op: Op) -> Sample:
    """Zeros of both signs, infinities and NaN in every combination."""
    return Sample(op, (literal(F32, FIRSTS), literal(F32, SECONDS)), signed_zeros=True, label="edges")


def signed_and_unsigned(op: Op, jax: Callable[..., Any]) -> tuple[Sample, ...]:
    """Integers whose results wrap around."""
    return (
        Sample(op, (integers(I32, -(2**31), 2**31 - 1, 12), integers(I32, -(2**31), 2**31 - 1, 12)), jax=jax),
        Sample(op, (integers(I8, -128, 127, 12), integers(I8, -128, 127, 12)), jax=jax),
        Sample(op, (integers(U8, 0, 255, 12), integers(U8, 0, 255, 12)), jax=jax),
    )


def sums_and_products() -> tuple[Sample, ...]:
    found: list[Sample] = []
    for op, jax in ((Add(), lax.add), (Subtract(), lax.sub), (Multiply(), lax.mul)):
        found += [Sample(op, (normal(dtype, 3, 4), normal(dtype, 3, 4)), (0, 1), jax) for dtype in (*FLOATS, C64, C128)]
        found += [edges(op), *signed_and_unsigned(op, jax)]
        found += [Sample(op, (normal(F64, 3), normal(F64, 3)), (index,), jax) for index in (0, 1)]
    found += [Sample(op, (booleans(8), booleans(8))) for op in (Add(), Multiply())]
    return tuple(found)


def quotients() -> tuple[Sample, ...]:
    op = Divide()
    smallest = (literal(I32, [-(2**31), 7, -7, 7, -7, 5, 0]), literal(I32, [1, 2, 2, -2, -2, 0, 0]))
    return (
        *(Sample(op, (normal(dtype, 3, 4), uniform(dtype, 0.5, 2, 3, 4)), (0, 1), lax.div) for dtype in (*FLOATS, C64)),
        Sample(op, (normal(F64, 3), uniform(F64, 0.5, 2, 3)), (0,), lax.div),
        Sample(op, (normal(F64, 3), uniform(F64, 0.5, 2, 3)), (1,), lax.div),
        edges(op),
        Sample(op, smallest, jax=lax.div, label="towards-zero"),
        Sample(op, (integers(U8, 0, 255, 12), integers(U8, 0, 5, 12)), jax=lax.div),
        Sample(op, (integers(I8, -127, 127, 12), integers(I8, -3, 3, 12)), jax=lax.div),
    )


def powers() -> tuple[Sample, ...]:
    op = Power()
    bases, exponents = [0.0, 0.0, 0.0, -1.5, -2.0, 1.0], [1.0, 2.0, 0.5, 2.0, 3.0, 0.0]
    return (
        *(Sample(op, (uniform(dtype, 0.5, 2, 3, 4), normal(dtype, 3, 4)), (0, 1), lax.pow) for dtype in FLOATS),
        Sample(op, (uniform(F64, 0.5, 2, 3), normal(F64, 3)), (0,), lax.pow),
        Sample(op, (uniform(F64, 0.5, 2, 3), normal(F64, 3)), (1,), lax.pow),
        # Powers of zero and of negative numbers have a derivative in the base, not in the exponent.
        Sample(op, (literal(F64, bases), literal(F64, exponents)), (0,), lax.pow, step=None, label="zero-base"),
        Sample(op, (literal(F64, bases[:3]), literal(F64, exponents[:3])), (0, 1), lax.pow, step=None, label="zero"),
        edges(op),
        Sample(op, (integers(I32, -9, 9, 24), integers(I32, 0, 12, 24))),
        Sample(op, (integers(U8, 0, 9, 12), integers(U8, 0, 7, 12))),
        Sample(op, (literal(I32, [1, -1, -1, 2, -2]), literal(I32, [-2, -2, -3, -1, -3])), label="reciprocals"),
        Sample(op, (literal(I32, [3, 2, -3, 7, 1, -1]), literal(I32, [64, 65, 101, 2**30 + 1, 2**31 - 1, 2**31 - 1]))),
        Sample(op, (literal(U8, [3, 2, 5]), literal(U8, [64, 128, 255])), label="many bits"),
        Sample(op, (literal(I64, [3, 5]), literal(I64, [2**40 + 1, 2**63 - 1])), label="many bits"),
    )


def integer_powers() -> tuple[Sample, ...]:
    found: list[Sample] = []
    for n in (-3, -1, 0, 1, 2, 3, 7):
        jax = lambda x, n=n: lax.integer_pow(x, n)  # noqa: E731
        found.append(Sample(IntegerPower(n), (uniform(F32, 0.5, 2, 3, 4),), (0,), jax, label=str(n)))
    cube = IntegerPower(3)
    found += [Sample(cube, (normal(dtype, 3, 4),), (0,), label="3") for dtype in (F64, BF16, F16, C64)]
    found.append(Sample(IntegerPower(-2), (uniform(C128, 0.5, 2, 4),), (0,), label="-2"))
    found.append(Sample(IntegerPower(0), (literal(C64, [1 + 2j, 0]),), label="0"))
    found.append(Sample(IntegerPower(0), (integers(I32, -9, 9, 4),), label="0"))
    found.append(Sample(IntegerPower(5), (integers(I32, -999, 999, 8),), label="5"))
    found.append(Sample(IntegerPower(2), (literal(F32, EDGES),), signed_zeros=True, label="edges"))
    found.append(Sample(IntegerPower(-1), (literal(F32, EDGES),), signed_zeros=True, label="edges"))
    return tuple(found)


def extrema() -> tuple[Sample, ...]:
    found: list[Sample] = []
    tied = (literal(F64, [1.0, 2.0, 3.0, 0.0, math.nan]), literal(F64, [1.0, 3.0, 2.0, 0.0, 1.0]))
    for op, jax in ((Maximum(), lax.max), (Minimum(), lax.min)):
        found += [Sample(op, (distinct(dtype, 3, 4), normal(dtype, 3, 4)), (0, 1), jax) for dtype in FLOATS]
        found += [Sample(op, (distinct(F64, 3), normal(F64, 3)), (index,), jax) for index in (0, 1)]
        found += [edges(op), Sample(op, tied, (0, 1), jax, step=None, label="ties"), *signed_and_unsigned(op, jax)]
        found.append(Sample(op, (booleans(8), booleans(8)), jax=jax))
    return tuple(found)


def clamps() -> tuple[Sample, ...]:
    op = Clamp()
    low, high = uniform(F32, -0.8, -0.5, 3, 4), uniform(F32, 0.5, 0.8, 3, 4)
    scalars = (literal(F32, -0.5), normal(F32, 3, 4), literal(F32, 0.5))
    at_bounds = (literal(F64, -1.0), literal(F64, [-2, -1, 0, 1, 2]), literal(F64, 1.0))
    crossed = (literal(F32, [1.0, 1.0, 1.0]), literal(F32, [0.0, 2.0, -2.0]), literal(F32, [-1.0, -1.0, -1.0]))
    return (
        Sample(op, (low, normal(F32, 3, 4), high), (0, 1, 2), full_clamp),
        Sample(op, scalars, (0, 1, 2), full_clamp, label="scalar-bounds"),
        Sample(op, (literal(F32, -0.5), normal(F32, 3, 4), high), (1,), full_clamp),
        Sample(op, at_bounds, (0, 1, 2), full_clamp, step=None, label="at-bounds"),
        Sample(op, crossed, (0, 1, 2), full_clamp, step=None, label="crossed-bounds"),
        *(Sample(op, (literal(d, -0.5), normal(d, 3, 4), literal(d, 0.5)), (1,), lax.clamp) for d in (F64, BF16, F16)),
        Sample(op, (literal(F32, -1.0), literal(F32, EDGES), literal(F32, 1.0)), signed_zeros=True, label="edges"),
        Sample(op, (literal(I32, -5), integers(I32, -9, 9, 12), literal(I32, 5)), jax=lax.clamp),
        Sample(op, (literal(U32, 3), integers(U32, 0, 9, 12), literal(U32, 5)), jax=lax.clamp),
    )


def full_clamp(low: Any, x: Any, high: Any) -> Any:
    """`lax.clamp` has no derivative in scalar bounds."""
    return lax.clamp(jnp.broadcast_to(low, x.shape), x, jnp.broadcast_to(high, x.shape))


def signs() -> tuple[Sample, ...]:
    away = (uniform(F64, 0.1, 2, 3, 4), uniform(F64, -2, -0.1, 3, 4))
    return (
        *(Sample(Negate(), (normal(dtype, 3, 4),), (0,), lax.neg) for dtype in (*FLOATS, C64)),
        Sample(Negate(), (literal(F32, EDGES),), signed_zeros=True, label="edges"),
        Sample(Negate(), (literal(I8, [-128, 0, 5]),), jax=lax.neg),
        Sample(Negate(), (integers(U8, 0, 255, 5),), jax=lax.neg),
        *(Sample(Sign(), (distinct(dtype, 3, 4),), (0,), lax.sign) for dtype in FLOATS),
        Sample(Sign(), (literal(F32, EDGES),), signed_zeros=True, label="edges"),
        Sample(Sign(), (integers(I64, -2, 2, 8),), jax=lax.sign),
        *(Sample(Abs(), (operand,), (0,), lax.abs) for operand in away),
        *(Sample(Abs(), (distinct(dtype, 3, 4),), (0,), lax.abs) for dtype in (F32, BF16, F16)),
        Sample(Abs(), (literal(F64, [0.0, -0.0, 1.0]),), (0,), lax.abs, step=None, label="zero"),
        Sample(Abs(), (literal(F32, EDGES),), signed_zeros=True, label="edges"),
        Sample(Abs(), (literal(I8, [-128, -5, 0, 5]),), jax=lax.abs),
    )


def narrow() -> tuple[Sample, ...]:
    """Element types narrower than a byte, and floats of one byte: each result is rounded or wraps."""
    small_floats = [(uniform(dtype, 0.5, 2, 8), uniform(dtype, 0.5, 2, 8)) for dtype in (F8E4M3FN, F8E5M2)]
    small_integers = [
        (integers(I4, -8, 7, 16), integers(I4, -8, 7, 16)),
        (integers(U4, 0, 15, 16), integers(U4, 0, 15, 16)),
    ]
    ops = (Add(), Subtract(), Multiply(), Divide(), Maximum())
    return tuple(Sample(op, operands) for op in ops for operands in (*small_floats, *small_integers))


SAMPLES = (
    *sums_and_products(),
    *quotients(),
    *powers(),
    *integer_powers(),
    *extrema(),
    *clamps(),
    *signs(),
    *narrow(),
)
