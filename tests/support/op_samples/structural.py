"""Rows for ir/ops/structural.py."""

from __future__ import annotations

import math

import numpy as np
from jax import lax

from rematc.ir.ops.structural import Constant, Iota, Name, OptimizationBarrier, StopGradient
from rematc.ir.types import BF16, C64, DTYPES, F32, F64, I32, DType, TensorType
from tests.support.samples import Sample, booleans, integers, normal


def constants() -> list[Sample]:
    """Of every element type: one repeated element, few, and so many that they are printed as bytes."""
    rows = []
    for dtype in DTYPES.values():
        random = np.random.default_rng(3)
        for shape in ((), (2, 3), (5, 8), (0, 2)):
            whole = random.integers(0, 2, shape) if dtype.is_bool else random.integers(-2, 2, shape)
            rows.append(constant(dtype, whole + 2 if dtype.name[0] == "u" or "e8m0" in dtype.name else whole))
    return rows


def constant(dtype: DType, values: object, label: str = "") -> Sample:
    return Sample(Constant.of(np.asarray(values).astype(dtype.numpy)), (), signed_zeros=True, label=label)


SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 0.1, 1e-45, 3.4e38, 1 / 3]

SAMPLES = (
    *constants(),
    *[constant(dtype, SPECIAL, f"special {dtype}") for dtype in (F32, F64, BF16)],
    constant(C64, [complex(0.0, -0.0), complex(math.nan, 1.5), complex(-math.inf, 0.1)], "special c64"),
    Sample(Iota(TensorType(I32, (3,)), 0), ()),
    Sample(Iota(TensorType(F32, (2, 3)), 1), (), jax=lambda: lax.broadcasted_iota(np.float32, (2, 3), 1)),
    Sample(Iota(TensorType(C64, (2, 3)), 0), ()),
    Sample(Name("rows"), (normal(F32, 3),), differentiable=(0,)),
    # Only JAX's meaning of the tangent: the function itself has a slope.
    Sample(StopGradient(), (normal(F32, 3),), differentiable=(0,), jax=lax.stop_gradient, step=None),
    Sample(
        OptimizationBarrier(),
        (normal(F32, 3), integers(I32, -9, 9, 2), normal(F64, 2)),
        differentiable=(0, 2),
        jax=lambda *xs: lax.optimization_barrier(xs),  # type: ignore[no-untyped-call]  # JAX leaves it unannotated
    ),
    Sample(OptimizationBarrier(), (booleans(2),)),
    Sample(OptimizationBarrier(), ()),
)
