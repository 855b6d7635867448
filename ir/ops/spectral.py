"""Decompositions by eigenvalues and singular values, and the pseudo-inverse. StableHLO has none of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from rematc.ir.batches import Batch
from rematc.ir.core import Emitter, Op
from rematc.ir.errors import MissingRuleError, TypeMismatchError
from rematc.ir.ops.batching import batch_alike
from rematc.ir.ops.complex_parts import Complex, Imag, part_dtype, whole_dtype
from rematc.ir.ops.elementwise import NOT_LINEAR, Numeric, check_arity
from rematc.ir.ops.factorization import Lu
from rematc.ir.ops.matrices import (
    adjoint,
    adjoint_times,
    as_columns,
    as_rows,
    batch_of,
    check_matrices,
    check_square,
    conjugate,
    diagonal,
    hermitian_part,
    identity,
    matmul,
    one_by_one,
    per_matrix,
    real_part,
    times_adjoint,
)
from rematc.ir.ops.reduction import Argmax
from rematc.ir.ops.solving import LuSolve
from rematc.ir.registry import register
from rematc.ir.slicings import Slicing, along_leading
from rematc.ir.types import I32, TensorType
from rematc.ir.values import Array, Derivatives, Primals, Tangents, Types, Value

Kept = tuple[Op, tuple[int, ...], tuple[int, ...]]


def _without_vectors(op: Op, used: Sequence[bool], values: int, bare: Op) -> Kept:
    """`bare`, which gives the values alone, unless some vectors are used."""
    if any(is_used for index, is_used in enumerate(used) if index != values) or len(used) == 1:
        return op, (0,), tuple(range(len(used)))
    return bare, (0,), (values,)


def _reciprocal_off_diagonal(b: Emitter, differences: Value) -> Value:
    """1 / x off the diagonal, zero on it, for x that are zero on it. Infinite where eigenvalues are equal: there the
    vectors have no derivative.
    """
    ones = identity(b, differences.type)
    return b.subtract(b.divide(b.full(differences.type, 1), b.add(differences, ones)), ones)


@register
@dataclass(frozen=True, slots=True)
class Eigh(Op):
    """Eigenvalues, ascending, and eigenvectors of Hermitian matrices a: a v = v diag(w) (LAPACK syevd, heevd).

    Results: w [..., n], real, and with `vectors` v [..., n, n], one vector a column. Of a only the triangle named by
    `lower` is read. It stands for a Hermitian matrix, and so does its tangent: da is the Hermitian part.

    dw = diag(vᴴ da v); dv = v (f * vᴴ da v) with f_ij = 1 / (w_j - w_i) off the diagonal (Giles, "An extended
    collection of matrix derivative results for forward and reverse mode algorithmic differentiation", 2008). Equal
    eigenvalues have derivatives, their vectors have not: f is infinite there.

    Attributes:
        lower: which triangle of a is read.
        vectors: whether v is a result.
    """

    name = "eigh"
    no_transpose = NOT_LINEAR
    lower: bool = True
    vectors: bool = True

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 1)
        (a,) = operands
        check_matrices(self, a)
        check_square(self, a)
        values = a.with_shape(a.shape[:-1]).with_dtype(part_dtype(a.dtype))
        return (values, a) if self.vectors else (values,)

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return one_by_one(self, self._decompose, operands)

    def _decompose(self, a: Numeric) -> tuple[Numeric, ...]:
        if not a.size:
            return (np.zeros(0), a)[: 1 + self.vectors]
        (evd,) = lapack.get_lapack_funcs(("heevd" if a.dtype.kind == "c" else "syevd",), (a,))
        values, vectors, _ = evd(a, compute_v=self.vectors, lower=self.lower)
        return (values, vectors)[: 1 + self.vectors]

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        (t,) = tangents
        if t is None:
            return (None,) * len(results)
        w, v = results if self.vectors else b.emit(Eigh(self.lower), primals[0])
        inner = matmul(b, adjoint_times(b, v, hermitian_part(b, t)), v)
        dw = real_part(b, diagonal(b, inner))
        if not self.vectors:
            return (dw,)
        n = w.type.shape[-1]
        f = _reciprocal_off_diagonal(b, b.subtract(as_rows(b, w, n), as_columns(b, w, n)))
        return dw, matmul(b, v, b.multiply(inner, b.convert(f, v.type.dtype)))

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        return batch_alike(self, b, batch)

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        return along_leading(operands[0].rank - 2, operands, results)

    def without_unused(self, used: Sequence[bool]) -> Kept:
        """The op without vectors that nobody needs: (op, indices of its operands, of its results)."""
        return _without_vectors(self, used, 0, Eigh(self.lower, vectors=False))

    def flops(self, operands: Types, results: Types) -> int:
        n = operands[0].shape[-1]
        return per_matrix(operands[0], 9 * n**3 if self.vectors else 4 * n**3 // 3)


@register
@dataclass(frozen=True, slots=True)
class Eig(Op):
    """Eigenvalues, in LAPACK's order, and eigenvectors of general square matrices a: a v = v diag(w) (LAPACK geev).

    Results, complex: w [..., n] and with `vectors` v [..., n, n], one vector a column, of length 1 and with a real
    component where its magnitude is largest.

    dw = diag(v⁻¹ da v); dv = u + v diag(c) with u = v (f * v⁻¹ da v), f as for `eigh`, where c keeps each vector's
    length and that component real.

    Attributes:
        vectors: whether v is a result.
    """

    name = "eig"
    no_transpose = NOT_LINEAR
    vectors: bool = True

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 1)
        (a,) = operands
        check_matrices(self, a)
        check_square(self, a)
        dtype = whole_dtype(a.dtype)
        assert dtype is not None, "LAPACK's element types have complex ones"
        vectors = a.with_dtype(dtype)
        values = vectors.with_shape(a.shape[:-1])
        return (values, vectors) if self.vectors else (values,)

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return one_by_one(self, self._decompose, operands)

    def _decompose(self, a: Numeric) -> tuple[Numeric, ...]:
        if not a.size:
            return (np.zeros(0), a)[: 1 + self.vectors]
        (geev,) = lapack.get_lapack_funcs(("geev",), (a,))
        *values, _, vectors, _ = geev(a, compute_vl=0, compute_vr=self.vectors)
        if a.dtype.kind != "c":
            values, vectors = [values[0] + 1j * values[1]], _unpacked(values[1], vectors)
        return (values[0], vectors)[: 1 + self.vectors]

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        (t,) = tangents
        if t is None:
            return (None,) * len(results)
        w, v = results if self.vectors else b.emit(Eig(), primals[0])
        lu, _, permutation = b.emit(Lu(), v)
        inner = b.emit1(LuSolve(), lu, permutation, matmul(b, b.convert(t, v.type.dtype), v))
        dw = diagonal(b, inner)
        if not self.vectors:
            return (dw,)
        n = w.type.shape[-1]
        f = _reciprocal_off_diagonal(b, b.subtract(as_rows(b, w, n), as_columns(b, w, n)))
        return dw, _normalized(b, v, matmul(b, v, b.multiply(f, inner)))

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        return batch_alike(self, b, batch)

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        return along_leading(operands[0].rank - 2, operands, results)

    def without_unused(self, used: Sequence[bool]) -> Kept:
        """The op without vectors that nobody needs: (op, indices of its operands, of its results)."""
        return _without_vectors(self, used, 0, Eig(vectors=False))

    def flops(self, operands: Types, results: Types) -> int:
        n = operands[0].shape[-1]
        return per_matrix(operands[0], 25 * n**3 if self.vectors else 10 * n**3)


def _normalized(b: Emitter, v: Value, u: Value) -> Value:
    """u + v diag(c): tangents of vectors that keep their length, and their largest component real."""
    rank, n = v.type.rank, v.type.shape[-1]
    largest = b.emit1(Argmax(rank - 2, I32), b.abs(v))
    there = b.compare(b.iota(v.type.with_dtype(I32), rank - 2), as_rows(b, largest, n), "EQ")

    def component(x: Value) -> Value:
        return b.reduce_sum(b.select(there, x, b.zeros(x.type)), (rank - 2,))

    along = real_part(b, b.reduce_sum(b.multiply(conjugate(b, v), u), (rank - 2,)))
    turn = b.divide(b.emit1(Imag(), component(u)), real_part(b, component(v)))
    shift = b.emit1(Complex(), b.negate(along), b.negate(turn))
    return b.add(u, b.multiply(v, as_rows(b, shift, n)))


def _unpacked(imaginary: Numeric, packed: Numeric) -> Numeric:
    """Eigenvectors from LAPACK's form for real matrices: of a pair of conjugate ones, real and imaginary part."""
    vectors = packed.astype(np.result_type(packed, np.complex64))
    for first in np.flatnonzero(imaginary > 0):
        vectors[:, first] = packed[:, first] + 1j * packed[:, first + 1]
        vectors[:, first + 1] = vectors[:, first].conj()
    return vectors


@register
@dataclass(frozen=True, slots=True)
class Svd(Op):
    """Singular values s, descending, and vectors: a = u diag(s) vᴴ (LAPACK gesdd).

    Results, for a of shape [..., m, n] and k = min(m, n): u [..., m, k], s [..., k], real, and vᴴ [..., k, n]; with
    `full_matrices` u [..., m, m] and vᴴ [..., n, n]; without `vectors` s alone.

    With p = uᴴ da v and f_ij = 1 / (s_j² - s_i²) off the diagonal: ds = diag(p), uᴴ du = f * (p s + s pᴴ), vᴴ dv =
    f * (s p + pᴴ s), and what lies outside of the spaces of u and v moves by (I - u uᴴ) da v / s, (I - v vᴴ) daᴴ u / s
    (Giles, 2008; Seeger et al., "Auto-differentiating linear algebra", 2017). Equal singular values have derivatives,
    their vectors have not. `full_matrices` of a matrix that is not square has none: the vectors added may turn freely.

    Attributes:
        full_matrices: whether u and v are square.
        vectors: whether u and vᴴ are results.
    """

    name = "svd"
    no_transpose = NOT_LINEAR
    full_matrices: bool = False
    vectors: bool = True

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 1)
        (a,) = operands
        check_matrices(self, a)
        batch, (m, n) = batch_of(a), a.shape[-2:]
        k = min(m, n)
        values = a.with_shape((*batch, k)).with_dtype(part_dtype(a.dtype))
        if not self.vectors:
            return (values,)
        left, right = (m, n) if self.full_matrices else (k, k)
        return (a.with_shape((*batch, m, left)), values, a.with_shape((*batch, right, n)))

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return one_by_one(self, self._decompose, operands)

    def _decompose(self, a: Numeric) -> tuple[Numeric, ...]:
        m, n = a.shape
        if not a.size:
            left, right = (m, n) if self.full_matrices else (0, 0)
            empty = np.eye(m, left, dtype=a.dtype), np.zeros(0), np.eye(right, n, dtype=a.dtype)
            return empty if self.vectors else empty[1:2]
        (gesdd,) = lapack.get_lapack_funcs(("gesdd",), (a,))
        found = gesdd(a, compute_uv=self.vectors, full_matrices=self.full_matrices)[:3]
        return tuple(found) if self.vectors else (found[1],)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        (a,), (t,) = primals, tangents
        if t is None:
            return (None,) * len(results)
        m, n = a.type.shape[-2:]
        if self.vectors and self.full_matrices and m != n:
            raise MissingRuleError(
                f"jvp of 'svd' of {a.type} with full_matrices does not exist: the vectors beyond the first {min(m, n)} "
                "are free to turn; use full_matrices=False"
            )
        u, s, vh = results if self.vectors else b.emit(Svd(), a)
        left = adjoint_times(b, u, t)
        inner = times_adjoint(b, left, vh)
        ds = real_part(b, diagonal(b, inner))
        if not self.vectors:
            return (ds,)
        turn_u, turn_v = _turns(b, s, inner)
        du, dvh = matmul(b, u, turn_u), b.negate(matmul(b, turn_v, vh))
        scale = b.convert(s, u.type.dtype)
        if m > n:
            outside = b.subtract(times_adjoint(b, t, vh), matmul(b, u, inner))
            du = b.add(du, b.divide(outside, as_rows(b, scale, m)))
        if n > m:
            outside = b.subtract(left, matmul(b, inner, vh))
            dvh = b.add(dvh, b.divide(outside, as_columns(b, scale, n)))
        return du, ds, dvh

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        return batch_alike(self, b, batch)

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        return along_leading(operands[0].rank - 2, operands, results)

    def without_unused(self, used: Sequence[bool]) -> Kept:
        """The op without vectors that nobody needs: (op, indices of its operands, of its results)."""
        return _without_vectors(self, used, 1, Svd(vectors=False))

    def flops(self, operands: Types, results: Types) -> int:
        m, n = operands[0].shape[-2:]
        long, short = max(m, n), min(m, n)
        values = 2 * long * short**2 + 2 * short**3
        return per_matrix(operands[0], 6 * long * short**2 + 20 * short**3 if self.vectors else values)


