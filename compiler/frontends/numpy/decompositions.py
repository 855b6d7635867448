"""Decompositions of matrices: np.linalg's cholesky, qr, eigenvalues, singular values, and what follows from them.

Where NumPy raises LinAlgError (a matrix that is not positive definite, an iteration that does not converge) the result
is NaN: whether it happens is known when the program runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rematc.compiler.frontends.numpy.elementwise import truth
from rematc.compiler.frontends.numpy.matrices import floating, matrix, of_lower_triangle, square
from rematc.compiler.frontends.numpy.operands import ArrayLike, broadcast_operand, fail, here, wrap
from rematc.compiler.tracing.trace import Tracer
from rematc.ir.ops.complex_parts import part_dtype
from rematc.ir.ops.factorization import Qr
from rematc.ir.ops.matrices import batch_of
from rematc.ir.ops.spectral import Eig, Eigh, PseudoInverse, Svd
from rematc.ir.ops.triangular import Cholesky
from rematc.ir.types import I64, DType
from rematc.ir.values import Value

# NumPy's own result types, which it has no public names for.
_ONE = np.eye(1)
EigResult: Any = type(np.linalg.eig(_ONE))
EighResult: Any = type(np.linalg.eigh(_ONE))
QRResult: Any = type(np.linalg.qr(_ONE))
SVDResult: Any = type(np.linalg.svd(_ONE))

#: NumPy's cutoff for pinv where none is given.
_PINV_CUTOFF = 1e-15


def cholesky(a: ArrayLike, /, *, upper: bool = False) -> Tracer:
    """As np.linalg.cholesky; NaN where a matrix is not positive definite. Gradients are Hermitian."""
    return wrap(here().emit1(Cholesky(not upper), square("np.linalg.cholesky", a)))


def qr(a: ArrayLike, mode: str = "reduced") -> Any:
    """As np.linalg.qr, in the modes reduced, complete and r."""
    x = matrix("np.linalg.qr", a)
    if mode not in ("reduced", "complete", "r"):
        fail(f"np.linalg.qr(..., mode={mode!r}) is not supported; use 'reduced', 'complete' or 'r'")
    q, r = here().emit(Qr(full_matrices=mode == "complete"), x)
    return wrap(r) if mode == "r" else QRResult(wrap(q), wrap(r))


def eigh(a: ArrayLike, UPLO: str = "L") -> Any:  # noqa: N803  # NumPy's parameter
    """As np.linalg.eigh. Gradients are Hermitian; those of vectors exist where eigenvalues differ."""
    w, v = here().emit(Eigh(_is_lower(UPLO, "np.linalg.eigh")), square("np.linalg.eigh", a))
    return EighResult(wrap(w), wrap(v))


def eigvalsh(a: ArrayLike, UPLO: str = "L") -> Tracer:  # noqa: N803  # NumPy's parameter
    """As np.linalg.eigvalsh."""
    what = "np.linalg.eigvalsh"
    # With the vectors, which derivatives need; `dce` takes them away where there are none.
    return wrap(here().emit(Eigh(_is_lower(UPLO, what)), square(what, a))[0])


def _is_lower(triangle: str, what: str) -> bool:
    if triangle not in ("L", "l", "U", "u"):
        fail(f"{what}(..., UPLO={triangle!r}): the triangle is 'L' or 'U'")
    return triangle in ("L", "l")


def eig(a: ArrayLike) -> Any:
    """As np.linalg.eig, but always complex: whether all eigenvalues are real is known when the program runs."""
    w, v = here().emit(Eig(), square("np.linalg.eig", a))
    return EigResult(wrap(w), wrap(v))


def eigvals(a: ArrayLike) -> Tracer:
    """As np.linalg.eigvals, but always complex."""
    return wrap(here().emit(Eig(), square("np.linalg.eigvals", a))[0])


def svd(a: ArrayLike, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    """As np.linalg.svd. Gradients of vectors exist where singular values differ, and for a square matrix or
    `full_matrices=False`.
    """
    x = _given("np.linalg.svd", a, hermitian)
    if not compute_uv:
        return wrap(singular_values(x))
    u, s, vh = here().emit(Svd(bool(full_matrices)), x)
    return SVDResult(wrap(u), wrap(s), wrap(vh))


def svdvals(x: ArrayLike, /) -> Tracer:
    """As np.linalg.svdvals."""
    return wrap(singular_values(matrix("np.linalg.svdvals", x)))


def singular_values(x: Value) -> Value:
    """The singular values of matrices in the last two dimensions, descending."""
    return here().emit(Svd(), x)[1]


def _given(what: str, a: ArrayLike, is_hermitian: bool) -> Value:
    return of_lower_triangle(square(what, a)) if is_hermitian else matrix(what, a)


class _NumPysDefault:
    """The value of `rtol` in pinv where it is left out: None means something else."""


def pinv(a: ArrayLike, rcond: object = None, hermitian: bool = False, *, rtol: object = _NumPysDefault) -> Tracer:
    """As np.linalg.pinv. Gradients exist where the rank does not change nearby.

    In single precision, where NumPy computes in double, singular values that are rounding errors do not count.
    """
    x = _given("np.linalg.pinv", a, hermitian)
    if rcond is not None and rtol is not _NumPysDefault:
        fail("np.linalg.pinv takes rcond or rtol, not both")
    noise = max(x.type.shape[-2:]) * resolution(x.type.dtype)
    if rcond is None and rtol is _NumPysDefault:
        rcond = max(_PINV_CUTOFF, 0.0 if resolution(x.type.dtype) < 1e-10 else noise)
    elif rcond is None:
        rcond = noise if rtol is None else rtol
    return wrap(pseudo_inverse(x, rcond))


def pseudo_inverse(x: Value, rcond: ArrayLike) -> Value:
    """The pseudo-inverse; singular values up to `rcond` times the largest count as zero."""
    return here().emit1(PseudoInverse(), x, broadcast_operand(rcond, part_dtype(x.type.dtype), batch_of(x.type)))


def resolution(dtype: DType) -> float:
    """The distance from 1 to the next number, in a real or complex type."""
    return float(np.finfo(np.dtype(dtype.numpy.char)).eps)


def matrix_rank(A: ArrayLike, tol: object = None, hermitian: bool = False, *, rtol: object = None) -> Tracer:  # noqa: N803
    """As np.linalg.matrix_rank."""
    b = here()
    if tol is not None and rtol is not None:
        fail("np.linalg.matrix_rank takes tol or rtol, not both")
    (vector,) = floating("np.linalg.matrix_rank", A)
    if vector.type.rank < 2:
        # NumPy answers with a Python integer here.
        return wrap(b.convert(b.reduce_or(truth(b, vector), range(vector.type.rank)), I64), weak=True)
    s = singular_values(_given("np.linalg.matrix_rank", A, hermitian))
    last = s.type.rank - 1
    if s.type.shape[last] == 0:
        return wrap(b.full(s.type.with_shape(s.type.shape[:-1]).with_dtype(I64), 0))
    if tol is None:
        relative = max(vector.type.shape[-2:]) * resolution(s.type.dtype) if rtol is None else rtol
        largest = b.reduce_max(s, (last,))
        bound = b.multiply(largest, broadcast_operand(relative, s.type.dtype, largest.type.shape))
    else:
        bound = broadcast_operand(tol, s.type.dtype, s.type.shape[:-1])
    counts = b.compare(s, b.broadcast_in_dim(bound, s.type.shape, range(last)), "GT")
    return wrap(b.reduce_sum(b.convert(counts, I64), (last,)))


FUNCTIONS: dict[Callable[..., object], Callable[..., object]] = {
    np.linalg.cholesky: cholesky,
    np.linalg.qr: qr,
    np.linalg.eigh: eigh,
    np.linalg.eigvalsh: eigvalsh,
    np.linalg.eig: eig,
    np.linalg.eigvals: eigvals,
    np.linalg.svd: svd,
    np.linalg.svdvals: svdvals,
    np.linalg.pinv: pinv,
    np.linalg.matrix_rank: matrix_rank,
}
