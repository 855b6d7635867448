"""Losses of jax_md's simulations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax_md import energy, simulate, space

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)
SIDE = 6.0


def _lattice() -> Any:
    axis = jnp.arange(5) * (SIDE / 5)
    return jnp.stack(jnp.meshgrid(axis, axis), axis=-1).reshape(-1, 2)


def dynamics() -> Built:
    displacement, shift = space.periodic(SIDE)
    params = {"sigma": jnp.full((), 1.4), "epsilon": jnp.ones(())}

    def loss(params: Any, positions: Any, key: Any) -> Any:
        potential = energy.soft_sphere_pair(displacement, sigma=params["sigma"], epsilon=params["epsilon"])
        start, step = simulate.nvt_langevin(potential, shift, 1e-3, kT=0.1)
        state = start(key, positions)
        state, _ = jax.lax.scan(lambda state, _: (step(state), None), state, None, 10)
        return potential(state.position) + jnp.mean(jnp.square(state.velocity))

    return loss, (params, _lattice(), jax.random.PRNGKey(0))


def stress() -> Built:
    displacement, _ = space.periodic_general(SIDE * jnp.eye(2), fractional_coordinates=False)
    potential = energy.soft_sphere_pair(displacement, sigma=1.4)
    positions = _lattice() + 0.05 * jax.random.normal(KEY, (25, 2))

    def loss(positions: Any) -> Any:
        forces = jax.grad(potential)(positions)
        return potential(positions) + jnp.sum(jnp.square(forces))

    return loss, (positions,)


LOSSES = (
    Loss("jax-md-langevin", "molecular dynamics, parameters of the potential", dynamics),
    Loss("jax-md-forces", "energy and forces in a periodic box (second derivatives)", stress),
)
