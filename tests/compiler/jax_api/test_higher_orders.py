"""Derivatives of every order of functions with rules of the user's: by the rules, never by the functions' own code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rematc.jax

rjax: Any = rematc.jax


@jax.custom_vjp
def backwards(x: Any) -> Any:
    return jnp.sin(x)


# Rules that say something else than the function does, so that it shows which of them was used.
backwards.defvjp(lambda x: (backwards(x), x), lambda x, ct: (2 * backwards(x) * ct,))


@jax.custom_jvp
def forwards(x: Any) -> Any:
    return jnp.sin(x)


forwards.defjvp(lambda primals, tangents: (forwards(*primals), 3 * forwards(*primals) * tangents[0]))


def nested(function: Callable[..., Any], order: int, through: Callable[..., Any]) -> Callable[..., Any]:
    for _ in range(order):
        function = jax.grad(through(function))
    return function


@pytest.mark.parametrize("rule", [backwards, forwards], ids=["custom_vjp", "custom_jvp"])
@pytest.mark.parametrize("order", [1, 3])
def test_of_a_checkpoint(rule: Callable[..., Any], order: int) -> None:
    def function(x: Any) -> Any:
        return rule(jnp.cos(x)) * x

    expected = nested(function, order, jax.jit)(0.7)
    found = nested(rjax.checkpoint(function), order, jax.jit)(0.7)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("rule", [backwards, forwards], ids=["custom_vjp", "custom_jvp"])
def test_of_a_gradient(rule: Callable[..., Any]) -> None:
    def function(x: Any) -> Any:
        return rule(jnp.cos(x)) * x

    expected = nested(function, 3, jax.jit)(0.7)
    np.testing.assert_allclose(nested(rjax.grad(function), 2, jax.jit)(0.7), expected, rtol=1e-5)


def test_the_value_is_the_rules_where_a_derivative_is_taken() -> None:
    @jax.custom_vjp
    def function(x: Any) -> Any:
        return jnp.tan(x)

    function.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (jnp.cos(x) * ct,))
    assert rjax.checkpoint(function)(0.7) == jnp.tan(0.7)
    value, gradient = jax.value_and_grad(rjax.checkpoint(function))(0.7)
    np.testing.assert_allclose([value, gradient], [jnp.sin(0.7), jnp.cos(0.7)], rtol=1e-6)
    x = jnp.linspace(0.2, 0.9, 3)  # of what is no loss, and is a region again
    values, pull = jax.vjp(rjax.checkpoint(function), x)
    np.testing.assert_allclose(values, jnp.sin(x), rtol=1e-6)
    np.testing.assert_allclose(pull(values)[0], jnp.cos(x) * values, rtol=1e-6)


def test_inside_a_scan_and_a_batch() -> None:
    def function(x: Any) -> Any:
        return jax.lax.scan(lambda carry, _: (backwards(carry) * x, None), x, None, length=2)[0]

    def second(function: Callable[..., Any]) -> Callable[..., Any]:
        return jax.vmap(nested(function, 2, lambda f: f))

    x = jnp.linspace(0.2, 0.9, 3)
    np.testing.assert_allclose(second(rjax.checkpoint(function))(x), second(function)(x), rtol=1e-4)
