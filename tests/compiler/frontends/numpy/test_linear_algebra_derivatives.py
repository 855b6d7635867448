"""np.linalg differentiated: against central differences, against JAX, twice, under policies, and as XLA runs it."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rematc
from rematc import policies
from rematc.ir.policy import RECOMPUTE, SAVE, Decision
from rematc.lowering.runtime import compile_program
from tests.support.smooth_graphs import count_ops
from tests.support.tracing import run

RNG = np.random.default_rng(13)
S, SS = RNG.normal(size=(4, 4)), RNG.normal(size=(2, 3, 3))
T, W, TT = RNG.normal(size=(4, 2)), RNG.normal(size=(2, 4)), RNG.normal(size=(2, 3, 2))
SINGULAR = np.array([[1.0, 2.0, 0.5], [2.0, 4.0, 1.0], [0.3, -1.0, 2.0]])
#: Of rank 3; elimination leaves the zero on u's diagonal in the second place.
FLAT = np.array([[0, 0, 2, 1], [3, 6, 1, 4], [0, 0, 1, 2], [0, 0, 3, 1.5]]) + np.diag([0, 0, 0, 1.0])
gradient: Any = rematc.grad
Function = Callable[[Any, Any], Any]
#: Options of XLA: many small functions, run once.
QUICKLY = {"xla_backend_optimization_level": 0}


def symmetric(x: Any) -> Any:
    return x + x.swapaxes(-1, -2)


def definite(x: Any) -> Any:
    return x @ x.swapaxes(-1, -2) + np.eye(x.shape[-1])


#: Those that JAX judges too; the others are the same functions of other shapes.
WITH_JAX = (
    *("cholesky", "solve", "solve batch", "inv", "det 3", "det 4", "slogdet", "matrix_power", "eigvalsh", "eigh", "qr"),
    *("qr tall", "qr wide", "qr complete", "svd", "svd wide", "pinv", "lstsq", "norm 2", "norm nuc", "cond"),
)
#: Those that are compiled: with them, every op and every derivative.
ON_XLA = ("cholesky", "solve batch", "inv", "det 4", "slogdet", "eigh", "qr complete", "svd wide", "pinv", "lstsq")


def weigh(m: Any, *arrays: Any) -> Any:
    """A number that tells all elements apart."""
    return sum(m.sum(x * m.cos(np.arange(x.size).reshape(x.shape) + index)) for index, x in enumerate(arrays))


def of_svd(m: Any, x: Any) -> Any:
    """The signs of the vectors are anybody's."""
    u, s, vh = m.linalg.svd(x, full_matrices=False)
    return weigh(m, u * u, s, vh * vh)


