"""Losses through kalmax's Kalman filter and smoother."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from kalmax.kalman import kalman_filter, kalman_smoother

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)

STEPS, HIDDEN, SEEN = 24, 3, 4


def smoothed() -> Built:
    params = {
        "moves": 0.9 * jnp.eye(HIDDEN) + 0.02,
        "seen": jax.random.normal(KEY, (SEEN, HIDDEN)),
        "noise": jnp.zeros(HIDDEN),
        "blur": jnp.zeros(SEEN),
    }
    observed = jnp.cumsum(jax.random.normal(KEY, (STEPS, SEEN)), 0)

    def loss(params: Any, observed: Any) -> Any:
        def each(matrix: Any) -> Any:
            return jnp.broadcast_to(matrix, (STEPS, *matrix.shape))

        moves, control, inputs = each(params["moves"]), jnp.zeros((STEPS, HIDDEN, 1)), jnp.zeros((STEPS, 1))
        noise, blur = (each(jnp.diag(jnp.exp(params[name]))) for name in ("noise", "blur"))
        start = jnp.zeros(HIDDEN, observed.dtype), jnp.eye(HIDDEN, dtype=observed.dtype)
        control, inputs = control.astype(observed.dtype), inputs.astype(observed.dtype)
        means, spreads = kalman_filter(observed, inputs, *start, moves, control, noise, each(params["seen"]), blur)
        means, spreads = kalman_smoother(means, spreads, inputs, means[-1], spreads[-1], moves, control, noise)
        errors = observed - means @ params["seen"].T
        return jnp.mean(jnp.square(errors)) + jnp.mean(jnp.trace(spreads, axis1=1, axis2=2))

    return loss, (params, observed)


LOSSES = (Loss("kalmax-smoother", "Kalman filter and smoother, inverses in two scans", smoothed),)
