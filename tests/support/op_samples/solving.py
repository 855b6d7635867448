"""Rows for ir/ops/solving.py. The factorization among the operands is that of the matrix before them."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from rematc.ir.core import Op
from rematc.ir.ops.elementwise import Numeric
from rematc.ir.ops.solving import Determinant, LinearSolve, LogDeterminant, LuSolve
from rematc.ir.types import C64, C128, F32, F64, I32, DType
from tests.support.matrices import factored, of_rank, regular, rounding
from tests.support.samples import Sample, literal, normal


def matrices(dtype: DType, *shape: int) -> Numeric:
    """Matrices in no order that elimination keeps."""
    return np.asarray(regular(dtype, *shape)(np.random.default_rng(3)))[..., ::-1, :]


def solving(transpose_a: bool, dtype: DType, a: tuple[int, ...], columns: int, **more: Any) -> Sample:
    def in_jax(matrix: Any, lu: Any, permutation: Any, y: Any) -> Any:
        return jnp.linalg.solve(matrix.swapaxes(-1, -2) if transpose_a else matrix, y)

    matrix = matrices(dtype, *a)
    lu, _, permutation = factored(matrix)
    operands = (literal(dtype, matrix), literal(dtype, lu), literal(I32, permutation))
    right = normal(dtype, *a[:-1], columns)
    return Sample(LinearSolve(transpose_a), (*operands, right), tolerance=rounding(dtype), jax=in_jax, **more)


def substituting(transpose_a: bool, dtype: DType, a: tuple[int, ...], columns: int, **more: Any) -> Sample:
    matrix = matrices(dtype, *a)
    lu, _, permutation = factored(matrix)
    operands = (literal(dtype, lu), literal(I32, permutation), normal(dtype, *a[:-1], columns))

    def in_jax(packed: Any, rows: Any, y: Any) -> Any:
        lower = jnp.tril(packed, -1) + jnp.eye(a[-1], dtype=packed.dtype)
        product = jnp.take_along_axis(lower @ jnp.triu(packed), jnp.argsort(rows, -1)[..., None], -2)
        return jnp.linalg.solve(product.swapaxes(-1, -2) if transpose_a else product, y)

    return Sample(LuSolve(transpose_a), operands, tolerance=rounding(dtype), jax=in_jax, **more)


def determining(op: Op, dtype: DType, matrix: Numeric, **more: Any) -> Sample:
    parts = factored(matrix)
    operands = literal(dtype, matrix), literal(dtype, parts[0]), *(literal(I32, part) for part in parts[1:])
    function = jnp.linalg.det if isinstance(op, Determinant) else jnp.linalg.slogdet

    def in_jax(a: Any, lu: Any, pivots: Any, permutation: Any) -> Any:
        return function(a)

    return Sample(op, operands, **{"tolerance": rounding(dtype), "jax": in_jax, **more})


SINGULAR = np.asarray(of_rank(2, F64, 3, 3)(np.random.default_rng(5)))
#: Ranks 3 and 2 of 4; elimination leaves zeros in the middle of the diagonal of u.
FLAT = np.array([[0, 0, 2, 1], [3, 0, 1, 4], [0, 0, 1, 2], [0, 5, 3, 1]], float)[:, [0, 0, 2, 3]] * [1, 2, 1, 1]
FLATTER = FLAT * [1, 1, 0, 1]

SAMPLES = (
    substituting(False, F64, (3, 3), 2, differentiable=(0, 2)),
    substituting(True, F64, (2, 3, 3), 1, differentiable=(0, 2)),
    substituting(False, F32, (2, 2), 3, differentiable=(2,)),
    substituting(True, C128, (3, 3), 2, differentiable=(0, 2)),
    substituting(True, F64, (3, 3), 0),
    solving(False, F64, (3, 3), 2, differentiable=(0, 3)),
    solving(True, F64, (3, 3), 2, differentiable=(0, 3)),
    solving(False, F32, (2, 2, 2), 1, differentiable=(3,)),
    solving(True, F32, (2, 2, 2), 3, differentiable=(0,), label="of the matrix"),
    solving(False, C128, (3, 3), 2, differentiable=(0, 3)),
    solving(True, C64, (3, 3), 2, differentiable=(3,)),
    solving(False, F64, (0, 0), 2),
    solving(False, F64, (3, 3), 0),
    determining(Determinant(), F64, matrices(F64, 3, 3), differentiable=(0,)),
    determining(Determinant(), F64, matrices(F64, 2, 4, 4), differentiable=(0,)),
    determining(Determinant(), C128, matrices(C128, 3, 3), differentiable=(0,)),
    determining(Determinant(), F32, matrices(F32, 2, 2)),
    determining(Determinant(), F64, FLAT, differentiable=(0,), jax=None, label="one zero on the diagonal"),
    determining(Determinant(), F64, FLATTER, differentiable=(0,), jax=None, label="two zeros on the diagonal"),
    determining(Determinant(), F64, np.zeros((2, 0, 0)), label="empty"),
    determining(LogDeterminant(), F64, matrices(F64, 3, 3), differentiable=(0,)),
    determining(LogDeterminant(), F64, matrices(F64, 2, 4, 4), differentiable=(0,)),
    determining(LogDeterminant(), C128, matrices(C128, 3, 3), differentiable=(0,)),
    determining(LogDeterminant(), F32, -matrices(F32, 3, 3)),
    determining(LogDeterminant(), F64, FLAT, label="singular"),
    determining(LogDeterminant(), F64, np.zeros((0, 0)), label="empty"),
)
