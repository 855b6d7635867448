"""Factorizations by elimination and by reflection: LU with pivots, QR. StableHLO has neither."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from rematc.ir.batches import Batch
from rematc.ir.core import Emitter, Op
from rematc.ir.ops.batching import batch_alike
from rematc.ir.ops.elementwise import NOT_LINEAR, Numeric, check_arity
from rematc.ir.ops.matrices import (
    adjoint,
    adjoint_times,
    batch_of,
    check_matrices,
    columns,
    continued,
    hermitian_part,
    identity,
    lower_triangle,
    matmul,
    one_by_one,
    padded,
    per_matrix,
    rows,
    take_rows,
    times_adjoint,
    upper_triangle,
)
from rematc.ir.ops.solving import LinearSolve
from rematc.ir.ops.triangular import TriangularSolve
from rematc.ir.registry import register
from rematc.ir.slicings import Slicing, along_leading
from rematc.ir.types import I32, TensorType
from rematc.ir.values import Array, Derivatives, Primals, Tangents, Types, Value


@register
@dataclass(frozen=True, slots=True)
class Lu(Op):
    """l u = a with its rows permuted, by elimination with partial pivoting (LAPACK getrf).

    Results, for a of shape [..., m, n] and k = min(m, n):
        u in the upper triangle and l, but for the ones on its diagonal, below it [..., m, n];
        pivots [..., k]: row i was exchanged with row `pivots[i]` at step i;
        the permutation [..., m]: row i of l u is row `permutation[i]` of a.

    l⁻¹ p da u⁻¹ = l⁻¹ dl + du u⁻¹, where the first term lies below the diagonal and the second does not (de Hoog,
    Anderssen and Lukas, "Differentiation of matrix functionals using triangular factorization", 2011). Where a is not
    square, l or u is continued with ones on the diagonal.
    """

    name = "lu"
    no_transpose = NOT_LINEAR

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 1)
        (a,) = operands
        check_matrices(self, a)
        m, n = a.shape[-2:]
        pivots = TensorType(I32, (*batch_of(a), min(m, n)), a.on_host)
        return (a, pivots, pivots.with_shape((*batch_of(a), m)))

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return one_by_one(self, _eliminated, operands)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        (lu, _, permutation), (t,) = results, tangents
        if t is None:
            return (None, None, None)
        m, n = lu.type.shape[-2:]
        lower = continued(b, columns(b, lu, 0, min(m, n)), m)
        upper = continued(b, rows(b, lu, 0, min(m, n)), n)
        inner = b.emit1(TriangularSolve(True, True, unit_diagonal=True), lower, take_rows(b, t, permutation))
        inner = b.emit1(TriangularSolve(False, False), upper, inner)
        unit = b.add(lower_triangle(b, lower, -1), identity(b, lower.type))
        from_lower = matmul(b, unit, lower_triangle(b, inner, -1))
        from_upper = matmul(b, upper_triangle(b, inner), upper_triangle(b, upper))
        return (b.add(from_lower, from_upper), None, None)

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        return batch_alike(self, b, batch)

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        return along_leading(operands[0].rank - 2, operands, results)

    def flops(self, operands: Types, results: Types) -> int:
        m, n = operands[0].shape[-2:]
        k = min(m, n)
        return per_matrix(operands[0], 2 * m * n * k - (m + n) * k * k + 2 * k**3 // 3)


def _eliminated(a: Numeric) -> tuple[Numeric, Numeric, Numeric]:
    permutation = np.arange(a.shape[0])
    if not a.size:
        return a, permutation[:0], permutation
    (getrf,) = lapack.get_lapack_funcs(("getrf",), (a,))
    lu, pivots, _ = getrf(a)
    for step, pivot in enumerate(pivots):
        permutation[[step, pivot]] = permutation[[pivot, step]]
    return lu, pivots, permutation


@register
@dataclass(frozen=True, slots=True)
class Qr(Op):
    """q r = a by Householder reflections (LAPACK geqrf): qᴴ q is the identity, r is upper triangular.

    Results, for a of shape [..., m, n] and k = min(m, n): q [..., m, k] and r [..., k, n]; with `full_matrices`
    q [..., m, m] and r [..., m, n].

    For m >= n, with w = qᴴ da r⁻¹ and the skew-Hermitian part s of w that its lower triangle gives: dr = (w - s) r,
    dq = q (s - w) + da r⁻¹ (Walter and Lehmann, "Algorithmic differentiation of linear algebra functions with
    application in optimum experimental design", 2010). A wide a is factored by its left square, whose q gives the
    rest of r as qᴴ a. The columns that `full_matrices` adds to q are those that the reflections give, and move with
    the others so that they stay so (Roberts and Roberts, "QR and LQ decomposition matrix backpropagation algorithms
    for square, wide, and deep matrices", 2020, leaves them out; arXiv:2409.13374 has them).
    """

    name = "qr"
    no_transpose = NOT_LINEAR
    full_matrices: bool

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 1)
        (a,) = operands
        check_matrices(self, a)
        m, n = a.shape[-2:]
        inner = m if self.full_matrices else min(m, n)
        return (a.with_shape((*batch_of(a), m, inner)), a.with_shape((*batch_of(a), inner, n)))

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return one_by_one(self, self._reflected, operands)

    def _reflected(self, a: Numeric) -> tuple[Numeric, Numeric]:
        (m, n), k = a.shape, min(a.shape)
        size = m if self.full_matrices else k
        if not a.size:
            return np.eye(m, size, dtype=a.dtype), np.zeros((size, n), a.dtype)
        kind = "un" if a.dtype.kind == "c" else "or"
        geqrf, form = lapack.get_lapack_funcs(("geqrf", f"{kind}gqr"), (a,))
        packed, tau, _, _ = geqrf(a)
        reflectors = np.zeros((m, size), a.dtype)
        reflectors[:, :k] = packed[:, :k]
        return form(reflectors, tau)[0], np.triu(packed[:size])

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        (a,), (q, r), (t,) = primals, results, tangents
        if t is None:
            return (None, None)
        m, n = a.type.shape[-2:]
        if m < n:
            return _wide(b, a, q, r, t)
        if not self.full_matrices or m == n:
            return _tall(b, q, r, t)
        dq, dr = _tall(b, columns(b, q, 0, n), rows(b, r, 0, n), t)
        return b.concatenate([dq, _added_columns(b, q, dq)], q.type.rank - 1), padded(b, dr, m, n)

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        return batch_alike(self, b, batch)

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        return along_leading(operands[0].rank - 2, operands, results)

    def flops(self, operands: Types, results: Types) -> int:
        m, n = operands[0].shape[-2:]
        k, size = min(m, n), results[0].shape[-1]
        reflecting = 2 * m * n * k - (m + n) * k * k + 2 * k**3 // 3
        forming = 4 * m * size * k - 2 * (m + size) * k * k + 4 * k**3 // 3
        return per_matrix(operands[0], 2 * reflecting + forming)


def _tall(b: Emitter, q: Value, r: Value, t: Value) -> tuple[Value, Value]:
    """Tangents of q [..., m, n] and r [..., n, n] from that of a [..., m, n]."""
    moved = b.emit1(TriangularSolve(False, False), r, t)
    inner = adjoint_times(b, q, moved)
    below = lower_triangle(b, inner, -1)
    skew = b.subtract(below, adjoint(b, below))
    if q.type.dtype.is_complex:
        skew = b.add(skew, _imaginary_diagonal(b, inner))
    rest = b.subtract(inner, skew)
    return b.subtract(moved, matmul(b, q, rest)), matmul(b, rest, r)


def _imaginary_diagonal(b: Emitter, x: Value) -> Value:
    """The diagonal of the skew-Hermitian part, which is imaginary: r stays real on its diagonal."""
    on_diagonal = b.multiply(identity(b, x.type), x)
    return b.subtract(on_diagonal, hermitian_part(b, on_diagonal))


def _wide(b: Emitter, a: Value, q: Value, r: Value, t: Value) -> tuple[Value, Value]:
    """Tangents of q [..., m, m] and r [..., m, n] where m < n: those of the left square, and d(qᴴ a) beside it."""
    m, n = a.type.shape[-2:]
    dq, left = _tall(b, q, columns(b, r, 0, m), columns(b, t, 0, m))
    right = b.add(adjoint_times(b, dq, columns(b, a, m, n)), adjoint_times(b, q, columns(b, t, m, n)))
    return dq, b.concatenate([left, right], r.type.rank - 1)


def _added_columns(b: Emitter, q: Value, dq: Value) -> Value:
    """Tangents of the columns of q beyond the first n, from those of the first n.

    The reflections are I - v t vᴴ with a unit lower triangular v. Its blocks v1 and v2, above and below row n, follow
    from the first columns q1: v2 v1⁻¹ = z = q21 (q11 - I)⁻¹. The others are q2 = (0, I) + (q1 - (I, 0)) zᴴ, so that
    dq2 = dq1 zᴴ - (q1 + q2 z) (dq21 - z dq11)ᴴ.
    """
    m, n = dq.type.shape[-2:]
    first, added = columns(b, q, 0, n), columns(b, q, n, m)
    top, bottom = rows(b, first, 0, n), rows(b, first, n, m)
    z_adjoint = _solved(b, adjoint(b, b.subtract(top, identity(b, top.type))), adjoint(b, bottom))
    z = adjoint(b, z_adjoint)
    moved = b.subtract(rows(b, dq, n, m), matmul(b, z, rows(b, dq, 0, n)))
    turned = times_adjoint(b, b.add(first, matmul(b, added, z)), moved)
    return b.subtract(matmul(b, dq, z_adjoint), turned)


def _solved(b: Emitter, a: Value, y: Value) -> Value:
    """x with a x = y, for general square matrices."""
    lu, _, permutation = b.emit(Lu(), a)
    return b.emit1(LinearSolve(), a, lu, permutation, y)
