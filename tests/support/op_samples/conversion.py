"""Rows for ir/ops/conversion.py."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
from jax import lax

from rematc.ir.core import Op
from rematc.ir.ops.conversion import BitcastConvert, Convert, ReducePrecision
from rematc.ir.types import (
    BF16,
    BOOL,
    C64,
    C128,
    F8E4M3FN,
    F8E5M2,
    F16,
    F32,
    F64,
    I4,
    I8,
    I16,
    I32,
    I64,
    U2,
    U4,
    U8,
    U32,
    DType,
)
from tests.support.samples import Factory, Sample, booleans, integers, literal, normal, uniform

EDGES = [0.0, -0.0, 1.5, -1.5, 0.1, -0.1, 1e30, -1e30, 300.5, math.inf, -math.inf, math.nan]


def convert(dtype: DType, operand: Factory, *differentiable: int, **fields: Any) -> Sample:
    jax = partial(lax.convert_element_type, new_dtype=dtype.numpy)
    return Sample(Convert(dtype), (operand,), differentiable, jax, **fields)


def reduced(exponent_bits: int, mantissa_bits: int, operand: Factory, *differentiable: int, **fields: Any) -> Sample:
    op: Op = ReducePrecision(exponent_bits, mantissa_bits)
    jax = partial(lax.reduce_precision, exponent_bits=exponent_bits, mantissa_bits=mantissa_bits)
    rounding = 2.0**-mantissa_bits
    return Sample(op, (operand,), differentiable, jax, None, None, rounding, signed_zeros=True, **fields)


def bitcast(dtype: DType, operand: Factory) -> Sample:
    return Sample(BitcastConvert(dtype), (operand,), jax=partial(lax.bitcast_convert_type, new_dtype=dtype.numpy))


SAMPLES = (
    convert(F64, normal(F32, 3, 4), 0),
    convert(C128, normal(C64, 3, 4), 0),
    convert(C64, normal(F32, 3, 4), 0, step=1e-2),
    # Rounding to few bits makes differences coarse: a longer step, exact since the op is linear but for rounding.
    *(convert(dtype, normal(F64, 3, 4), 0, step=0.5) for dtype in (F32, BF16, F16)),
    *(convert(dtype, normal(F32, 3, 4), 0, step=0.5) for dtype in (BF16, F16)),
    convert(C64, normal(C128, 3, 4), 0, step=0.5),
    *(convert(I32, uniform(dtype, -9, 9, 12), 0, step=None) for dtype in (F32, F64, BF16, F16)),
    *(convert(dtype, literal(F32, EDGES), signed_zeros=True, label="edges") for dtype in (F64, BF16, F16, C64)),
    *(convert(dtype, literal(F32, EDGES), label="edges") for dtype in (I8, I16, I32, I64, U8, U32, BOOL)),
    *(convert(dtype, literal(BF16, EDGES), label="edges") for dtype in (I8, I32, BOOL)),
    *(convert(dtype, literal(F64, EDGES), label="edges") for dtype in (I64, U32)),
    *(convert(dtype, integers(I32, -300, 300, 12)) for dtype in (I8, U8, I64, F32, BF16, BOOL, C64)),
    *(convert(dtype, integers(U8, 0, 255, 12)) for dtype in (I8, I32, F16, BOOL)),
    *(convert(dtype, booleans(8)) for dtype in (I32, U8, F32, BF16, C64)),
    *(convert(dtype, normal(F32, 16, scale=100)) for dtype in (F8E4M3FN, F8E5M2)),
    *(convert(F32, uniform(dtype, -9, 9, 8)) for dtype in (F8E4M3FN, F8E5M2)),
    *(convert(dtype, integers(I32, -99, 99, 16)) for dtype in (I4, U4)),
    convert(I32, integers(I4, -8, 7, 16)),
    convert(F32, literal(F32, [1.0])),
    bitcast(I32, normal(F32, 3, 4)),
    bitcast(F32, integers(U32, 0, 2**30, 3, 4)),
    bitcast(BF16, normal(F16, 3, 4)),
    bitcast(U8, normal(F64, 3)),
    bitcast(I16, normal(F32)),
    bitcast(F64, integers(U8, 0, 100, 3, 8)),
    bitcast(U32, integers(I16, -999, 999, 2)),
    *(bitcast(dtype, integers(U8, 0, 255, 3)) for dtype in (I4, U4, U2)),
    *(bitcast(U8, operand) for operand in (integers(U4, 0, 15, 3, 2), integers(I4, -8, 7, 3, 2))),
    bitcast(U2, integers(U4, 0, 15, 3)),
    bitcast(U4, integers(U2, 0, 3, 3, 2)),
    bitcast(U4, integers(I32, -(2**31), 2**31 - 1, 2)),
    convert(BOOL, literal(C64, [0, 1j, 1 + 1j, -1]), label="the imaginary part is dropped"),
    *(reduced(5, 10, normal(dtype, 3, 4), 0) for dtype in (F32, F64, BF16)),
    reduced(8, 7, normal(F32, 3, 4), 0),
    reduced(5, 2, normal(F16, 3, 4), 0),
    *(
        reduced(e, m, literal(F32, [*EDGES, 65504.0, 65520.0, 6.1e-5, 6e-5, 1e-7]), label="edges")
        for e, m in ((5, 10), (8, 7), (4, 0), (8, 23))
    ),
    reduced(5, 10, literal(F32, [1 + 2**-11, 1 + 3 * 2**-11, -(1 + 2**-11), float(np.nextafter(2, 0))]), label="ties"),
)