def _turns(b: Emitter, s: Value, inner: Value) -> tuple[Value, Value]:
    """How u and v turn in their own spaces: the skew-Hermitian uᴴ du and vᴴ dv."""
    k, dtype = s.type.shape[-1], inner.type.dtype
    across, down = as_rows(b, s, k), as_columns(b, s, k)
    f = _reciprocal_off_diagonal(b, b.multiply(b.add(across, down), b.subtract(across, down)))
    f, across, down = (b.convert(x, dtype) for x in (f, across, down))
    right, left = b.multiply(inner, across), b.multiply(inner, down)
    turn_u = b.multiply(f, b.add(right, adjoint(b, right)))
    turn_v = b.multiply(f, b.add(left, adjoint(b, left)))
    if dtype.is_complex:
        # The phases of u and v are free but for their difference; all of it is given to u.
        turn_u = b.add(turn_u, _phases(b, s, inner))
    return turn_u, turn_v


def _phases(b: Emitter, s: Value, inner: Value) -> Value:
    """The imaginary diagonal of p / s; zero where s is."""
    is_zero = b.compare(s, b.zeros(s.type), "EQ")
    divisor = b.select(is_zero, b.full(s.type, 1), s)
    inverse = b.select(is_zero, b.zeros(s.type), b.divide(b.full(s.type, 1), divisor))
    on_diagonal = b.multiply(inner, identity(b, inner.type))
    imaginary = b.subtract(on_diagonal, hermitian_part(b, on_diagonal))
    return b.multiply(imaginary, b.convert(as_rows(b, inverse, s.type.shape[-1]), inner.type.dtype))


