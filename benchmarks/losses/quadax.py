"""Integrals by quadax, adaptive and of fixed order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import quadax

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]


def adaptive() -> Built:
    def loss(weights: Any) -> Any:
        value, _ = quadax.quadgk(
            lambda t, w: jnp.tanh(w[0] * t) * jnp.exp(-w[1] * t), jnp.asarray([0.0, 3.0]), (weights,)
        )
        return value**2

    return loss, (jnp.asarray([1.3, 0.7]),)


def sampled() -> Built:
    def loss(weights: Any) -> Any:
        x = jnp.linspace(0.0, 1.0, 129)
        y = jax.nn.gelu(weights[:, None] * x).sum(0)
        return quadax.simpson(y, x=x) + quadax.cumulative_trapezoid(y, x=x, initial=0.0)[-1] ** 2

    return loss, (jnp.linspace(-2.0, 2.0, 32),)


LOSSES = (
    Loss("quadax-adaptive", "adaptive Gauss-Kronrod", adaptive),
    Loss("quadax-sampled", "Simpson and cumulative trapezoids", sampled),
)
