"""Export of decompositions of matrices and what is solved with them. Derivatives are ours."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from rematc.ir.core import Equation, Op
from rematc.ir.ops import factorization, solving, spectral, triangular
from rematc.ir.types import C64, C128, F32, F64
from rematc.lowering.jax_export.evaluating import exports, lax, with_own_jvp
from rematc.lowering.jax_export.opaque import opaque

#: What LAPACK computes with, and the libraries of other platforms.
_ELEMENTS = (F32, F64, C64, C128)


def _by_lax(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """JAX's decomposition where it takes the operand, else our own program."""
    (*_, last) = eqn.operands
    if last.type.dtype not in _ELEMENTS or not last.type.size:
        return opaque(eqn, operands)
    return with_own_jvp(_decomposition(eqn.op), eqn, operands)


@functools.lru_cache(maxsize=64)
def _decomposition(op: Op) -> Callable[..., Sequence[Any]]:
    match op:
        case triangular.Cholesky(lower=lower):
            return functools.partial(_cholesky, lower)
        case factorization.Lu():
            return lambda a: tuple(lax.linalg.lu(a))
        case factorization.Qr(full_matrices=full):
            return lambda a: tuple(lax.linalg.qr(a, full_matrices=full))
        case spectral.Eigh(lower=lower, vectors=vectors):
            return functools.partial(_eigh, lower, vectors)
        case spectral.Eig(vectors=vectors):
            return lambda a: tuple(
                lax.linalg.eig(a, compute_left_eigenvectors=False, compute_right_eigenvectors=vectors)
            )
        case spectral.Svd(full_matrices=full, vectors=vectors):
            return functools.partial(_svd, full, vectors)
    raise AssertionError(f"'{op.name}' is a decomposition")


def _adjoint(a: Any) -> Any:
    rank = len(a.shape)
    turned = lax.transpose(a, (*range(rank - 2), rank - 1, rank - 2))
    return lax.conj(turned) if a.dtype.kind == "c" else turned


def _cholesky(lower: bool, a: Any) -> Sequence[Any]:
    if lower:
        return (lax.linalg.cholesky(a, symmetrize_input=False),)
    return (_adjoint(lax.linalg.cholesky(_adjoint(a), symmetrize_input=False)),)


def _eigh(lower: bool, vectors: bool, a: Any) -> Sequence[Any]:
    v, w = lax.linalg.eigh(a, lower=lower, symmetrize_input=False)
    return (w, v) if vectors else (w,)


def _svd(full: bool, vectors: bool, a: Any) -> Sequence[Any]:
    found: Any = lax.linalg.svd(a, full_matrices=full, compute_uv=vectors)
    return tuple(found) if vectors else (found,)


exports(
    triangular.Cholesky,
    factorization.Lu,
    factorization.Qr,
    spectral.Eigh,
    spectral.Eig,
    spectral.Svd,
)(_by_lax)
exports(spectral.PseudoInverse, solving.LinearSolve, solving.LuSolve, solving.Determinant, solving.LogDeterminant)(
    opaque
)


@exports(triangular.TriangularSolve)
def triangular_solve(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.linalg.triangular_solve`."""
    op = eqn.op
    assert isinstance(op, triangular.TriangularSolve)
    if eqn.operands[0].type.dtype not in _ELEMENTS:
        return opaque(eqn, operands)
    found = lax.linalg.triangular_solve(
        *operands,
        left_side=op.left_side,
        lower=op.lower,
        transpose_a=op.transpose_a != "NO_TRANSPOSE",
        conjugate_a=op.transpose_a == "ADJOINT",
        unit_diagonal=op.unit_diagonal,
    )
    return (found,)
