"""np.linalg on traced arrays: NumPy's values, shapes, dtypes and result types, and the right derivatives."""

# ruff: noqa: PLW0108  # a lambda has a line of its own, which the error names

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import rematc
from rematc.ir.errors import CompileError
from tests.support.tracing import assert_as_numpy, run, traced

RNG = np.random.default_rng(11)
S = RNG.normal(size=(4, 4))
SS = RNG.normal(size=(2, 3, 3))
#: Tall, wide, vectors.
T, W, V = RNG.normal(size=(5, 3)), RNG.normal(size=(3, 5)), RNG.normal(size=4)
TT = RNG.normal(size=(2, 4, 2))
#: Symmetric, symmetric positive definite.
H, HH = S + S.T, SS + SS.swapaxes(-1, -2)
D, DD = S @ S.T + np.eye(4), SS @ SS.swapaxes(-1, -2) + np.eye(3)
SINGULAR = np.outer(V, V[::-1])
FLAT = np.array([[0, 0, 2, 1], [3, 0, 1, 4], [0, 0, 1, 2], [0, 0, 3, 1.0]])
C = S + 1j * RNG.normal(size=(4, 4))
INTS = RNG.integers(-5, 6, (3, 3)) + 9 * np.eye(3, dtype=int)
#: Of the condition of the matrices above, and of the order in which sums are made.
CLOSE = 1e-9

#: NumPy takes the first, and its stubs do not.
NO_RTOL: Any = {"rtol": None}
X: Any = "X"

Case = tuple[Callable[..., Any], tuple[Any, ...]]


def _case(function: Callable[..., Any], *arguments: Any) -> Case:
    return function, arguments


def _assembled(parts: Any) -> Any:
    u, s, vh = parts
    return u @ (s[..., None] * vh)


