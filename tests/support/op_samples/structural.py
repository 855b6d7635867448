"""Rows for ir/ops/structural.py. Names and barriers are identities, so JAX's identity judges them."""

from __future__ import annotations

import numpy as np
from jax import lax

from rematc.ir.ops.placement import Placement
from rematc.ir.ops.structural import Constant, Iota, Name, OptimizationBarrier, StopGradient
from rematc.ir.types import BF16, C64, DTYPES, F8E5M2, F8E8M0FNU, F16, F32, F64, I8, I32, U8, Kind, TensorType
from tests.support.samples import Factory, Sample, booleans, integers, literal, normal

#: Whose shortest decimals MLIR must read back to the same bits.
FRACTIONS = [0.1, 1 / 3, -2 / 3, 1e-3, 5e-5, 3.14159265358979, 1e4 / 3]


def constant(make: Factory, label: str = "") -> Sample:
    return Sample(Constant.of(make(np.random.default_rng(5))), (), signed_zeros=True, label=label)


def of_every_type() -> list[Sample]:
    """One element, few, so many that they are printed as bytes, and none."""
    rows = []
    for dtype in DTYPES.values():
        # What all of them hold; e8m0 has powers of two alone.
        values = (0, 1) if dtype.is_bool else (1, 2) if dtype.kind is Kind.UINT or dtype is F8E8M0FNU else (-2, 1)
        for shape in ((), (2, 3), (5, 8), (0, 2)):
            rows.append(constant(literal(dtype, np.resize(values, shape))))
    return rows


SAMPLES = (
    *of_every_type(),
    *(constant(literal(dtype, FRACTIONS), f"{dtype}-fractions") for dtype in (F32, F64, BF16, F16, F8E5M2)),
    constant(literal(C64, [complex(0.0, -0.0), complex(np.nan, 1.5), complex(-np.inf, 0.1)]), "c64-edges"),
    *(constant(normal(dtype, 2, 3), f"{dtype}-array") for dtype in (F32, F64, BF16, C64)),
    *(constant(integers(dtype, 0, 100, 5), f"{dtype}-array") for dtype in (I32, U8)),
    constant(booleans(9), "bool-array"),
    constant(normal(F32), "scalar"),
    constant(normal(F32, 0, 3), "empty"),
    constant(lambda random: np.array([0.0, -0.0, np.inf, -np.inf, np.nan], np.float32), "edges"),
    constant(lambda random: np.array([np.inf, -np.inf, np.nan]).astype(BF16.numpy), "bf16-edges"),
    constant(lambda random: np.array([1e-40, 1.4e-45], np.float32), "subnormal"),
    constant(lambda random: np.array([-(2**63), 2**63 - 1], np.int64), "i64-edges"),
    *(
        Sample(Iota(TensorType(dtype, (3, 4)), dimension), (), label=f"{dtype}-{dimension}")
        for dtype in (F32, BF16, I8, U8, I32, C64)
        for dimension in (0, 1)
    ),
    Sample(Name("x"), (normal(F32, 3),), (0,), lambda x: x),
    # The op that hides its operand from differentiation: differences see what it hides.
    Sample(StopGradient(), (normal(F32, 3),), (0,), lax.stop_gradient, step=None),
    Sample(Placement("sharding_constraint", '<["x"=1]>', ('{"x"}', "{?}")), (normal(F32, 3, 2),), (0,), lambda x: x),
    Sample(OptimizationBarrier(), ()),
    Sample(OptimizationBarrier(), (normal(F32, 3), normal(F64, 2, 2)), (0, 1), lambda x, y: (x, y)),
    Sample(OptimizationBarrier(), (normal(F64, 3), integers(I32, 0, 9, 3)), (0,), lambda x, y: (x, y)),
    Sample(OptimizationBarrier(), (normal(F64, 3), normal(F64, 2)), (1,), lambda x, y: (x, y)),
)
