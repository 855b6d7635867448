"""Reductions by functions that have derivative rules of their own: `jnp.logaddexp` and its like."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import rematc
from tests.support.jax_programs import assert_like_jax

# Results are trees, which tests know and types do not.
from_jax: Any = rematc.from_jax
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
