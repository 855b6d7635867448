"""`jacfwd`, `jacrev`, `hessian`: they agree with each other and with JAX, and trace their function once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rematc

RANDOM = np.random.default_rng(2)
PARAMS = {"w": RANDOM.normal(size=(3, 2)), "b": RANDOM.normal(size=2)}
X = RANDOM.normal(size=3)
ARGNUMS: tuple[Any, ...] = (0, 1, -1, (0, 1), (1,))


def model(numpy: Any, params: Any, x: Any) -> Any:
    """Outputs that depend on everything, on one argument alone, and on one element."""
    hidden = numpy.tanh(x @ params["w"] + params["b"])
    return {"hidden": hidden, "scaled": hidden.sum() * x, "first": numpy.sin(x[0])}


def of_numpy(params: Any, x: Any) -> Any:
    return model(np, params, x)


def of_jax(params: Any, x: Any) -> Any:
    return model(jnp, params, x)


def assert_same(found: Any, expected: Any) -> None:
    assert str(jax.tree_util.tree_structure(found)) == str(jax.tree_util.tree_structure(expected))
    pairs = zip(jax.tree_util.tree_leaves(found), jax.tree_util.tree_leaves(expected), strict=True)
    for got, wanted in pairs:
        assert got.shape == wanted.shape
        assert got.dtype == wanted.dtype
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("argnums", ARGNUMS, ids=str)
def test_forwards_and_backwards_agree_with_jax(argnums: Any) -> None:
    with jax.enable_x64(True):
        expected = jax.jacobian(of_jax, argnums)(PARAMS, X)
    assert_same(rematc.jacfwd(of_numpy, argnums)(PARAMS, X), expected)
    assert_same(rematc.jacrev(of_numpy, argnums)(PARAMS, X), expected)


@pytest.mark.parametrize("argnums", [0, (0, 1)], ids=str)
def test_hessian_agrees_with_jax(argnums: Any) -> None:
    with jax.enable_x64(True):
        expected = jax.hessian(of_jax, argnums)(PARAMS, X)
    assert_same(rematc.hessian(of_numpy, argnums)(PARAMS, X), expected)


@pytest.mark.parametrize("transform", [rematc.jacfwd, rematc.jacrev, rematc.hessian])
def test_auxiliary_data(transform: Any) -> None:
    def with_aux(x: Any) -> Any:
        return np.sin(x), {"twice": 2 * x, "count": np.argmax(x)}

    derivative, aux = transform(with_aux, has_aux=True)(X)
    assert_same(derivative, transform(np.sin)(X))
    np.testing.assert_array_equal(aux["twice"], 2 * X)
    assert int(aux["count"]) == np.argmax(X)


@pytest.mark.parametrize("policy", [None, "dots", "nothing"])
def test_of_checkpoints(policy: Any) -> None:
    f = rematc.checkpoint(of_numpy, policy=policy)
    assert_same(rematc.jacrev(f)(PARAMS, X), rematc.jacfwd(of_numpy)(PARAMS, X))
    assert_same(rematc.hessian(f, 1)(PARAMS, X), rematc.hessian(of_numpy, 1)(PARAMS, X))


def test_inside_other_transformations() -> None:
    cubes: Callable[..., Any] = rematc.hessian(lambda x: (x**3).sum())
    batch = np.stack([X, 2 * X])
    expected = np.stack([np.diag(6 * x) for x in batch])
    np.testing.assert_allclose(rematc.jit(rematc.vmap(cubes))(batch), expected, rtol=1e-12)
    jacobian: Callable[..., Any] = rematc.jacrev(lambda y: y**3)
    trace: Callable[..., Any] = rematc.grad(lambda x: np.trace(jacobian(x)))
    np.testing.assert_allclose(trace(X), 6 * X, rtol=1e-12)


def test_outputs_that_do_not_depend_on_the_input() -> None:
    for transform in (rematc.jacfwd, rematc.jacrev):
        found: Any = transform(lambda x: (x[:2], np.ones(2), np.floor(x)))(X)
        assert_same(found, (np.eye(3)[:2], np.zeros((2, 3)), np.zeros((3, 3))))


def test_the_function_is_traced_once() -> None:
    calls = []

    def counted(x: Any) -> Any:
        calls.append(1)
        return np.sin(x)

    for transform in (rematc.jacfwd, rematc.jacrev, rematc.hessian):
        calls.clear()
        transform(counted)(X)
        assert len(calls) == 1


def test_what_does_not_depend_on_the_direction_is_computed_once() -> None:
    graph = rematc.trace(rematc.jacfwd(lambda x: np.sin(x) * 2), X)
    sines = [eqn.results[0].type.shape for eqn in graph.equations if eqn.op.name in ("sine", "cosine")]
    assert sines == [(3,), (3,)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rematc.jacfwd(np.sin)(np.arange(3)), "the Jacobian with respect to x needs floating-point values"),
        (lambda: rematc.jacrev(lambda x: x.astype(np.int32))(X), r"needs floating-point outputs, got i32\[3\]"),
        (lambda: rematc.jacrev(np.sin, 1)(X), "argnums names argument 1, but 'sin' was called with 1 positional"),
        (lambda: rematc.jacfwd(np.sin, has_aux=True)(X), r"with has_aux 'sin' returns \(outputs, aux\)"),
    ],
)
def test_errors_are_the_users(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(rematc.CompileError, match=message) as caught:
        call()
    assert caught.value.loc is not None
    assert caught.value.loc.file == __file__


# -- complex numbers, policies ------------------------------------------------------------------------------------

Z = X + 1j * RANDOM.normal(size=3)
MATRIX = RANDOM.normal(size=(3, 3)) + 1j * RANDOM.normal(size=(3, 3))


@pytest.mark.parametrize("name", ["jacfwd", "jacrev", "hessian"])
def test_of_holomorphic_functions_they_are_jax_s(name: str) -> None:
    def of(numpy: Any) -> Any:
        return lambda z: numpy.sin(MATRIX @ z) * z[0]

    with jax.enable_x64(True):
        expected = getattr(jax, name)(of(jnp), holomorphic=True)(Z)
    assert_same(getattr(rematc, name)(of(np), holomorphic=True)(Z), expected)


def test_forwards_outputs_may_be_complex_and_backwards_inputs() -> None:
    def outwards(numpy: Any) -> Any:
        return lambda x: numpy.exp(1j * x) * MATRIX[0]

    def inwards(numpy: Any) -> Any:
        return lambda z: numpy.abs(MATRIX @ z) ** 2

    with jax.enable_x64(True):
        expected = jax.jacfwd(outwards(jnp))(X), jax.jacrev(inwards(jnp))(Z)
    assert_same((rematc.jacfwd(outwards(np))(X), rematc.jacrev(inwards(np))(Z)), expected)


@pytest.mark.parametrize(
    ("name", "holomorphic", "at", "function", "text"),
    [
        ("jacfwd", False, Z, np.sin, "with respect to x, forwards, needs real values, got c128[3]; give holomorphic"),
        ("jacrev", False, Z, np.sin, "backwards, needs real outputs, got c128[3]; give holomorphic=True"),
        ("jacrev", True, Z, np.abs, "holomorphic=True needs complex outputs, got f64[3]"),
        ("jacfwd", True, X, np.sin, "holomorphic=True needs complex values, got f64[3]"),
    ],
)
def test_numbers_that_do_not_fit_are_refused_at_the_user_s_line(
    name: str, holomorphic: bool, at: Any, function: Any, text: str
) -> None:
    def named(x: Any) -> Any:
        return function(x)

    with pytest.raises(rematc.CompileError) as caught:
        getattr(rematc, name)(named, holomorphic=holomorphic)(at)
    assert text in caught.value.message
    assert caught.value.loc is not None
    assert caught.value.loc.file == __file__


@pytest.mark.parametrize(("policy", "sines"), [(None, 0), ("everything", 0), ("nothing", 1)])
def test_a_policy_on_the_whole_holds_where_reverse_mode_is_inside(policy: Any, sines: int) -> None:
    """Under "nothing" the inner sine is computed again, behind a barrier, once for all outputs."""

    def layers(x: Any) -> Any:
        return np.sin(np.cos(x) * 2)

    lowered = rematc.lower(rematc.jacrev(layers, policy=policy), X)
    assert lowered.stablehlo().count("stablehlo.optimization_barrier") == sines
    assert_same(rematc.jacrev(layers, policy=policy)(X), rematc.jacrev(layers)(X))
    assert_same(rematc.hessian(layers, policy=policy)(X), rematc.hessian(layers)(X))
