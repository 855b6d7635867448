"""Normalizing flows by PZFlow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pzflow import bijectors

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]


def splines() -> Built:
    build, _ = bijectors.Chain(
        bijectors.StandardScaler(np.zeros(4), np.ones(4)), bijectors.RollingSplineCoupling(4, hidden_dim=24, K=8)
    )
    parameters, forward, _ = build(jax.random.PRNGKey(0), 4)
    samples = jax.random.normal(jax.random.key(1), (128, 4))

    def loss(parameters: Any, samples: Any) -> Any:
        latent, log_det = forward(parameters, samples, conditions=jnp.zeros((128, 1)))
        return -jnp.mean(log_det - 0.5 * jnp.sum(latent**2, axis=-1))

    return loss, (parameters, samples)


LOSSES = (Loss("pzflow-splines", "rolling spline couplings", splines),)
