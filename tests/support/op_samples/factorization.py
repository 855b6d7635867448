"""Rows for ir/ops/factorization.py."""

from __future__ import annotations

from typing import Any

from jax import lax

from rematc.ir.ops.factorization import Lu, Qr
from rematc.ir.types import C64, C128, F32, F64, DType
from tests.support.matrices import of_rank, rounding
from tests.support.samples import Sample, literal, normal


def eliminating(dtype: DType, *shape: int, **more: Any) -> Sample:
    return Sample(Lu(), (normal(dtype, *shape),), tolerance=rounding(dtype), jax=lax.linalg.lu, **more)


def reflecting(full_matrices: bool, dtype: DType, *shape: int, **more: Any) -> Sample:
    def in_jax(a: Any) -> Any:
        return lax.linalg.qr(a, full_matrices=full_matrices)

    return Sample(Qr(full_matrices), (normal(dtype, *shape),), tolerance=rounding(dtype), jax=in_jax, **more)


SAMPLES = (
    eliminating(F64, 4, 4, differentiable=(0,)),
    eliminating(F32, 2, 3, 3, differentiable=(0,)),
    eliminating(F64, 4, 2, differentiable=(0,), label="tall"),
    eliminating(F64, 2, 3, 5, differentiable=(0,), label="wide"),
    eliminating(C128, 3, 3, differentiable=(0,)),
    eliminating(C64, 2, 1, 1),
    Sample(Lu(), (of_rank(1, F64, 3, 3),), tolerance=rounding(F64), label="singular"),
    Sample(Lu(), (literal(F32, [[0, 1], [0, 2]]),), label="nothing to eliminate"),
    eliminating(F64, 0, 0),
    eliminating(F64, 2, 3, 0),
    eliminating(F64, 0, 3),
    eliminating(F64, 0, 3, 3, label="no matrices"),
    reflecting(False, F64, 3, 3, differentiable=(0,)),
    reflecting(False, F32, 2, 4, 2, differentiable=(0,), label="tall"),
    reflecting(False, F64, 2, 2, 4, differentiable=(0,), label="wide"),
    reflecting(True, F64, 4, 2, differentiable=(0,), label="all columns"),
    reflecting(True, F64, 2, 3, differentiable=(0,), label="all columns, wide"),
    reflecting(False, C128, 3, 2, differentiable=(0,)),
    reflecting(True, C128, 3, 2, differentiable=(0,), label="all columns"),
    reflecting(False, F64, 3, 0),
    reflecting(True, F64, 2, 3, 0),
    reflecting(False, F64, 0, 2),
)
