"""Functions of a matrix that are computed with the help of its LU factorization: solutions, determinants.

Operands are the matrix a and results of `lu` of a. The factorization is a means: derivatives go to a, by the formula
for the function itself, and not through the factorization, whose derivative costs more and ends where a is singular.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas, lapack

from rematc.ir.batches import Batch
from rematc.ir.core import Emitter, Op
from rematc.ir.errors import TypeMismatchError
from rematc.ir.ops.batching import batch_alike
from rematc.ir.ops.complex_parts import Complex, Imag, part_dtype
from rematc.ir.ops.elementwise import NOT_LINEAR, Numeric, check_arity
from rematc.ir.ops.matrices import (
    as_columns,
    as_rows,
    band,
    batch_of,
    check_matrices,
    check_square,
    diagonal,
    identity,
    lower_triangle,
    matmul,
    one_by_one,
    per_matrix,
    put_rows,
    real_part,
    take_rows,
    transposed,
    upper_triangle,
    where_all,
)
from rematc.ir.ops.reduction import ReduceProd
from rematc.ir.ops.triangular import TriangularSolve
from rematc.ir.registry import register
from rematc.ir.slicings import Slicing, along_leading
from rematc.ir.types import I32, TensorType
from rematc.ir.values import Array, Derivatives, Operands, Primals, Tangents, Types, Value, known


def _check_factored(op: Op, a: TensorType, lu: TensorType, vectors: Sequence[TensorType]) -> None:
    """Raise TypeMismatchError unless these are a square matrix and results of its `lu`."""
    check_matrices(op, a)
    check_square(op, a)
    expected = TensorType(I32, a.shape[:-1], a.on_host)
    if lu != a or any(vector != expected for vector in vectors):
        found = ", ".join(map(str, (lu, *vectors)))
        raise TypeMismatchError(f"'{op.name}' of {a} takes its factorization, {a} and {expected}, got {found}")


@register
@dataclass(frozen=True, slots=True)
class LinearSolve(Op):
    """x with a x = y, or aᵀ x = y. Operands: a, its lu and permutation, y, of one batch.

    dx = a⁻¹ (dy - da x), by `lu_solve`, so that a itself need not be kept.

    Attributes:
        transpose_a: whether the system is that of aᵀ.
    """

    name = "linear_solve"
    transpose_a: bool = False

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 4)
        a, lu, permutation, y = operands
        _check_factored(self, a, lu, [permutation])
        return _solution(self, lu, y)

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return one_by_one(self, self._solve, operands)

    def _solve(self, a: Numeric, lu: Numeric, permutation: Numeric, y: Numeric) -> tuple[Numeric]:
        if not y.size:
            return (y,)
        getrf, getrs = lapack.get_lapack_funcs(("getrf", "getrs"), (a, y))
        factored, pivots, _ = getrf(a)
        return (getrs(factored, pivots, y, trans=int(self.transpose_a))[0],)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        (_, lu, permutation, _), (x,), (ta, *_, ty) = primals, results, tangents
        right = ty
        if ta is not None:
            moved = matmul(b, transposed(b, ta) if self.transpose_a else ta, x)
            right = b.negate(moved) if right is None else b.subtract(right, moved)
        return (None if right is None else b.emit1(LuSolve(self.transpose_a), lu, permutation, right),)

    def transpose(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        """By the factors as well. Only rules of users solve for tangents with a itself."""
        (ct,), (_, lu, permutation, _) = cts, operands
        if ct is None:
            return (None, None, None, None)
        lu = known(lu, "linear_solve is not linear in the factors")
        permutation = known(permutation, "linear_solve is not linear in the permutation")
        return (None, None, None, b.emit1(LuSolve(not self.transpose_a), lu, permutation, ct))

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        return batch_alike(self, b, batch)

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        return along_leading(operands[0].rank - 2, operands, results)

    def flops(self, operands: Types, results: Types) -> int:
        return 2 * results[0].size * operands[0].shape[-1]


@register
@dataclass(frozen=True, slots=True)
class LuSolve(Op):
    """x with a x = y, or aᵀ x = y, from a's lu and permutation alone. Linear in y.

    With da = pᵀ (dl u + l du): dx = a⁻¹ (dy - da x).

    Attributes:
        transpose_a: whether the system is that of aᵀ.
    """

    name = "lu_solve"
    transpose_a: bool = False

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 3)
        lu, permutation, y = operands
        _check_factored(self, lu, lu, [permutation])
        return _solution(self, lu, y)

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return one_by_one(self, self._solve, operands)

    def _solve(self, lu: Numeric, permutation: Numeric, y: Numeric) -> tuple[Numeric]:
        if not y.size:
            return (y,)
        (trsm,) = blas.get_blas_funcs(("trsm",), (lu, y))
        if not self.transpose_a:
            return (trsm(1, lu, trsm(1, lu, y[permutation], lower=True, diag=True)),)
        inner = trsm(1, lu, trsm(1, lu, y, trans_a=1), lower=True, diag=True, trans_a=1)
        return (inner[np.argsort(permutation)],)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        (lu, permutation, _), (x,), (t, _, ty) = primals, results, tangents
        right = ty
        if t is not None:
            moved = self._moved(b, lu, permutation, t, x)
            right = b.negate(moved) if right is None else b.subtract(right, moved)
        return (None if right is None else b.emit1(self, lu, permutation, right),)

    def _moved(self, b: Emitter, lu: Value, permutation: Value, t: Value, x: Value) -> Value:
        """da x, or daᵀ x."""
        lower, upper = b.add(lower_triangle(b, lu, -1), identity(b, lu.type)), upper_triangle(b, lu)
        dl, du = lower_triangle(b, t, -1), upper_triangle(b, t)
        if self.transpose_a:
            lower, upper, dl, du = (transposed(b, factor) for factor in (upper, lower, du, dl))
            x = take_rows(b, x, permutation)
        moved = b.add(matmul(b, dl, matmul(b, upper, x)), matmul(b, lower, matmul(b, du, x)))
        return moved if self.transpose_a else put_rows(b, moved, permutation)

    def transpose(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        (ct,), (lu, permutation, _) = cts, operands
        if ct is None:
            return (None, None, None)
        lu = known(lu, "lu_solve is not linear in the factors")
        permutation = known(permutation, "lu_solve is not linear in the permutation")
        return (None, None, b.emit1(LuSolve(not self.transpose_a), lu, permutation, ct))

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        return batch_alike(self, b, batch)

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        return along_leading(operands[0].rank - 2, operands, results)

    def flops(self, operands: Types, results: Types) -> int:
        return 2 * results[0].size * operands[0].shape[-1]


def _solution(op: Op, lu: TensorType, y: TensorType) -> tuple[TensorType]:
    if y.dtype is not lu.dtype or y.rank != lu.rank or y.shape[:-1] != lu.shape[:-1]:
        raise TypeMismatchError(f"'{op.name}' of {lu} takes right sides {lu.with_shape(lu.shape[:-1])} x k, got {y}")
    return (y,)


@register
@dataclass(frozen=True, slots=True)
class Determinant(Op):
    """The determinant. Operands: a, its lu, pivots and permutation.

    da gives the sum of its products with the cofactors of a, singular or not.
    """

    name = "determinant"
    no_transpose = NOT_LINEAR

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 4)
        _check_factored(self, operands[0], operands[1], operands[2:])
        return (operands[0].with_shape(batch_of(operands[0])),)

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        a: Numeric = operands[0]
        return (np.asarray(np.linalg.det(a)),)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        t = tangents[0]
        if t is None:
            return (None,)
        _, lu, pivots, permutation = primals
        cofactors = _cofactors(b, lu, pivots, permutation)
        return (b.reduce_sum(b.multiply(t, cofactors), (t.type.rank - 2, t.type.rank - 1)),)

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        return batch_alike(self, b, batch)

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        return along_leading(operands[0].rank - 2, operands, results)

    def flops(self, operands: Types, results: Types) -> int:
        return per_matrix(operands[0], operands[0].shape[-1])


def signed_diagonal(b: Emitter, lu: Value, pivots: Value) -> Value:
    """The diagonal of u, its entries negated where rows were exchanged: their product is the determinant."""
    entries = diagonal(b, lu)
    is_kept = b.compare(pivots, b.iota(pivots.type, pivots.type.rank - 1), "EQ")
    return b.select(is_kept, entries, b.negate(entries))


def _cofactors(b: Emitter, lu: Value, pivots: Value, permutation: Value) -> Value:
    """The derivatives of the determinant: det(p) pᵀ l⁻ᵀ c, where c are the cofactors of u.

    With w the inverse of u, ones put for zeros on its diagonal, and d the product of the other entries: where none is
    zero, c = d wᵀ; where entry k is, c = d (wᵀ)_k (w)_kᵀ; where several are, c = 0.
    """
    shape, last = lu.type, lu.type.rank - 2
    entries = signed_diagonal(b, lu, pivots)
    n = entries.type.shape[-1]
    is_zero = b.compare(entries, b.zeros(entries.type), "EQ")
    others = b.emit1(ReduceProd((last,)), b.select(is_zero, b.full(entries.type, 1), entries))
    on_zero = b.logical_and(band(b, shape, "EQ"), as_columns(b, is_zero, n))
    upper = b.select(on_zero, b.full(shape, 1), lu)
    turned = b.emit1(TriangularSolve(True, False, transpose_a="TRANSPOSE"), upper, identity(b, shape))
    chosen = b.convert(is_zero, shape.dtype)
    column = b.reduce_sum(b.multiply(turned, as_rows(b, chosen, n)), (last + 1,))
    row = b.reduce_sum(b.multiply(turned, as_columns(b, chosen, n)), (last,))
    one_zero = b.multiply(as_columns(b, column, n), as_rows(b, row, n))
    count = b.reduce_sum(b.convert(is_zero, I32), (last,))
    rank_deficient = where_all(b, b.compare(count, b.full(count.type, 1), "EQ"), one_zero, b.zeros(shape))
    of_upper = where_all(b, b.compare(count, b.zeros(count.type), "EQ"), turned, rank_deficient)
    scaled = b.multiply(of_upper, b.broadcast_in_dim(others, shape.shape, range(last)))
    return put_rows(b, b.emit1(TriangularSolve(True, True, True, "TRANSPOSE"), lu, scaled), permutation)


@register
@dataclass(frozen=True, slots=True)
class LogDeterminant(Op):
    """Sign and logarithm of the magnitude of the determinant. Operands: a, its lu, pivots and permutation.

    The sign of a complex determinant is its quotient by its magnitude; that of zero is zero. The tangent of the
    logarithm is the real part of the trace of a⁻¹ da; the imaginary one turns the sign.
    """

    name = "log_determinant"
    no_transpose = NOT_LINEAR

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 4)
        (a, *_) = operands
        _check_factored(self, a, operands[1], operands[2:])
        sign = a.with_shape(batch_of(a))
        return (sign, sign.with_dtype(part_dtype(a.dtype)))

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        a: Numeric = operands[0]
        with np.errstate(all="ignore"):
            sign, logarithm = np.linalg.slogdet(a)
        return np.asarray(sign), np.asarray(logarithm)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        t = tangents[0]
        if t is None:
            return (None, None)
        a, lu, _, permutation = primals
        inverse = b.emit1(LinearSolve(transpose_a=True), a, lu, permutation, identity(b, a.type))
        trace = b.reduce_sum(b.multiply(t, inverse), (t.type.rank - 2, t.type.rank - 1))
        if not t.type.dtype.is_complex:
            return (None, trace)
        imaginary = b.emit1(Imag(), trace)
        turn = b.emit1(Complex(), b.zeros(imaginary.type), imaginary)
        return b.multiply(results[0], turn), real_part(b, trace)

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        return batch_alike(self, b, batch)

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        return along_leading(operands[0].rank - 2, operands, results)

    def flops(self, operands: Types, results: Types) -> int:
        return per_matrix(operands[0], 2 * operands[0].shape[-1])
