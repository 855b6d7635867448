"""Rows for ir/ops/spectral.py."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from rematc.ir.ops.complex_parts import part_dtype
from rematc.ir.ops.spectral import Eig, Eigh, PseudoInverse, Svd
from rematc.ir.types import C64, C128, F32, F64, DType
from tests.support.matrices import of_rank, regular, rounding, symmetric
from tests.support.samples import Factory, Sample, literal, normal


def hermitian(op: Eigh, dtype: DType, *shape: int, **more: Any) -> Sample:
    def in_jax(a: Any) -> Any:
        v, w = lax.linalg.eigh(a, lower=op.lower)
        return (w, v) if op.vectors else w

    # Differences of the triangle that is read are not those of a Hermitian matrix: JAX judges the derivative.
    return Sample(
        op, (symmetric(dtype, *shape),), **{"tolerance": rounding(dtype), "jax": in_jax, "step": None, **more}
    )


def general(op: Eig, dtype: DType, *shape: int, **more: Any) -> Sample:
    def in_jax(a: Any) -> Any:
        options: Any = {"compute_left_eigenvectors": False, "enable_eigvec_derivs": True}
        return lax.linalg.eig(a, compute_right_eigenvectors=op.vectors, **options)

    return Sample(op, (regular(dtype, *shape),), **{"tolerance": rounding(dtype), "jax": in_jax, **more})


def singular(op: Svd, dtype: DType, *shape: int, **more: Any) -> Sample:
    def in_jax(a: Any) -> Any:
        return lax.linalg.svd(a, full_matrices=op.full_matrices, compute_uv=op.vectors)

    return Sample(op, (normal(dtype, *shape),), **{"tolerance": rounding(dtype), "jax": in_jax, **more})


def inverting(dtype: DType, a: Factory, batch: tuple[int, ...] = (), **more: Any) -> Sample:
    def in_jax(matrix: Any, cutoff: Any) -> Any:
        return jnp.linalg.pinv(matrix, rtol=cutoff)

    cutoff = literal(part_dtype(dtype), np.full(batch, 1e-4))

    return Sample(PseudoInverse(), (a, cutoff), **{"tolerance": rounding(dtype), "jax": in_jax, **more})


SAMPLES = (
    hermitian(Eigh(), F64, 3, 3, differentiable=(0,)),
    hermitian(Eigh(), F32, 2, 3, 3, differentiable=(0,)),
    hermitian(Eigh(lower=False), F64, 3, 3, differentiable=(0,), label="upper"),
    hermitian(Eigh(vectors=False), F64, 2, 3, 3, differentiable=(0,), label="values"),
    hermitian(Eigh(), C128, 3, 3, differentiable=(0,)),
    hermitian(Eigh(vectors=False), C64, 3, 3),
    hermitian(Eigh(), F64, 2, 0, 0, jax=None),
    general(Eig(), F64, 3, 3, differentiable=(0,)),
    general(Eig(), F32, 2, 3, 3),
    general(Eig(), C128, 3, 3, differentiable=(0,)),
    general(Eig(vectors=False), F64, 2, 3, 3, differentiable=(0,), label="values"),
    general(Eig(vectors=False), C128, 3, 3, differentiable=(0,), label="values"),
    general(Eig(), F64, 0, 0, jax=None),
    singular(Svd(), F64, 3, 3, differentiable=(0,)),
    singular(Svd(), F32, 2, 4, 2, differentiable=(0,), label="tall"),
    singular(Svd(), F64, 2, 4, differentiable=(0,), label="wide"),
    singular(Svd(True), F64, 3, 3, differentiable=(0,), label="full"),
    singular(Svd(True), F64, 2, 4, 2, label="full, tall"),
    singular(Svd(vectors=False), F64, 2, 2, 3, differentiable=(0,), label="values"),
    # LAPACK gives the vectors some phase; the derivative keeps it as JAX's does.
    singular(Svd(), C128, 3, 2, differentiable=(0,), step=None),
    singular(Svd(vectors=False), C64, 2, 3),
    singular(Svd(), F64, 2, 3, 0, jax=None),
    singular(Svd(True), F64, 3, 0, label="full", jax=None),
    singular(Svd(vectors=False), F64, 0, 2, jax=None),
    inverting(F64, regular(F64, 3, 3), differentiable=(0,)),
    inverting(F64, normal(F64, 2, 4, 2), (2,), differentiable=(0,), label="tall"),
    inverting(F32, normal(F32, 2, 3), differentiable=(0,), label="wide"),
    inverting(C128, normal(C128, 3, 2), differentiable=(0,)),
    inverting(F64, of_rank(1, F64, 3, 2), differentiable=(0,), step=None, label="rank deficient"),
    inverting(F64, normal(F64, 2, 0), jax=None),
)