#: Functions of the module to call, NumPy or jax.numpy, and of a matrix.
CASES: dict[str, tuple[Function, Any]] = {
    "cholesky": (lambda m, x: weigh(m, m.linalg.cholesky(definite(x))), S),
    "cholesky batch": (lambda m, x: weigh(m, m.linalg.cholesky(definite(x))), SS),
    "solve": (lambda m, x: weigh(m, m.linalg.solve(x, x[:, :2] ** 2)), S),
    "solve vector": (lambda m, x: weigh(m, m.linalg.solve(x, x[0] * x[1])), S),
    "solve batch": (lambda m, x: weigh(m, m.linalg.solve(x, x[0, :, :1] * x), m.linalg.solve(x[0], x)), SS),
    "inv": (lambda m, x: weigh(m, m.linalg.inv(x)), S),
    "inv batch": (lambda m, x: weigh(m, m.linalg.inv(x)), SS),
    "det 1": (lambda m, x: weigh(m, m.linalg.det(x)), SS[:, :1, :1]),
    "det 2": (lambda m, x: weigh(m, m.linalg.det(x)), SS[:, :2, :2]),
    "det 3": (lambda m, x: weigh(m, m.linalg.det(x)), SS),
    "det 4": (lambda m, x: weigh(m, m.linalg.det(x)), S),
    "det singular": (lambda m, x: weigh(m, m.linalg.det(x)), SINGULAR),
    "slogdet": (lambda m, x: weigh(m, *m.linalg.slogdet(x)), SS),
    "matrix_power": (lambda m, x: weigh(m, m.linalg.matrix_power(x, -2)), S),
    "eigvalsh": (lambda m, x: weigh(m, m.linalg.eigvalsh(symmetric(x))), SS),
    "eigh": (lambda m, x: weigh(m, m.linalg.eigh(symmetric(x))[1] ** 2, m.linalg.eigh(symmetric(x))[0]), S),
    "qr": (lambda m, x: weigh(m, *m.linalg.qr(x)), S),
    "qr tall": (lambda m, x: weigh(m, *m.linalg.qr(x)), TT),
    "qr wide": (lambda m, x: weigh(m, *m.linalg.qr(x)), W),
    "qr complete": (lambda m, x: weigh(m, *m.linalg.qr(x, mode="complete")), T),
    "qr r": (lambda m, x: weigh(m, m.linalg.qr(x, mode="r")), T),
    "svd": (of_svd, S),
    "svd tall": (of_svd, TT),
    "svd wide": (of_svd, W),
    "svdvals": (lambda m, x: weigh(m, m.linalg.svdvals(x)), W),
    "pinv": (lambda m, x: weigh(m, m.linalg.pinv(x)), TT),
    "pinv wide": (lambda m, x: weigh(m, m.linalg.pinv(x)), W),
    "lstsq": (lambda m, x: weigh(m, *m.linalg.lstsq(x, x[:, 0] ** 2)[:2]), T),
    "norm 2": (lambda m, x: weigh(m, m.linalg.norm(x, 2), m.linalg.norm(x, -2)), T),
    "norm nuc": (lambda m, x: weigh(m, m.linalg.norm(x, "nuc", axis=(0, 2))), TT),
    "cond": (lambda m, x: weigh(m, m.linalg.cond(x), m.linalg.cond(x, 1)), S),
    "multi_dot": (lambda m, x: weigh(m, m.linalg.multi_dot([x.T, x, x.T])), T),
    "tensorsolve": (lambda m, x: weigh(m, m.linalg.tensorsolve(x.reshape(2, 2, 4), x[:2, :2])), S),
    "tensorinv": (lambda m, x: weigh(m, m.linalg.tensorinv(x.reshape(4, 2, 2), ind=1)), S),
}
#: Those that are differentiated twice.
TWICE = ("cholesky", "solve", "solve batch", "inv", "det 3", "det 4", "slogdet", "eigvalsh", "qr tall", "svdvals")


def differences(function: Callable[[Any], Any], x: Any, step: float = 1e-6) -> Any:
    result = np.zeros_like(x)
    for place in np.ndindex(x.shape):
        shift = np.zeros_like(x)
        shift[place] = step
        result[place] = (function(x + shift) - function(x - shift)) / (2 * step)
    return result


def slope(function: Function) -> Callable[[Any], Any]:
    """A number made of all elements of the gradient."""
    return lambda x: weigh(np, gradient(lambda at: function(np, at))(x))


@functools.cache
def in_jax() -> dict[str, Any]:
    """JAX's gradients, all at once."""

    def all_of_them(arrays: dict[str, Any]) -> dict[str, Any]:
        return {name: jax.grad(functools.partial(CASES[name][0], jnp))(x) for name, x in arrays.items()}

    with jax.enable_x64(True):
        compiled: Any = jax.jit(all_of_them, compiler_options=dict(QUICKLY))
        return compiled({name: CASES[name][1] for name in WITH_JAX})  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_slopes_and_jaxs(name: str) -> None:
    function, x = CASES[name]
    found = run(gradient(lambda at: function(np, at)), x)
    expected = differences(lambda at: function(np, at), x)
    # The error of central differences: the step squared, and rounding divided by the step.
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7 * (1 + np.abs(expected).max()))
    if name in WITH_JAX:
        np.testing.assert_allclose(found, in_jax()[name], rtol=1e-8, atol=1e-9 * (1 + np.abs(found).max()))


@pytest.mark.parametrize("name", TWICE)
def test_second_derivatives(name: str) -> None:
    function, x = CASES[name]
    of_gradient = slope(function)
    found = run(gradient(of_gradient), x)
    expected = differences(lambda at: run(of_gradient, at), x)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6 * (1 + np.abs(expected).max()))


def test_the_determinants_slope_is_right_whatever_the_rank() -> None:
    """Elimination leaves a zero on the diagonal anywhere, or several; JAX is right only where it is the last."""
    for matrix in (FLAT, FLAT * [1, 1, 0, 1], np.zeros((4, 4)), np.diag([0, 1, 2, 3.0]), np.diag([0, 1, 0, 3.0])):
        found = run(gradient(np.linalg.det), matrix)
        np.testing.assert_allclose(found, differences(np.linalg.det, matrix, 1e-3), atol=1e-9)


def test_a_pseudo_inverse_of_equal_singular_values_has_a_slope() -> None:
    def function(x: Any) -> Any:
        return weigh(np, np.linalg.pinv(x))

    np.testing.assert_allclose(run(gradient(function), np.eye(3)), differences(function, np.eye(3)), atol=1e-8)