VALUES: list[Case] = [
    _case(np.linalg.cholesky, D),
    _case(np.linalg.cholesky, DD),
    _case(lambda a: np.linalg.cholesky(a, upper=True), DD),
    _case(np.linalg.cholesky, np.tril(D)),  # the upper triangle is not read
    _case(np.linalg.cholesky, np.zeros((2, 0, 0))),
    _case(np.linalg.qr, S),
    *[_case(lambda a, m=m: np.linalg.qr(a, m), x) for m in ("reduced", "complete", "r") for x in (T, W, TT)],
    *[_case(lambda a, m=m: np.linalg.qr(a, mode=m), np.zeros((3, 0))) for m in ("reduced", "complete")],
    _case(np.linalg.eigvalsh, H),
    _case(np.linalg.eigvalsh, HH),
    _case(lambda a: [np.linalg.eigvalsh(a, "U"), np.linalg.eigvalsh(a, UPLO="l")], S),
    _case(lambda a: [np.abs(x) for x in np.linalg.eigh(a)], HH),
    _case(lambda a: np.linalg.eigh(a).eigenvectors ** 2, H),
    _case(lambda a: np.linalg.svd(a)[1], T),
    *[_case(lambda a: _assembled(np.linalg.svd(a, full_matrices=False)), x) for x in (S, T, W, TT)],
    *[_case(lambda a: [np.abs(x) for x in np.linalg.svd(a)], x) for x in (S, np.zeros((3, 0)))],
    _case(lambda a: [x.sum() * 0 for x in np.linalg.svd(a)], T),
    _case(lambda a: np.linalg.svd(a, compute_uv=False), TT),
    _case(lambda a: np.linalg.svd(a, hermitian=True).S, HH),
    _case(np.linalg.svdvals, W),
    *[_case(np.linalg.pinv, x) for x in (S, T, W, TT, SINGULAR, INTS, np.zeros((2, 0, 3)))],
    _case(lambda a: [np.linalg.pinv(a, 0.5), np.linalg.pinv(a, rtol=0.3), np.linalg.pinv(a, **NO_RTOL)], T),
    _case(lambda a: np.linalg.pinv(a, hermitian=True), HH),
    _case(lambda a, c: [np.linalg.pinv(a, c), np.linalg.pinv(a, rtol=c)], TT, np.array([0.1, 0.9])),
    *[_case(np.linalg.matrix_rank, x) for x in (S, TT, SINGULAR, FLAT, np.zeros((3, 3)), np.zeros((2, 0, 3)))],
    _case(lambda a: [np.linalg.matrix_rank(a, 1.0), np.linalg.matrix_rank(a, rtol=0.5)], S),
    _case(lambda a: np.linalg.matrix_rank(a, np.array([0.1, 3.0])), TT),
    _case(lambda a: np.linalg.matrix_rank(a, hermitian=True), HH),
    _case(lambda v: v + np.linalg.matrix_rank(v), V),
    _case(np.linalg.solve, S, V),
    _case(np.linalg.solve, S, T[:4]),
    _case(np.linalg.solve, SS, SS),
    _case(np.linalg.solve, SS, V[:3]),
    _case(np.linalg.solve, SS, T[:3]),
    _case(np.linalg.solve, SS[0], SS),
    _case(np.linalg.solve, SS[:, None], SS),
    _case(np.linalg.solve, INTS, INTS),
    _case(lambda a: np.linalg.solve(a, [1, 2, 3, 4]), S.astype(np.float32)),
    _case(np.linalg.solve, np.zeros((0, 0)), np.zeros((0, 2))),
    *[_case(np.linalg.inv, x) for x in (S, SS, INTS, np.zeros((2, 0, 0)))],
    *[_case(np.linalg.det, S[:n, :n]) for n in range(5)],
    *[_case(np.linalg.det, x) for x in (SS, DD[:, None], SINGULAR, FLAT, INTS, INTS.astype(bool))],
    *[_case(np.linalg.slogdet, x) for x in (S, SS, -SS, FLAT, np.zeros((0, 0)))],
    *[_case(lambda a, n=n: np.linalg.matrix_power(a, n), SS) for n in (-3, -1, 0, 1, 6)],
    *[_case(lambda a, n=n: np.linalg.matrix_power(a, n), INTS) for n in (0, 3, -2)],
    _case(np.linalg.lstsq, T, T[:, 0]),
    _case(lambda a, b: np.linalg.lstsq(a, b, rcond=None), T, S[[0, 1, 2, 3, 0]]),
    _case(lambda a, b: np.linalg.lstsq(a, b)[0], W, V[:3]),
    _case(np.linalg.lstsq, SINGULAR, V),
    _case(lambda a, b: np.linalg.lstsq(a, b, 0.4)[2:], S, V),
    _case(lambda a, b: np.linalg.lstsq(a, b, rcond=-1)[0], S, V),
    *[_case(lambda a, p=p: np.linalg.cond(a, p), SS) for p in (None, 2, -2, 1, -1, np.inf, -np.inf, "fro", "nuc")],
    *[_case(np.linalg.cond, x) for x in (T, W)],
    _case(lambda a: np.linalg.cond(a, 1), np.zeros((2, 2))),
    *[_case(lambda a, o=o: np.linalg.norm(a, o), T) for o in (2, -2, "nuc", "f", -1)],
    *[_case(lambda a, o=o: np.linalg.norm(a, o, axis=(2, 0), keepdims=True), TT) for o in (2, -2, "nuc", "fro")],
    _case(lambda a: np.linalg.matrix_norm(a, ord="nuc"), TT),
    _case(lambda a: [np.linalg.norm(a, 2), np.linalg.norm(a, "nuc")], np.zeros((0, 3))),
    _case(lambda a, b, c: np.linalg.multi_dot([a, b, c, a]), W, T, S[:3, :3]),
    _case(lambda a, b, v: [np.linalg.multi_dot([v[:3], a, b, v[:3]]), np.linalg.multi_dot([v[:3], a, b])], W, T, V),
    _case(lambda a: np.linalg.multi_dot([a, a]), INTS),
    _case(np.linalg.tensorinv, RNG.normal(size=(4, 6, 8, 3))),
    _case(lambda a: np.linalg.tensorinv(a, ind=1), RNG.normal(size=(24, 8, 3))),
    _case(np.linalg.tensorsolve, RNG.normal(size=(2, 3, 6)), RNG.normal(size=(2, 3))),
    _case(lambda a, b: np.linalg.tensorsolve(a, b, axes=(0, 2)), RNG.normal(size=(2, 6, 3)), RNG.normal(size=6)),
    _case(lambda a: [np.linalg.trace(a), np.linalg.diagonal(a), np.linalg.matrix_transpose(a)], SS),
    _case(lambda a: [np.linalg.outer(a[0], a[1]), np.linalg.vecdot(a, a)], S),
]


