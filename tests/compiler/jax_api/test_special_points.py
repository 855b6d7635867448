"""Derivatives at zeros, infinities and NaN: those of JAX, which loses no NaN and makes none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import rematc.jax

rjax: Any = rematc.jax

POINTS = jnp.asarray([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5], jnp.float32)
#: Whose first and second derivatives are compared at the points.
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "celu": jax.nn.celu,
    "below a bound": lambda x: jnp.exp(jnp.minimum(x, 0)),
    "the greater": lambda x: jnp.maximum(x, -x),
    "rsqrt": lax.rsqrt,
    "cbrt": jnp.cbrt,
    "remainder": lambda x: lax.rem(jnp.float32(3), x),
    "power": lambda x: jnp.float32(2) ** x,
}


def derivatives(function: Callable[[Any], Any], inner: Any, outer: Any) -> list[Any]:
    """First and second derivatives at the points."""

    def first(x: Any) -> Any:
        return inner(lambda x: function(x).sum())(x)

    return [first(POINTS), outer(lambda x: first(x).sum())(POINTS)]


def test_derivatives_at_special_points_are_those_of_jax() -> None:
    @jax.jit
    def all_of_them() -> Any:
        return {
            name: (
                derivatives(function, jax.grad, jax.grad),
                derivatives(function, rjax.grad, rjax.grad),
                derivatives(rjax.checkpoint(function), jax.grad, jax.grad),
            )
            for name, function in FUNCTIONS.items()
        }

    for name, (expected, ours, through_checkpoint) in all_of_them().items():
        for order in range(2):
            for found in (ours[order], through_checkpoint[order]):
                np.testing.assert_allclose(found, expected[order], rtol=1e-5, err_msg=f"{name}, order {order + 1}")


def test_a_bound_that_holds_lets_nothing_through() -> None:
    """JAX has 0 times infinity."""
    assert rjax.grad(lambda x: jnp.log(jnp.maximum(x, 0)))(-1.0) == 0


def test_mixed_and_second_derivatives_where_a_factor_is_zero() -> None:
    bessel = jax.scipy.special

    @jax.jit
    def found(x: Any, zero: Any) -> Any:
        mixed = rjax.grad(rjax.grad(lambda x, y: x**y), argnums=1)(x, zero)
        return mixed, rjax.grad(bessel.i0e)(zero), rjax.grad(rjax.grad(bessel.i1e))(zero)

    np.testing.assert_allclose(found(2.0, 0.0), [0.5, 0, 0])
