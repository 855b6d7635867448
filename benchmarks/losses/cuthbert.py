"""Losses of cuthbert's filters for state-space models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cuthbert
import jax
import jax.numpy as jnp
from cuthbert.gaussian import kalman

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)

STEPS = 24


def _observed() -> Any:
    return jnp.cumsum(jax.random.normal(KEY, (STEPS, 2)), 0)


def _params() -> Any:
    return {
        "moves": 0.9 * jnp.eye(3) + 0.05,
        "noise": 0.3 * jnp.eye(3),
        "seen": jax.random.normal(KEY, (2, 3)),
        "blur": 0.5 * jnp.eye(2),
    }


def _likelihood(parallel: bool) -> Built:
    def loss(params: Any, observed: Any) -> Any:
        def dynamics(time: Any) -> Any:
            return params["moves"], jnp.zeros(3, observed.dtype), params["noise"]

        def observation(time: Any) -> Any:
            return params["seen"], jnp.zeros(2, observed.dtype), params["blur"], observed[time - 1]

        start, spread = jnp.zeros(3, observed.dtype), jnp.eye(3, dtype=observed.dtype)
        filtering = kalman.build_filter(start, spread, dynamics, observation)
        times = jnp.arange(STEPS + 1)
        first = filtering.init_prepare()
        states = cuthbert.filter(filtering, times[1:], first, parallel=parallel)
        return -states.log_normalizing_constant[-1] / STEPS

    return loss, (_params(), _observed())


def kalman_scan() -> Built:
    return _likelihood(parallel=False)


def kalman_parallel() -> Built:
    return _likelihood(parallel=True)


LOSSES = (
    Loss("cuthbert-kalman", "square-root Kalman filter in a scan: QR and triangular solves", kalman_scan),
    Loss("cuthbert-parallel", "the same by an associative scan", kalman_parallel),
)