@register
@dataclass(frozen=True, slots=True)
class PseudoInverse(Op):
    """The Moore-Penrose inverse p of a, by its singular values: [..., m, n] to [..., n, m].

    The second operand says for each matrix up to which multiple of the largest singular values count as zero.

    dp = -p da p + p pᴴ daᴴ (I - a p) + (I - p a) daᴴ pᴴ p, for a rank that does not change nearby (Golub and Pereyra,
    "The differentiation of pseudo-inverses and nonlinear least squares problems whose variables separate", 1973).
    """

    name = "pseudo_inverse"
    no_transpose = NOT_LINEAR

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 2)
        a, cutoff = operands
        check_matrices(self, a)
        expected = a.with_shape(batch_of(a)).with_dtype(part_dtype(a.dtype))
        if cutoff != expected:
            raise TypeMismatchError(f"'{self.name}' of {a} takes cutoffs {expected}, got {cutoff}")
        return (a.with_shape((*batch_of(a), a.shape[-1], a.shape[-2])),)

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return one_by_one(self, self._invert, operands)

    def _invert(self, a: Numeric, cutoff: Numeric) -> tuple[Numeric]:
        if not a.size:
            return (a.T,)
        vectors: tuple[Numeric, ...] = Svd().reference([a])
        u, s, vh = vectors
        inverse = np.divide(1, s, out=np.zeros_like(s), where=s > cutoff * s[0])
        return ((vh.conj().T * inverse) @ u.conj().T,)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        (a, _), (p,), (t, _) = primals, results, tangents
        if t is None:
            return (None,)
        m, n = a.type.shape[-2:]
        # Products in the order that keeps the square ones small.
        if m >= n:
            inner = matmul(b, p, t)
            moved = matmul(b, inner, p)
            from_left, from_right = times_adjoint(b, times_adjoint(b, p, p), t), adjoint_times(b, inner, p)
            left = b.subtract(from_left, matmul(b, matmul(b, from_left, a), p))
            right = b.subtract(from_right, matmul(b, matmul(b, p, a), from_right))
        else:
            inner = matmul(b, t, p)
            moved = matmul(b, p, inner)
            from_left, from_right = times_adjoint(b, p, inner), adjoint_times(b, t, adjoint_times(b, p, p))
            left = b.subtract(from_left, matmul(b, from_left, matmul(b, a, p)))
            right = b.subtract(from_right, matmul(b, p, matmul(b, a, from_right)))
        return (b.subtract(b.add(left, right), moved),)

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        return batch_alike(self, b, batch)

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        return along_leading(operands[0].rank - 2, operands, results)

    def flops(self, operands: Types, results: Types) -> int:
        m, n = operands[0].shape[-2:]
        return Svd().flops(operands, ()) + per_matrix(operands[0], 2 * m * n * min(m, n))
