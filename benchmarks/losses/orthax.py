"""Orthogonal polynomials by orthax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import orthax

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]


def families() -> Built:
    x = jnp.linspace(-0.9, 0.9, 200)
    coefficients = jax.random.normal(jax.random.key(0), (12,)) / jnp.arange(1.0, 13.0)

    def loss(coefficients: Any, x: Any) -> Any:
        total = jnp.asarray(0.0)
        for family, short in (
            (orthax.legendre, "leg"),
            (orthax.chebyshev, "cheb"),
            (orthax.hermite, "herm"),
            (orthax.laguerre, "lag"),
        ):
            value = getattr(family, short + "val")(x, coefficients)
            slope = getattr(family, short + "val")(x, getattr(family, short + "der")(coefficients, 2))
            total = total + jnp.log1p(value**2).mean() + jnp.tanh(slope).mean()
        return total

    return loss, (coefficients, x)


def fitted() -> Built:
    x = jnp.linspace(-0.9, 0.9, 60)

    def loss(y: Any) -> Any:
        coefficients = orthax.chebyshev.chebfit(x, y, 6)
        return (orthax.chebyshev.chebval(x, coefficients) ** 2).sum()

    return loss, (jnp.sin(5.0 * x),)


LOSSES = (
    Loss("orthax-families", "four families by Clenshaw's recurrence", families),
    Loss("orthax-fit", "Chebyshev fit by least squares", fitted),
)
