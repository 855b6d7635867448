"""Losses through blackjax's algorithms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
from blackjax.mcmc import integrators, metrics

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)


def _log_density(x: Any) -> Any:
    """Neal's funnel in ten coordinates."""
    scale = jnp.exp(x[0])
    return -0.5 * (x[0] / 3) ** 2 - 0.5 * jnp.sum(jnp.square(x[1:] / scale)) - 9 * x[0]


def leapfrog() -> Built:
    params = {"log_step": jnp.full((), -2.0), "log_mass": jnp.zeros(10)}

    def loss(params: Any, starts: Any, key: Any) -> Any:
        metric = metrics.default_metric(jnp.exp(params["log_mass"]))
        step = integrators.velocity_verlet(_log_density, metric.kinetic_energy)

        def of_one(start: Any, key: Any) -> Any:
            momentum = metric.sample_momentum(key, start)
            state = integrators.new_integrator_state(_log_density, start, momentum)
            last, _ = jax.lax.scan(lambda s, _: (step(s, jnp.exp(params["log_step"])), None), state, None, 10)
            energies = [metric.kinetic_energy(s.momentum) - s.logdensity for s in (state, last)]
            return jnp.square(energies[1] - energies[0]) - 0.1 * jnp.sum(jnp.square(last.position - start))

        return jnp.mean(jax.vmap(of_one)(starts, jax.random.split(key, starts.shape[0])))

    return loss, (params, 0.1 * jax.random.normal(KEY, (16, 10)), jax.random.key(1))


def langevin() -> Built:
    starts = jnp.zeros((8, 10))
    params = {"log_step": jnp.full((), -3.0), "shift": jnp.zeros(10)}

    def loss(params: Any, starts: Any, key: Any) -> Any:
        def density(x: Any) -> Any:
            return _log_density(x - params["shift"])

        step = blackjax.sgld.build_kernel()

        def of_one(start: Any, key: Any) -> Any:
            def body(x: Any, key: Any) -> Any:
                return step(key, x, lambda x, _: jax.grad(density)(x), None, jnp.exp(params["log_step"]), 0.5), None

            last, _ = jax.lax.scan(body, start, jax.random.split(key, 12))
            return -density(last)

        return jnp.mean(jax.vmap(of_one)(starts, jax.random.split(key, starts.shape[0])))

    return loss, (params, starts, jax.random.key(1))


LOSSES = (
    Loss("blackjax-leapfrog", "step size and masses of Hamiltonian dynamics", leapfrog),
    Loss("blackjax-langevin", "Langevin dynamics, noise in a loop", langevin),
)