@pytest.mark.parametrize("case", range(len(VALUES)))
def test_values(case: int) -> None:
    function, arguments = VALUES[case]
    assert_as_numpy(function, *arguments, tolerance=CLOSE if arguments[0].dtype == np.float64 else 2e-5)
    if arguments[0].dtype == np.float64:
        singles = [argument.astype(np.float32) for argument in arguments]
        found = jax.tree_util.tree_leaves(run(function, *singles))
        expected = jax.tree_util.tree_leaves(function(*singles))
        assert [x.dtype for x in found] == [np.asarray(x).dtype for x in expected]


@pytest.mark.parametrize(
    "matrix", [S, SS, H, C, np.zeros((2, 0, 0))], ids=["real", "batch", "symmetric", "complex", "empty"]
)
def test_eigenvalues_of_general_matrices_are_complex(matrix: Any) -> None:
    """NumPy looks whether all of them are real; a program does not know."""
    found, expected = run(np.linalg.eig, matrix), np.linalg.eig(matrix)
    assert type(found) is type(expected)
    for left, right in zip(found, expected, strict=True):
        assert left.dtype == np.complex128
        np.testing.assert_allclose(np.abs(left), np.abs(right), rtol=CLOSE, atol=CLOSE)
    np.testing.assert_allclose(
        matrix @ found.eigenvectors, found.eigenvectors * found.eigenvalues[..., None, :], atol=CLOSE
    )
    np.testing.assert_allclose(run(np.linalg.eigvals, matrix), expected.eigenvalues, rtol=CLOSE, atol=CLOSE)


#: Hermitian positive definite.
P = C @ C.conj().T + np.eye(4)
COMPLEX: list[Case] = [
    _case(np.linalg.cholesky, P),
    _case(lambda a: np.linalg.cholesky(a, upper=True), P),
    _case(np.linalg.qr, C[:, :3]),
    _case(np.linalg.eigvalsh, P),
    _case(lambda a: _assembled(np.linalg.svd(a, full_matrices=False)), C[:3]),
    *[_case(function, C) for function in (np.linalg.svdvals, np.linalg.inv, np.linalg.det, np.linalg.slogdet)],
    _case(np.linalg.det, C[:3, :3]),
    _case(np.linalg.solve, C, V),
    _case(np.linalg.pinv, C[:3]),
    _case(np.linalg.lstsq, C[:, :2], C[0]),
    _case(lambda a: np.linalg.pinv(a, hermitian=True), P),
    _case(lambda a: np.linalg.matrix_power(a, -2), C),
    *[_case(lambda a, o=o: np.linalg.norm(a, o), C) for o in (None, "nuc", 2, 1, np.inf)],
    *[_case(lambda a, o=o: np.linalg.norm(a, o, axis=0), C) for o in (0, 1, 2, 3, np.inf, -np.inf)],
    _case(np.linalg.cond, C),
    *[_case(function, C, C[::-1]) for function in (np.vdot, np.linalg.vecdot, np.vecdot)],
    _case(np.linalg.vecdot, C, V),
    _case(lambda v, a: np.vecmat(v, a), C[0], C),
]


@pytest.mark.parametrize("case", range(len(COMPLEX)))
def test_complex_values(case: int) -> None:
    function, arguments = COMPLEX[case]
    found = jax.tree_util.tree_leaves(run(function, *arguments))
    expected = jax.tree_util.tree_leaves(function(*arguments))
    for left, right in zip(found, expected, strict=True):
        assert left.dtype == np.asarray(right).dtype
        np.testing.assert_allclose(left, right, rtol=CLOSE, atol=CLOSE)


