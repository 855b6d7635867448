"""Whole-brain models by vbjax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import vbjax

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]


def network() -> Built:
    nodes = 16
    weights = jnp.abs(jax.random.normal(jax.random.key(0), (nodes, nodes))) / nodes
    noise = jax.random.normal(jax.random.key(1), (200, 2, nodes))

    def drift(state: Any, p: Any) -> Any:
        k, weights = p
        return vbjax.mpr_dfun(state, (k * weights @ state[0], 0.0), vbjax.mpr_default_theta)

    _, loop = vbjax.make_sde(0.02, drift, 0.05)

    def loss(k: Any, weights: Any, noise: Any) -> Any:
        initial = jnp.stack([jnp.full(nodes, 0.2), jnp.full(nodes, -2.0)])
        trajectory = loop(initial, noise, (k, weights))
        return jnp.mean(jnp.tanh(trajectory[:, 1]) ** 2) + jnp.var(trajectory[-50:, 0])

    return loss, (jnp.asarray(0.2), weights, noise)


def hemodynamics() -> Built:
    drive = jnp.abs(jax.random.normal(jax.random.key(0), (300, 8)))

    def loss(gain: Any, drive: Any) -> Any:
        start, step, sample = vbjax.make_bold((8,), 0.01, vbjax.bold_default_theta)
        state, _ = jax.lax.scan(lambda state, x: (step(state, gain * x), None), start, drive)
        return jnp.mean(sample(state)[1] ** 2)

    return loss, (jnp.linspace(0.5, 1.5, 8), drive)


LOSSES = (
    Loss("vbjax-network", "stochastic mean-field nodes on a connectome", network),
    Loss("vbjax-bold", "hemodynamic response to a drive", hemodynamics),
)
