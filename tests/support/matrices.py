"""Operands for linear algebra: matrices whose decompositions are far from the places where they have no derivative."""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack

from rematc.ir.ops.elementwise import Numeric
from rematc.ir.types import DType
from rematc.ir.values import Array
from tests.support.samples import Factory, Tolerance, epsilon, normal


def rounding(dtype: DType) -> Tolerance:
    """Of matrices of a few rows whose condition is below 100."""
    unit = epsilon(dtype)
    return Tolerance(1e3 * unit, 3e2 * unit, "steps are rounded in different orders, and the condition multiplies it")


def transposed(x: Numeric) -> Numeric:
    """The transpose of each matrix."""
    return x.swapaxes(-1, -2)


def regular(dtype: DType, *shape: int) -> Factory:
    """Square matrices that are far from singular."""

    def make(random: np.random.Generator) -> Array:
        x: Numeric = normal(dtype, *shape)(random)
        return np.asarray(x / 2 + 2 * np.eye(shape[-1])).astype(dtype.numpy)

    return make


def symmetric(dtype: DType, *shape: int) -> Factory:
    """Hermitian matrices whose eigenvalues lie apart."""

    def make(random: np.random.Generator) -> Array:
        x: Numeric = normal(dtype, *shape)(random)
        return np.asarray((x + transposed(x).conj()) / 2 + 3 * np.diag(np.arange(shape[-1]))).astype(dtype.numpy)

    return make


def definite(dtype: DType, *shape: int) -> Factory:
    """Hermitian positive definite matrices."""

    def make(random: np.random.Generator) -> Array:
        x: Numeric = normal(dtype, *shape)(random)
        return np.asarray(x @ transposed(x).conj() / 2 + np.eye(shape[-1])).astype(dtype.numpy)

    return make


def of_rank(rank: int, dtype: DType, m: int, n: int) -> Factory:
    """A matrix of this rank."""

    def make(random: np.random.Generator) -> Array:
        left: Numeric = normal(dtype, m, rank)(random)
        right: Numeric = normal(dtype, rank, n)(random)
        return np.asarray(left @ right).astype(dtype.numpy)

    return make


def factored(matrix: Numeric) -> tuple[Numeric, Numeric, Numeric]:
    """The lu, pivots and permutation of each matrix, as `Lu` has them."""
    n = matrix.shape[-1]
    lu, pivots = np.empty_like(matrix), np.empty(matrix.shape[:-1], np.int32)
    permutation = np.broadcast_to(np.arange(n, dtype=np.int32), pivots.shape).copy()
    (getrf,) = lapack.get_lapack_funcs(("getrf",), (matrix,))
    for index in np.ndindex(*matrix.shape[:-2]):
        lu[index], pivots[index], _ = getrf(matrix[index])
        for step, pivot in enumerate(pivots[index]):
            permutation[index][[step, pivot]] = permutation[index][[pivot, step]]
    return lu, pivots, permutation