@pytest.mark.parametrize(
    ("function", "fields"),
    [
        (np.linalg.eig, ("eigenvalues", "eigenvectors")),
        (np.linalg.eigh, ("eigenvalues", "eigenvectors")),
        (np.linalg.qr, ("Q", "R")),
        (np.linalg.svd, ("U", "S", "Vh")),
        (np.linalg.slogdet, ("sign", "logabsdet")),
    ],
)
def test_results_have_numpys_named_tuples(function: Callable[..., Any], fields: tuple[str, ...]) -> None:
    inside: list[Any] = []

    def noted(a: Any) -> Any:
        inside.append(function(a))
        return inside[0]

    found = run(noted, H)
    for result in (inside[0], found):
        assert type(result) is type(function(H))
        assert result._fields == fields


@pytest.mark.parametrize(
    ("function", "phrases"),
    [
        (lambda a: np.linalg.inv(a), ["np.linalg.inv", "square matrices", "(5, 3)"]),
        (lambda a: np.linalg.cholesky(a[0]), ["np.linalg.cholesky", "2 dimensions"]),
        (lambda a: np.linalg.det(a.astype(np.float16)), ["np.linalg.det", "float16", "astype(np.float32)"]),
        (lambda a: np.linalg.qr(a, "raw"), ["np.linalg.qr", "'raw'", "'reduced'"]),
        (lambda a: np.linalg.eigh(a.T @ a, X), ["np.linalg.eigh", "UPLO='X'", "'L' or 'U'"]),
        (lambda a: np.linalg.solve(a.T @ a, a), ["np.linalg.solve", "(3, 3)", "(5, 3)", "3 unknowns"]),
        (
            lambda a: np.linalg.solve((a.T @ a)[None].repeat(2, 0), a[:3][None].repeat(3, 0)),
            ["np.linalg.solve", "(2,)"],
        ),
        (lambda a: np.linalg.lstsq(a, a[:3]), ["np.linalg.lstsq", "(5, 3)", "(3, 3)"]),
        (lambda a: np.linalg.lstsq(a, a, a[0, 0]), ["rcond", "known while tracing"]),
        (lambda a: np.linalg.pinv(a, 0.1, rtol=0.1), ["rcond or rtol"]),
        (lambda a: np.linalg.matrix_rank(a, 0.1, rtol=0.1), ["tol or rtol"]),
        (lambda a: np.linalg.norm(a, 7), ["7", "'nuc'"]),
        (lambda a: np.linalg.cond(a[:0]), ["np.linalg.cond", "empty"]),
        (lambda a: np.linalg.multi_dot([a]), ["np.linalg.multi_dot", "2 arrays"]),
        (lambda a: np.linalg.multi_dot([a, a[0], a]), ["np.linalg.multi_dot", "vectors"]),
        (lambda a: np.linalg.tensorinv(a), ["np.linalg.tensorinv", "(5, 3)"]),
        (lambda a: np.linalg.tensorsolve(a, a[0]), ["np.linalg.tensorsolve", "(5, 3)"]),
        (lambda a: np.linalg.matrix_power(a, 2), ["np.linalg.matrix_power", "square"]),
        (rematc.grad(lambda x: np.linalg.svd(x)[0].sum()), ["svd", "full_matrices=False"]),
    ],
)
def test_what_is_refused_names_a_way_out(function: Callable[[Any], Any], phrases: list[str]) -> None:
    with pytest.raises(CompileError) as caught:
        traced(function, T)
    for phrase in phrases:
        assert phrase in caught.value.message
    assert caught.value.loc is not None
    assert caught.value.loc.file == __file__


def test_failures_are_nan_and_not_finite() -> None:
    """Where NumPy raises LinAlgError: a program cannot."""
    assert np.isnan(run(np.linalg.cholesky, np.stack([D, -D]))[1]).all()
    assert np.isfinite(run(np.linalg.cholesky, np.stack([D, -D]))[0]).all()
    assert not np.isfinite(run(np.linalg.inv, np.ones((2, 2)))).all()
