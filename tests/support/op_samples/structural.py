"""Rows for ir/ops/structural.py. Names and barriers are identities, so JAX's identity judges them."""

from __future__ import annotations

import numpy as np
from jax import lax

from rematc.ir.ops.structural import Constant, Iota, Name, OptimizationBarrier, StopGradient
from rematc.ir.types import BF16, C64, F32, F64, I8, I32, U8, TensorType
from tests.support.samples import Factory, Sample, booleans, integers, normal


def constant(make: Factory, label: str = "") -> Sample:
    return Sample(Constant.of(make(np.random.default_rng(5))), (), label=label)


SAMPLES = (
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
    Sample(OptimizationBarrier(), (normal(F32, 3), normal(F64, 2, 2)), (0, 1), lambda x, y: (x, y)),
    Sample(OptimizationBarrier(), (normal(F64, 3), integers(I32, 0, 9, 3)), (0,), lambda x, y: (x, y)),
    Sample(OptimizationBarrier(), (normal(F64, 3), normal(F64, 2)), (1,), lambda x, y: (x, y)),
)
