"""Reductions by functions that have derivative rules of their own: `jnp.logaddexp` and its like."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import rematc
import rematc.jax
from tests.support.jax_programs import assert_like_jax

# Results are trees, which tests know and types do not.
from_jax: Any = rematc.from_jax
rjax: Any = rematc.jax
X = jnp.asarray(np.random.default_rng(7).standard_normal((2, 3)), jnp.float32)
NOTHING = jnp.float32(-jnp.inf)


def in_windows(x: Any) -> Any:
    return lax.reduce_window(x, NOTHING, jnp.logaddexp, (1, 2), (1, 1), "VALID")


def in_windows_by_parts(x: Any) -> Any:
    return jnp.logaddexp(x[:, :2], x[:, 1:])


def test_the_derivative_of_a_reduction_is_made_of_the_rules_of_its_function() -> None:
    assert_like_jax(lambda x: lax.reduce(jnp.sin(x), NOTHING, jnp.logaddexp, (1,)), X)


def test_the_derivative_of_a_reduction_in_windows_is_that_of_its_parts() -> None:
    """JAX has no backward derivative of it."""

    def slope(wrap: Any, function: Any, api: Any) -> Any:
        return api.grad(wrap(lambda x: jnp.sum(jnp.sin(function(x)))))(X)

    found = slope(from_jax, in_windows, rematc)
    np.testing.assert_allclose(found, slope(lambda f: f, in_windows_by_parts, jax), rtol=1e-5, atol=1e-6)


def test_its_second_derivative_is_that_of_the_rule() -> None:
    """Of a batch, at once: the rule is applied to arrays of more dimensions."""

    def curvature(api: Any, wrap: Any) -> Any:
        slope = api.grad(wrap(lambda x: lax.reduce(x * x, NOTHING, jnp.logaddexp, (0,))))
        return api.vmap(api.grad(lambda x: slope(x)[0]))(X)

    np.testing.assert_allclose(curvature(rematc, from_jax), curvature(jax, lambda f: f), rtol=1e-4, atol=1e-5)


def test_the_function_may_have_branches() -> None:
    """It is batched and differentiated like any other, whatever ops are in it."""

    def greater(a: Any, b: Any) -> Any:
        return lax.cond(a > b, lambda: a, lambda: b)

    def slopes(api: Any, wrap: Any, reduced: Any) -> Any:
        slope = api.grad(wrap(lambda x: jnp.sum(jnp.sin(reduced(x)))))
        return slope(X), api.vmap(slope)(jnp.stack([X, -X]))

    def in_windows(x: Any) -> Any:
        return lax.reduce_window(x, NOTHING, greater, (1, 3), (1, 1), "VALID")

    expected = slopes(jax, lambda f: f, lambda x: jnp.max(x, 1))
    for reduced in (lambda x: lax.reduce(x, NOTHING, greater, (1,)), in_windows):
        for found, wanted in zip(slopes(rematc, from_jax, reduced), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-6)


@jax.custom_vjp
def product(a: Any, b: Any) -> Any:
    return a * b


product.defvjp(lambda a, b: (a * b, (a, b)), lambda saved, ct: (ct * saved[1], ct * saved[0]))


@jax.custom_vjp
def total(a: Any, b: Any) -> Any:
    return a + b


# Not the derivative of the sum, so that a rule that is not used shows.
total.defvjp(lambda a, b: (a + b, None), lambda saved, ct: (ct, 3 * ct))
# What JAX gives narrower types.
reduce_by: Any = lax.reduce


def by_backward_rules(x: Any) -> Any:
    start = (jnp.float32(0), jnp.float32(1))
    sums, products = reduce_by((x, x + 1), start, lambda a, b: (a[0] + b[0], product(a[1], b[1])), (1,))
    return jnp.sin(sums) * products


def test_functions_with_backward_rules_are_differentiated_by_them() -> None:
    assert_like_jax(by_backward_rules, X)
    found: Any = rematc.grad(from_jax(lambda x: reduce_by(x, jnp.float32(0), total, (1,)).sum()))(X[:, :2])
    assert set(np.unique(found)) <= {1.0, 3.0, 9.0}
    assert np.max(found) > 1


def test_functions_with_backward_rules_in_windows() -> None:
    """JAX has no backward derivative of it."""

    def pairs(x: Any) -> Any:
        return jnp.sum(jnp.sin(lax.reduce_window(x, jnp.float32(1), product, (1, 2), (1, 1), "VALID")))

    expected = jax.grad(lambda x: jnp.sum(jnp.sin(x[:, :2] * x[:, 1:])))(X)
    found: Any = rematc.grad(from_jax(pairs))(X)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_rules_that_jax_has_for_more_derivatives_are_for_scalars() -> None:
    """A function that JAX could differentiate further, inside of the derivative that goes back to JAX."""

    def loss(x: Any) -> Any:
        return reduce_by(x, jnp.float32(0), lambda a, b: a + jax.nn.relu(b), (1,)).sum()

    x = jnp.abs(X)
    gradient = rjax.grad(loss)
    np.testing.assert_allclose(gradient(x), jax.grad(loss)(x), rtol=1e-6)
    np.testing.assert_allclose(jax.grad(rjax.checkpoint(loss))(x), jax.grad(loss)(x), rtol=1e-6)
