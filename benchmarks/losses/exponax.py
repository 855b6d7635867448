"""Solvers of partial differential equations by spectral methods, by exponax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import exponax
import jax
import jax.numpy as jnp

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]


def burgers() -> Built:
    stepper = exponax.stepper.Burgers(1, 1.0, 200, 0.01, diffusivity=0.02)
    grid = jnp.linspace(0.0, 1.0, 200, endpoint=False)[None]
    target = jnp.cos(2 * jnp.pi * grid)

    def loss(initial: Any, target: Any) -> Any:
        return jnp.mean((exponax.repeat(stepper, 60)(initial) - target) ** 2)

    return loss, (jnp.sin(2 * jnp.pi * grid) + 0.3 * jnp.sin(6 * jnp.pi * grid), target)


def vorticity() -> Built:
    stepper = exponax.stepper.NavierStokesVorticity(2, 1.0, 48, 0.02, diffusivity=0.002)
    initial = jax.random.normal(jax.random.key(0), (1, 48, 48))

    def loss(initial: Any) -> Any:
        trajectory = exponax.rollout(stepper, 25, include_init=True)(initial)
        return jnp.mean(trajectory[-1] ** 2) + 0.1 * jnp.mean(jnp.abs(jnp.diff(trajectory, axis=0)))

    return loss, (initial,)


LOSSES = (
    Loss("exponax-burgers", "initial state of Burgers' equation, sixty steps", burgers),
    Loss("exponax-vorticity", "two-dimensional Navier-Stokes, the trajectory kept", vorticity),
)