def test_eigenvalues_that_are_equal_have_slopes_and_their_vectors_have_not() -> None:
    def trace_of_square(x: Any) -> Any:
        return np.sum(np.linalg.eigvalsh(x) ** 2)

    np.testing.assert_allclose(run(gradient(trace_of_square), np.eye(3)), 2 * np.eye(3), atol=1e-14)
    vectors = run(gradient(lambda x: np.linalg.eigh(x)[1][0, 1]), np.eye(3))
    assert not np.isfinite(vectors).all()


def test_gradients_of_symmetric_functions_are_symmetric() -> None:
    """A triangle is read; the matrix is meant."""
    matrix = definite(S)
    functions: list[Callable[[Any], Any]] = [np.linalg.cholesky, np.linalg.eigvalsh]
    for function in functions:
        found = run(gradient(lambda x, f=function: weigh(np, f(x))), matrix)
        np.testing.assert_allclose(found, found.T, atol=1e-14)


# -- as XLA runs it ----------------------------------------------------------------------------------------------------


def test_xla_gives_the_values_and_gradients_of_the_reference() -> None:
    def values_and_gradients(arrays: Sequence[Any]) -> Any:
        functions = [functools.partial(CASES[name][0], np) for name in ON_XLA]
        return [rematc.value_and_grad(function)(x) for function, x in zip(functions, arrays, strict=True)]

    arrays = [CASES[name][1] for name in ON_XLA]
    program = rematc.lower(values_and_gradients, arrays).program
    found = iter(compile_program(program, compiler_options=QUICKLY)(*arrays))
    for name, x in zip(ON_XLA, arrays, strict=True):
        value: Any
        slopes: Any
        value, slopes = next(found), next(found)
        np.testing.assert_allclose(value, CASES[name][0](np, x), rtol=1e-9, atol=1e-14, err_msg=name)
        np.testing.assert_allclose(slopes, in_jax()[name], rtol=1e-7, atol=1e-8, err_msg=name)


# -- under policies ----------------------------------------------------------------------------------------------------


def loss(a: Any, y: Any) -> Any:
    """Sums of a solution, used so that the factorization is needed backwards."""
    return np.sum(np.sin(np.linalg.solve(np.tanh(a), y)))


def keep(**answers: tuple[bool, ...]) -> Any:
    """A policy that answers for each result of an op: what is not named is recomputed."""

    def policy(op: Any, operands: Any, name: str | None) -> Decision | tuple[Decision, ...]:
        saved = answers.get(op.name, (False,))
        return tuple([SAVE if one else RECOMPUTE for one in saved])

    return policy


def backward_ops(policy: Any) -> Counter[str]:
    lowered = rematc.lower(rematc.value_and_grad(loss, (0, 1), policy=policy), S, T)
    (record,) = lowered.records
    return count_ops(record.vjp.backward)  # type: ignore[attr-defined]  # records are typed as objects


@pytest.mark.parametrize(
    ("policy", "lu", "solutions"),
    [
        (policies.everything_saveable, 0, 0),
        (policies.nothing_saveable, 1, 1),
        (keep(lu=(True, True, True)), 0, 1),
        (keep(lu=(True, False, True), linear_solve=(True,)), 0, 0),
        (keep(lu=(True, False, False)), 1, 1),
        (keep(linear_solve=(True,)), 1, 0),
    ],
    ids=["everything", "nothing", "lu", "lu but for its pivots, and the solution", "lu alone", "solution"],
)
def test_decompositions_are_saved_or_recomputed_result_by_result(policy: Any, lu: int, solutions: int) -> None:
    """The backward graph has one solution of its own, by lu_solve, and needs lu, the permutation and the solution."""
    ops = backward_ops(policy)
    assert (ops["lu"], ops["linear_solve"], ops["lu_solve"]) == (lu, solutions, 1)
    under_policy = rematc.grad(loss, (0, 1), policy=policy)
    for found, expected in zip(run(under_policy, S, T), run(rematc.grad(loss, (0, 1)), S, T), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_recomputed_decompositions_run_on_xla() -> None:
    @rematc.checkpoint
    def layer(x: Any) -> Any:
        return np.linalg.svd(np.tanh(x), full_matrices=False)[0] ** 2

    def objective(x: Any) -> Any:
        return weigh(np, layer(layer(x)), np.linalg.cholesky(definite(layer(x))))

    np.testing.assert_allclose(gradient(objective)(S), run(gradient(objective), S), rtol=1e-9, atol=1e-9)
