"""Import of decompositions of matrices and of solutions of triangular systems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rematc.compiler.frontends.jax.block import Block, imports
from rematc.compiler.frontends.jax.custom_derivatives import with_own_jvp
from rematc.ir.ops.factorization import Lu, Qr
from rematc.ir.ops.spectral import Eig, Eigh, Svd
from rematc.ir.ops.triangular import Cholesky, TriangularSolve
from rematc.ir.values import Value


@imports("cholesky")
def cholesky(block: Block, eqn: Any) -> Sequence[Value]:
    """`cholesky`, the lower factor, with JAX's derivative: it reads both triangles, of which the op has the lower.

    They differ where a matrix is no result of symmetric operations: JAX's gradient is not symmetric there.
    """
    return with_own_jvp(block, eqn, lambda inner, operands: inner.b.emit(Cholesky(True), *operands))


@imports("triangular_solve")
def triangular_solve(block: Block, eqn: Any) -> Sequence[Value]:
    """`triangular_solve`; a matrix that is conjugated but not transposed is conjugated before."""
    a, right = block.operands(eqn)
    params = eqn.params
    is_conjugated = bool(params["conjugate_a"]) and a.type.dtype.is_complex
    transposed = "NO_TRANSPOSE"
    if params["transpose_a"]:
        transposed = "ADJOINT" if is_conjugated else "TRANSPOSE"
    elif is_conjugated:
        a = block.b.conj(a)
    op = TriangularSolve(bool(params["left_side"]), bool(params["lower"]), bool(params["unit_diagonal"]), transposed)
    return block.b.emit(op, a, right)


@imports("lu")
def lu(block: Block, eqn: Any) -> Sequence[Value]:
    """`lu`."""
    return block.b.emit(Lu(), *block.operands(eqn))


@imports("qr")
def qr(block: Block, eqn: Any) -> Sequence[Value]:
    """`qr`; with pivoting as JAX lowers it."""
    if eqn.params.get("pivoting"):
        return block.fallback(eqn)
    return block.b.emit(Qr(bool(eqn.params["full_matrices"])), *block.operands(eqn))


@imports("eigh")
def eigh(block: Block, eqn: Any) -> Sequence[Value]:
    """`eigh`, the vectors first; of a part of the spectrum as JAX lowers it."""
    (a,) = block.operands(eqn)
    if not _is_whole(eqn, a.type.shape[-1]):
        return block.fallback(eqn)
    values, vectors = block.b.emit(Eigh(bool(eqn.params["lower"])), a)
    return [vectors, values]


def _is_whole(eqn: Any, count: int) -> bool:
    part = eqn.params.get("subset_by_index")
    return part is None or tuple(part) == (0, count)


@imports("eig")
def eig(block: Block, eqn: Any) -> Sequence[Value]:
    """`eig`; with left vectors as JAX lowers it."""
    params = eqn.params
    if params["compute_left_eigenvectors"]:
        return block.fallback(eqn)
    return block.b.emit(Eig(bool(params["compute_right_eigenvectors"])), *block.operands(eqn))


@imports("svd")
def svd(block: Block, eqn: Any) -> Sequence[Value]:
    """`svd`, the singular values first; of a part of them as JAX lowers it."""
    (a,) = block.operands(eqn)
    params = eqn.params
    if not _is_whole(eqn, min(a.type.shape[-2:])):
        return block.fallback(eqn)
    results = block.b.emit(Svd(bool(params["full_matrices"]), bool(params["compute_uv"])), a)
    if not params["compute_uv"]:
        return results
    left, values, right = results
    return [values, left, right]
