"""Rows for linear algebra: of matrices near a diagonal with distinct entries, so that rounding moves results a little.

Eigenvalues and singular values are drawn without their vectors, whose signs rounding may turn.
"""

from __future__ import annotations

import numpy as np

from rematc.ir.ops.factorization import Lu, Qr
from rematc.ir.ops.solving import Determinant, LinearSolve, LogDeterminant, LuSolve
from rematc.ir.ops.spectral import Eig, Eigh, PseudoInverse, Svd
from rematc.ir.ops.structural import Constant
from rematc.ir.ops.transcendental import Tanh
from rematc.ir.ops.triangular import Cholesky, TriangularSolve
from rematc.ir.types import F32, F64, TensorType
from rematc.ir.values import Value
from tests.support.drawing import Drawing, Row


def _is_square(type: TensorType) -> bool:
    return type.dtype in (F32, F64) and type.shape == (3, 3)


def _matrix(d: Drawing) -> Value | None:
    """diag(2, 4, 6) and up to a quarter of each way, whatever the elements of the value that it is made of."""
    x = d.pick(_is_square)
    if x is None:
        return None
    numbers = d.b.select(d.b.compare(x, x, "EQ"), x, d.b.zeros(x.type))
    diagonal = d.b.emit1(Constant.of(np.diag([2, 4, 6]).astype(x.type.dtype.numpy)))
    return d.b.add(d.b.scale(d.b.emit1(Tanh(), numbers), 0.25), diagonal)


def _triangular(d: Drawing) -> tuple[Value, ...]:
    a = _matrix(d)
    if a is None:
        return ()
    if d.flip():
        return d.emit(Cholesky(d.flip()), a)
    op = TriangularSolve(d.flip(), d.flip(), d.flip(), d.one_of(("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")))
    return d.emit(op, a, d.like(a))


def _factored(d: Drawing) -> tuple[Value, ...]:
    a = _matrix(d)
    if a is None:
        return ()
    lu, pivots, permutation = d.emit(Lu(), a)
    match d.integer(0, 4):
        case 0:
            return lu, pivots, permutation
        case 1:
            return d.emit(LinearSolve(d.flip()), a, lu, permutation, d.like(a))
        case 2:
            return d.emit(LuSolve(d.flip()), lu, permutation, d.like(a))
        case 3:
            return d.emit(Determinant(), a, lu, pivots, permutation)
    return d.emit(LogDeterminant(), a, lu, pivots, permutation)


def _decomposed(d: Drawing) -> tuple[Value, ...]:
    a = _matrix(d)
    if a is None:
        return ()
    if d.integer(0, 4) == 0:
        return d.emit(PseudoInverse(), a, d.scalar(1e-3, a.type.dtype))
    ops = (Qr(d.flip()), Eigh(d.flip(), vectors=False), Eig(vectors=False), Svd(vectors=False))
    return d.emit(d.one_of(ops), a)


ROWS = (
    Row((Cholesky, TriangularSolve), _triangular),
    Row((Lu, LinearSolve, LuSolve, Determinant, LogDeterminant), _factored),
    Row((Qr, Eigh, Eig, Svd, PseudoInverse), _decomposed),
)
