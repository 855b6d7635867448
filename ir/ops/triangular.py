"""Triangular matrices: the Cholesky factor, and systems of equations with a triangular matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas, lapack

from rematc.ir.batches import Batch
from rematc.ir.core import Emitter, Op
from rematc.ir.errors import TypeMismatchError
from rematc.ir.ops.batching import batch_alike
from rematc.ir.ops.elementwise import INEXACT, NOT_LINEAR, Numeric, check_arity, check_kind
from rematc.ir.ops.matrices import (
    adjoint,
    band,
    batch_of,
    check_square,
    conjugate,
    hermitian_part,
    lower_triangle,
    matmul,
    one_by_one,
    transposed,
    upper_triangle,
)
from rematc.ir.registry import register
from rematc.ir.slicings import Slicing, along_leading
from rematc.ir.types import TensorType
from rematc.ir.values import Array, Derivatives, Operands, Primals, Tangents, Types, Value, known

TRANSPOSES = ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")


def _check_elements(op: Op, operand: TensorType) -> None:
    check_kind(op, operand, INEXACT)
    if operand.dtype.bits < 16:
        raise TypeMismatchError(f"'{op.name}' takes elements of 16 bits or more, got {operand}; convert the operand")


@register
@dataclass(frozen=True, slots=True)
class Cholesky(Op):
    """The triangular factor of a Hermitian positive definite matrix a: l lᴴ = a, or uᴴ u = a.

    Of a, only the triangle named by `lower` is read; the other one of the result is zero. Where a is not positive
    definite the result is NaN.

    dl = l phi(l⁻¹ da l⁻ᴴ), where phi takes the lower triangle and half of the diagonal (Murray, "Differentiation of
    the Cholesky decomposition", 2016). The operand stands for a Hermitian matrix, and so does its tangent: da is the
    Hermitian part, so that gradients are Hermitian.

    Attributes:
        lower: whether the result is l; else it is u.
    """

    name = "cholesky"
    no_transpose = NOT_LINEAR
    lower: bool

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 1)
        _check_elements(self, operands[0])
        check_square(self, operands[0])
        return (operands[0],)

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return one_by_one(self, self._factor, operands)

    def _factor(self, a: Numeric) -> tuple[Numeric]:
        if not a.size:
            return (a,)
        (potrf,) = lapack.get_lapack_funcs(("potrf",), (a,))
        factor, info = potrf(a, lower=self.lower, clean=True)
        return (np.full_like(a, np.nan) if info else factor,)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        (factor,), (t,) = results, tangents
        if t is None:
            return (None,)
        left = TriangularSolve(self.lower, self.lower)
        # lower: l⁻¹ (da l⁻ᴴ); upper: (u⁻ᴴ da) u⁻¹
        inner = b.emit1(left.on_side(True, not self.lower), factor, hermitian_part(b, t))
        inner = b.emit1(left.on_side(False, self.lower), factor, inner)
        halved = b.multiply(inner, _halved_diagonal(b, inner.type, self.lower))
        return (matmul(b, factor, halved) if self.lower else matmul(b, halved, factor),)

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        return batch_alike(self, b, batch)

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        return along_leading(operands[0].rank - 2, operands, results)

    def flops(self, operands: Types, results: Types) -> int:
        return operands[0].size * operands[0].shape[-1] // 3


def _halved_diagonal(b: Emitter, x: TensorType, lower: bool) -> Value:
    """One in the triangle, half on its diagonal, zero in the other triangle."""
    inside = b.select(band(b, x, "GT" if lower else "LT"), b.full(x, 1), b.zeros(x))
    return b.select(band(b, x, "EQ"), b.full(x, 0.5), inside)


@register
@dataclass(frozen=True, slots=True)
class TriangularSolve(Op):
    """x with op(a) x = y, or x op(a) = y, for a triangular matrix a. Linear in y.

    The operands are a and y, with one batch. Only the triangle of a named by `lower` is read; with `unit_diagonal`
    its diagonal is taken for ones and not read. Where the diagonal has a zero, the result is not finite.

    Attributes:
        left_side: whether op(a) stands to the left of x.
        lower: which triangle a is.
        unit_diagonal: whether a's diagonal is ones.
        transpose_a: what op(a) is: a (NO_TRANSPOSE), aᵀ (TRANSPOSE) or aᴴ (ADJOINT).
    """

    name = "triangular_solve"
    left_side: bool
    lower: bool
    unit_diagonal: bool = False
    transpose_a: str = "NO_TRANSPOSE"

    def on_side(self, left_side: bool, is_adjoint: bool) -> TriangularSolve:
        """The system with the same triangle, or its conjugate transpose, on this side."""
        transpose = "ADJOINT" if is_adjoint else "NO_TRANSPOSE"
        return TriangularSolve(left_side, self.lower, self.unit_diagonal, transpose)

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 2)
        a, y = operands
        _check_elements(self, a)
        check_square(self, a)
        if self.transpose_a not in TRANSPOSES:
            raise TypeMismatchError(f"'{self.name}' takes transpose_a {', '.join(TRANSPOSES)}, got {self.transpose_a}")
        side = y.rank - (2 if self.left_side else 1)
        fits = y.rank == a.rank and batch_of(y) == batch_of(a) and y.shape[side] == a.shape[-1]
        if not fits or a.dtype is not y.dtype:
            where = "row" if self.left_side else "column"
            raise TypeMismatchError(
                f"'{self.name}' with {a} takes {a.dtype} matrices of the same batch, one {where} for each of the "
                f"{a.shape[-1]} unknowns, got {y}"
            )
        return (y,)

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return one_by_one(self, self._solve, operands)

    def _solve(self, a: Numeric, y: Numeric) -> tuple[Numeric]:
        if not y.size:
            return (y,)
        (trsm,) = blas.get_blas_funcs(("trsm",), (a, y))
        how = TRANSPOSES.index(self.transpose_a)
        solved = trsm(1, a, y, side=not self.left_side, lower=self.lower, trans_a=how, diag=self.unit_diagonal)
        return (solved,)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        """op(a) dx = dy - d op(a) x."""
        (a, _), (x,), (ta, ty) = primals, results, tangents
        right = ty
        if ta is not None:
            moved = self._applied(b, self._triangle(b, ta), x)
            right = b.negate(moved) if right is None else b.subtract(right, moved)
        return (None if right is None else b.emit1(self, a, right),)

    def _triangle(self, b: Emitter, t: Value) -> Value:
        """The part of a's tangent that the op reads."""
        inside = 1 if self.unit_diagonal else 0
        return lower_triangle(b, t, -inside) if self.lower else upper_triangle(b, t, inside)

    def _applied(self, b: Emitter, a: Value, x: Value) -> Value:
        """op(a) x, or x op(a)."""
        turned = {"NO_TRANSPOSE": lambda: a, "TRANSPOSE": lambda: transposed(b, a), "ADJOINT": lambda: adjoint(b, a)}
        left = turned[self.transpose_a]()
        return matmul(b, left, x) if self.left_side else matmul(b, x, left)

    def transpose(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        (ct,), (a, _) = cts, operands
        if ct is None:
            return (None, None)
        a = known(a, "triangular_solve is not linear in its matrix")
        # (aᴴ)ᵀ is the conjugate of a.
        matrix = conjugate(b, a) if self.transpose_a == "ADJOINT" else a
        turned = "TRANSPOSE" if self.transpose_a == "NO_TRANSPOSE" else "NO_TRANSPOSE"
        return (None, b.emit1(TriangularSolve(self.left_side, self.lower, self.unit_diagonal, turned), matrix, ct))

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        return batch_alike(self, b, batch)

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        return along_leading(operands[0].rank - 2, operands, results)

    def flops(self, operands: Types, results: Types) -> int:
        return results[0].size * operands[0].shape[-1]
