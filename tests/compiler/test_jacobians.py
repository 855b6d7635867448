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
