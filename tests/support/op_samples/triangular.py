"""Rows for ir/ops/triangular.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax

from rematc.ir.ops.triangular import Cholesky, TriangularSolve
from rematc.ir.types import BF16, C64, C128, F16, F32, F64, DType
from tests.support.matrices import definite, regular, rounding
from tests.support.samples import Sample, Tolerance, literal, normal

NARROW = Tolerance(2**-5, 2**-5, "16-bit numbers are rounded at each step, or once")


def solving(
    op: TriangularSolve,
    dtype: DType,
    a: Sequence[int],
    y: Sequence[int],
    differentiable: tuple[int, ...] = (),
    **more: Any,
) -> Sample:
    def in_jax(matrix: Any, right: Any) -> Any:
        return lax.linalg.triangular_solve(
            matrix,
            right,
            left_side=op.left_side,
            lower=op.lower,
            transpose_a=op.transpose_a != "NO_TRANSPOSE",
            conjugate_a=op.transpose_a == "ADJOINT",
            unit_diagonal=op.unit_diagonal,
        )

    more = {"tolerance": rounding(dtype), "jax": in_jax, **more}
    return Sample(op, (regular(dtype, *a), normal(dtype, *y)), differentiable, **more)


def factoring(dtype: DType, *shape: int, lower: bool = True, **more: Any) -> Sample:
    return Sample(Cholesky(lower), (definite(dtype, *shape),), tolerance=rounding(dtype), **more)


def in_jax(a: Any) -> Any:
    return lax.linalg.cholesky(a)


def upper_in_jax(a: Any) -> Any:
    return lax.linalg.cholesky(a).swapaxes(-1, -2)


SAMPLES = (
    # Differences of the triangle that is read are not those of a Hermitian matrix: JAX judges the derivative.
    factoring(F64, 3, 3, differentiable=(0,), jax=in_jax, step=None),
    factoring(F32, 2, 3, 3, differentiable=(0,), jax=in_jax, step=None),
    factoring(F64, 3, 3, lower=False, differentiable=(0,), jax=upper_in_jax, step=None, label="upper"),
    factoring(C128, 3, 3, differentiable=(0,), jax=in_jax, step=None),
    factoring(C64, 3, 3, lower=False),
    Sample(Cholesky(True), (definite(BF16, 3, 3),), tolerance=NARROW),
    Sample(Cholesky(True), (literal(F64, [[[4, 9], [2, 5]], [[1, 0], [2, 1]]]),), label="not definite, upper not read"),
    Sample(Cholesky(True), (literal(F32, np.zeros((2, 0, 0))),), label="empty"),
    solving(TriangularSolve(True, True), F64, (3, 3), (3, 2), (0, 1)),
    solving(TriangularSolve(True, False), F32, (2, 3, 3), (2, 3, 1), (0, 1)),
    solving(TriangularSolve(False, True), F64, (3, 3), (2, 3), (0, 1)),
    solving(TriangularSolve(False, False), F64, (2, 2, 2), (2, 1, 2), (0,), label="of the matrix"),
    solving(TriangularSolve(True, True, True), F64, (3, 3), (3, 2), (0, 1), label="unit"),
    solving(TriangularSolve(True, True, False, "TRANSPOSE"), F64, (3, 3), (3, 2), (0, 1)),
    solving(TriangularSolve(False, False, True, "TRANSPOSE"), F64, (3, 3), (2, 3), (0, 1)),
    solving(TriangularSolve(True, False, False, "ADJOINT"), F64, (3, 3), (3, 2), (0, 1)),
    solving(TriangularSolve(True, True), C128, (3, 3), (3, 2), (0, 1)),
    solving(TriangularSolve(False, True, False, "TRANSPOSE"), C64, (3, 3), (2, 3), (0, 1)),
    solving(TriangularSolve(True, True, False, "ADJOINT"), C128, (3, 3), (3, 2), (0, 1)),
    solving(TriangularSolve(True, True), F16, (3, 3), (3, 2), tolerance=NARROW, jax=None),
    solving(TriangularSolve(True, True), F64, (0, 0), (0, 2), jax=None, label="nothing unknown"),
    solving(TriangularSolve(True, True), F64, (2, 2), (2, 0), jax=None, label="nothing asked"),
)
