"""Rows for ir/ops/logical.py."""

from __future__ import annotations

import math

from jax import lax

from rematc.ir.ops.logical import (
    And,
    Compare,
    CountLeadingZeros,
    Not,
    Or,
    Popcnt,
    Select,
    ShiftLeft,
    ShiftRightArithmetic,
    ShiftRightLogical,
    Xor,
)
from rematc.ir.types import BF16, C64, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, DType, Kind
from tests.support.samples import Factory, Sample, booleans, integers, literal, normal

INTEGERS = (I8, I16, I32, I64, U8, U16, U32, U64)
EDGES = [0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, math.nan]
FIRSTS = [x for x in EDGES for _ in EDGES]
SECONDS = EDGES * len(EDGES)
BITWISE = ((And(), lax.bitwise_and), (Or(), lax.bitwise_or), (Xor(), lax.bitwise_xor))
SHIFTS = (
    (ShiftLeft(), lax.shift_left),
    (ShiftRightArithmetic(), lax.shift_right_arithmetic),
    (ShiftRightLogical(), lax.shift_right_logical),
)
DIRECTIONS = {"EQ": lax.eq, "NE": lax.ne, "GE": lax.ge, "GT": lax.gt, "LE": lax.le, "LT": lax.lt}


def all_bits(dtype: DType) -> Factory:
    """Random numbers, and those of the fewest and the most bits."""
    if dtype.kind is Kind.UINT:
        return literal(dtype, [0, 1, 2, 2**dtype.bits - 1, 2 ** (dtype.bits - 1), 77])
    lowest = -(2 ** (dtype.bits - 1))
    return literal(dtype, [0, 1, -1, lowest, -(lowest + 1), 77])


def distances(dtype: DType) -> Factory:
    """Shifts by nothing, by a few bits, and by more bits than there are."""
    return literal(dtype, [1, 0, 3, dtype.bits - 1, dtype.bits, dtype.bits + 3])


SAMPLES = (
    *(
        Sample(op, (integers(dtype, 0, 100, 8), integers(dtype, 0, 100, 8)), jax=jax)
        for op, jax in BITWISE
        for dtype in (I32, U8)
    ),
    *(Sample(op, (booleans(12), booleans(12)), jax=jax) for op, jax in BITWISE),
    *(Sample(Not(), (all_bits(dtype),), jax=lax.bitwise_not) for dtype in (I32, U8)),
    Sample(Not(), (booleans(8),), jax=lax.bitwise_not),
    *(Sample(op, (all_bits(dtype), distances(dtype)), jax=jax) for op, jax in SHIFTS for dtype in INTEGERS),
    *(
        Sample(op, (literal(I32, [5, -5, 1]), literal(I32, [-1, -2, -32])), jax=jax, label="negative")
        for op, jax in SHIFTS
    ),
    *(Sample(Popcnt(), (all_bits(dtype),), jax=lax.population_count) for dtype in INTEGERS),
    *(Sample(CountLeadingZeros(), (all_bits(dtype),), jax=lax.clz) for dtype in INTEGERS),
    *(
        Sample(
            Compare(direction), (literal(F32, FIRSTS), literal(F32, SECONDS)), (0, 1), jax, step=None, label=direction
        )
        for direction, jax in DIRECTIONS.items()
    ),
    *(
        Sample(Compare(direction), (integers(dtype, 0, 2, 12), integers(dtype, 0, 2, 12)), jax=jax, label=direction)
        for direction, jax in DIRECTIONS.items()
        for dtype in (I32, U8, BF16, F16, F64)
    ),
    Sample(Compare("LT"), (literal(I32, [-1, 1]), literal(I32, [1, -1])), jax=lax.lt, label="signed"),
    Sample(Compare("LT"), (literal(U32, [2**32 - 1, 1]), literal(U32, [1, 2**32 - 1])), jax=lax.lt, label="unsigned"),
    Sample(Compare("LT"), (booleans(8), booleans(8)), jax=lax.lt),
    Sample(Compare("EQ"), (literal(C64, [1j, 1, 1 + 1j]), literal(C64, [1j, 1j, 1 + 1j])), jax=lax.eq),
    *(
        Sample(Select(), (booleans(3, 4), normal(dtype, 3, 4), normal(dtype, 3, 4)), (1, 2), lax.select)
        for dtype in (F32, F64, BF16, F16, C64)
    ),
    *(
        Sample(Select(), (booleans(3, 4), normal(F64, 3, 4), normal(F64, 3, 4)), (index,), lax.select)
        for index in (1, 2)
    ),
    Sample(Select(), (booleans(), normal(F64, 3, 4), normal(F64, 3, 4)), (1, 2), lax.select, label="scalar-predicate"),
    Sample(Select(), (booleans(9), integers(I32, 0, 9, 9), integers(I32, 0, 9, 9)), jax=lax.select),
    Sample(Select(), (booleans(9), booleans(9), booleans(9)), jax=lax.select),
)
