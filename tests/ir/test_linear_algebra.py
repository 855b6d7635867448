"""Decompositions: that they are what they are called, Hermitian tangents, what they cost, keep and refuse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rematc.ir.builder import Builder
from rematc.ir.core import Graph, Op
from rematc.ir.errors import MissingRuleError, TypeMismatchError
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.elementwise import Numeric
from rematc.ir.ops.factorization import Lu, Qr
from rematc.ir.ops.solving import Determinant, LinearSolve, LogDeterminant, LuSolve
from rematc.ir.ops.spectral import Eig, Eigh, PseudoInverse, Svd
from rematc.ir.ops.triangular import Cholesky, TriangularSolve
from rematc.ir.types import BF16, C64, C128, F8E4M3FN, F32, F64, I32, DType, TensorType
from rematc.ir.values import Array
from rematc.passes.dce import DeadCode
from rematc.passes.jvp import jvp
from rematc.passes.linearize import vjp
from tests.support.matrices import definite, factored, regular, symmetric, transposed
from tests.support.samples import Factory, graph_of, normal

SQUARE, TALL = TensorType(F64, (2, 3, 3)), TensorType(F64, (4, 2))
PIVOTS = TensorType(I32, (2, 3))


def made(factory: Factory) -> Numeric:
    array: Numeric = factory(np.random.default_rng(2))
    return array


def results(op: Op, *operands: Array) -> list[Any]:
    """By the reference; typed so that tests compute with them."""
    return [np.asarray(x) for x in op.reference(operands)]


def run(graph: Graph, *operands: Array) -> list[Any]:
    return list(evaluate(graph, operands))


def adjoint(x: Numeric) -> Numeric:
    return transposed(x).conj()


# -- what they are -----------------------------------------------------------------------------------------------------

DTYPES = pytest.mark.parametrize("dtype", [F64, C128], ids=str)


@DTYPES
@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 2), (2, 5)], ids=str)
def test_lu_is_the_permuted_matrix(dtype: DType, shape: tuple[int, ...]) -> None:
    a = made(normal(dtype, *shape))
    lu, pivots, permutation = results(Lu(), a)
    k = min(shape[-2:])
    lower = np.tril(lu[..., :k], -1) + np.eye(shape[-2], k)
    np.testing.assert_allclose(
        lower @ np.triu(lu[..., :k, :]), np.take_along_axis(a, permutation[..., None], -2), atol=1e-14
    )
    for index in np.ndindex(*shape[:-2]):
        rows = np.arange(shape[-2])
        for step, pivot in enumerate(pivots[index]):
            rows[[step, pivot]] = rows[[pivot, step]]
        np.testing.assert_array_equal(rows, permutation[index])


@DTYPES
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 2), (2, 5)], ids=str)
def test_qr_and_svd_multiply_to_the_matrix_by_unitary_factors(dtype: DType, full: bool, shape: tuple[int, ...]) -> None:
    a = made(normal(dtype, *shape))
    q, r = results(Qr(full), a)
    np.testing.assert_allclose(q @ r, a, atol=1e-14)
    np.testing.assert_array_equal(r, np.triu(r))
    u, s, vh = results(Svd(full), a)
    k = s.shape[-1]
    np.testing.assert_allclose((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], a, atol=1e-14)
    assert (np.diff(s) <= 0).all()
    for factor in (q, u, adjoint(vh)):
        identity = np.broadcast_to(np.eye(factor.shape[-1]), (*shape[:-2], *factor.shape[-1:] * 2))
        np.testing.assert_allclose(adjoint(factor) @ factor, identity, atol=1e-14)


@DTYPES
@pytest.mark.parametrize("lower", [False, True])
def test_eigenvectors_are_turned_into_their_multiples(dtype: DType, lower: bool) -> None:
    a = made(symmetric(dtype, 2, 3, 3))
    other = np.triu(np.full((3, 3), 99), 1)
    w, v = results(Eigh(lower), a + (other if lower else other.T))
    np.testing.assert_allclose(a @ v, v * w[..., None, :], atol=1e-13)
    assert (np.diff(w) >= 0).all()
    general = made(normal(dtype, 2, 3, 3))
    w, v = results(Eig(), general)
    np.testing.assert_allclose(general @ v, v * w[..., None, :], atol=1e-13)
    np.testing.assert_allclose(np.linalg.norm(v, axis=-2), np.ones((2, 3)))


# -- Hermitian tangents ------------------------------------------------------------------------------------------------


@DTYPES
@pytest.mark.parametrize("op", [Cholesky(True), Cholesky(False), Eigh(), Eigh(False), Eigh(vectors=False)], ids=str)
def test_tangents_of_hermitian_matrices_are_limits_of_differences(op: Op, dtype: DType) -> None:
    """Of differences that keep the matrix Hermitian; of eigenvectors, up to their phase."""
    a = made(definite(dtype, 3, 3)) + np.diag([0, 3, 6])
    t = made(normal(dtype, 3, 3))
    even, step = (t + adjoint(t)) / 2, 1e-6
    graph = jvp(graph_of(op, [TensorType(dtype, (3, 3))]), [True]).graph
    values = run(graph, a, t)
    tangents = values[len(values) // 2 :]
    ahead, behind = (_without_phase(op.reference([a + sign * step * even])) for sign in (1, -1))
    moved = (
        _without_phase([x + sign * step * dx for x, dx in zip(values, tangents, strict=False)]) for sign in (1, -1)
    )
    for later, earlier, forth, back in zip(ahead, behind, *moved, strict=True):
        np.testing.assert_allclose((forth - back) / step, (later - earlier) / step, atol=1e-7)


def _without_phase(arrays: Sequence[Array]) -> list[Any]:
    """Vectors as their outer products with themselves, which no phase changes."""
    found: list[Any] = []
    for array in arrays:
        x: Any = array
        found.append(x if len(arrays) == 1 else np.einsum("ik,jk->kij", x, x.conj()) if x.ndim == 2 else x)
    return found


def test_the_triangle_that_is_not_read_has_the_cotangent_of_the_other() -> None:
    pair = vjp(graph_of(Cholesky(True), [SQUARE]), [True])
    a = made(definite(F64, 2, 3, 3))
    _, *residuals = run(pair.forward, a)
    (ct,) = run(pair.backward, *residuals, made(normal(F64, 2, 3, 3)))
    np.testing.assert_allclose(ct, transposed(ct), atol=1e-15)


# -- what derivatives keep and cost ------------------------------------------------------------------------------------


def residual_types(op: Op, types: Sequence[TensorType], wrt: int) -> list[str]:
    pair = vjp(graph_of(op, types), [index == wrt for index in range(len(types))])
    return sorted(str(residual.value.type) for residual in pair.residuals)


@pytest.mark.parametrize(
    ("op", "types", "wrt", "kept"),
    [
        (Cholesky(True), [SQUARE], 0, ["f64[2,3,3]"]),  # the factor
        (TriangularSolve(True, True), [SQUARE, SQUARE], 1, ["f64[2,3,3]"]),  # the matrix
        (TriangularSolve(True, True), [SQUARE, SQUARE], 0, ["f64[2,3,3]"] * 2),  # and the solution
        (LinearSolve(), [SQUARE, SQUARE, PIVOTS, SQUARE], 0, ["f64[2,3,3]"] * 2 + ["i32[2,3]"]),  # lu and the solution
        (LogDeterminant(), [SQUARE, SQUARE, PIVOTS, PIVOTS], 0, ["f64[2,3,3]"]),  # the inverse
        (Determinant(), [SQUARE, SQUARE, PIVOTS, PIVOTS], 0, ["f64[2,3,3]"]),  # the cofactors
        (Svd(vectors=False), [TALL], 0, ["f64[2,2]", "f64[4,2]"]),  # the vectors
        (Eigh(), [SQUARE], 0, ["f64[2,3,3]"] * 2),  # the vectors, the reciprocals of differences
        (Svd(), [TALL], 0, ["f64[2,2]"] * 2 + ["f64[2]", "f64[4,2]"]),  # and the values
        (Qr(False), [TALL], 0, ["f64[2,2]", "f64[4,2]"]),  # the factors
        (
            PseudoInverse(),
            [TALL, TensorType(F64, ())],
            0,
            ["f64[2,2]"] * 2 + ["f64[2,4]", "f64[4,2]"],
        ),  # p pᴴ, p a; p, a
    ],
    ids=lambda case: case.name if isinstance(case, Op) else "",
)
def test_residuals(op: Op, types: list[TensorType], wrt: int, kept: list[str]) -> None:
    assert residual_types(op, types, wrt) == kept


@pytest.mark.parametrize(
    ("op", "types", "flops"),
    [
        (Cholesky(True), [TensorType(F32, (5, 6, 6))], 5 * 6**3 // 3),
        (TriangularSolve(True, True), [TensorType(F32, (6, 6)), TensorType(F32, (6, 2))], 6 * 6 * 2),
        (LinearSolve(), [SQUARE, SQUARE, PIVOTS, TensorType(F64, (2, 3, 7))], 2 * 2 * 3 * 3 * 7),
        (Lu(), [TensorType(F64, (5, 6, 6))], 5 * 2 * 6**3 // 3),
        (Lu(), [TensorType(F64, (6, 0))], 0),
        (Qr(False), [TensorType(F64, (6, 6))], 2 * (4 * 6**3 // 3)),
        (Eigh(), [SQUARE], 2 * 9 * 27),
        (Eig(False), [SQUARE], 2 * 10 * 27),
        (Svd(), [TensorType(F64, (2, 4))], 6 * 4 * 4 + 20 * 8),
        (Svd(), [TensorType(F64, (4, 2))], 6 * 4 * 4 + 20 * 8),
    ],
    ids=lambda case: case.name if isinstance(case, Op) else "",
)
def test_flops_are_the_textbooks(op: Op, types: list[TensorType], flops: int) -> None:
    """Golub and Van Loan, "Matrix computations"; but for terms of lower order."""
    assert op.flops(types, op.infer(types)) == pytest.approx(flops, rel=0.01)


@pytest.mark.parametrize(
    ("op", "values", "bare"),
    [(Eigh(False), 0, Eigh(False, False)), (Eig(), 0, Eig(False)), (Svd(True), 1, Svd(False, False))],
    ids=lambda case: case.name if isinstance(case, Op) else "",
)
def test_vectors_that_nobody_needs_are_not_computed(op: Op, values: int, bare: Op) -> None:
    b = Builder()
    a = b.parameter(SQUARE)
    results = b.emit(op, a)
    for kept in (results, (results[0], results[values], results[-1])):
        assert DeadCode().run(b.build(*kept)).equations == tuple(b.equations)
    alone = DeadCode().run(b.build(results[values]))
    assert [eqn.op for eqn in alone.equations] == [bare]
    assert DeadCode().run(alone) is alone


# -- what they refuse --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "operands", "message"),
    [
        (Cholesky(True), [TALL], r"'cholesky' takes square matrices in the last two dimensions, got f64\[4,2\]"),
        (Cholesky(True), [TensorType(F8E4M3FN, (2, 2))], "takes elements of 16 bits or more, .*convert the operand"),
        (Cholesky(True), [PIVOTS], "takes complex, float elements"),
        (Cholesky(True), [SQUARE, SQUARE], "takes 1 operands, got 2"),
        (
            TriangularSolve(True, True),
            [SQUARE, TALL],
            r"matrices of the same batch, one row for each of the 3 unknowns",
        ),
        (TriangularSolve(False, True), [TensorType(F64, (4, 4)), TALL], "one column for each of the 4 unknowns"),
        (TriangularSolve(True, True), [SQUARE, SQUARE.with_dtype(F32)], "takes f64 matrices"),
        (TriangularSolve(True, True, False, "T"), [SQUARE, SQUARE], "NO_TRANSPOSE, TRANSPOSE, ADJOINT, got T"),
        (Lu(), [TensorType(BF16, (2, 2))], r"takes elements of f32, f64, c64, c128, got bf16\[2,2\]; convert"),
        (Qr(True), [TensorType(F64, (3,))], r"matrices in the last two dimensions, got f64\[3\]"),
        (Eigh(), [TALL], "'eigh' takes square matrices"),
        (Eig(), [TALL], "'eig' takes square matrices"),
        (LinearSolve(), [SQUARE, SQUARE, PIVOTS, TALL], r"takes right sides f64\[2,3\] x k"),
        (LinearSolve(), [SQUARE, SQUARE, SQUARE, SQUARE], r"takes its factorization, f64\[2,3,3\] and i32\[2,3\], got"),
        (LuSolve(), [SQUARE, PIVOTS, SQUARE.with_dtype(F32)], r"takes right sides f64\[2,3\] x k"),
        (Determinant(), [SQUARE, SQUARE.with_dtype(C64), PIVOTS, PIVOTS], "takes its factorization"),
        (PseudoInverse(), [SQUARE, TensorType(F64, ())], r"takes cutoffs f64\[2\], got f64\[\]"),
        (LogDeterminant(), [TALL, TALL, PIVOTS, PIVOTS], "takes square matrices"),
    ],
)
def test_what_does_not_fit_is_refused(op: Op, operands: list[TensorType], message: str) -> None:
    with pytest.raises(TypeMismatchError, match=message):
        op.infer(operands)


def test_vectors_that_turn_freely_have_no_derivative() -> None:
    with pytest.raises(MissingRuleError, match="vectors beyond the first 2 are free to turn; use full_matrices=False"):
        jvp(graph_of(Svd(True), [TALL]), [True])


def test_a_factorization_is_a_means_that_carries_no_derivative() -> None:
    a = made(regular(F64, 3, 3))
    lu, pivots, permutation = factored(a)
    types = [TensorType(F64, (3, 3))] * 2 + [TensorType(I32, (3,))] * 2
    graph = jvp(graph_of(Determinant(), types), [False, True, False, False])
    assert graph.has_tangent == (False,)
    (value,) = run(graph.graph, a, lu, pivots, permutation, np.ones((3, 3)))
    np.testing.assert_allclose(value, np.linalg.det(a))
