"""Losses through diffrax's solvers of differential equations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)


def _field(size: int) -> tuple[Any, Any]:
    model = eqx.nn.MLP(size, size, 32, 2, activation=jax.nn.softplus, final_activation=jnp.tanh, key=KEY)
    return eqx.partition(model, eqx.is_inexact_array)


def _ode(adjoint: Any, controller: Any) -> Built:
    params, static = _field(4)
    starts = jax.random.normal(KEY, (16, 4))

    def loss(params: Any, starts: Any) -> Any:
        def of_one(start: Any) -> Any:
            solution = diffrax.diffeqsolve(
                diffrax.ODETerm(lambda t, y, args: eqx.combine(args, static)(y)),
                diffrax.Tsit5(),
                t0=0.0,
                t1=1.0,
                dt0=0.125,
                y0=start,
                args=params,
                saveat=diffrax.SaveAt(ts=jnp.linspace(0.0, 1.0, 5)),
                stepsize_controller=controller,
                adjoint=adjoint,
                max_steps=32,
            )
            return jnp.sum(jnp.square(solution.ys))

        return jnp.mean(jax.vmap(of_one)(starts))

    return loss, (params, starts)


def recursive() -> Built:
    return _ode(diffrax.RecursiveCheckpointAdjoint(), diffrax.PIDController(rtol=1e-3, atol=1e-3))


def direct() -> Built:
    return _ode(diffrax.DirectAdjoint(), diffrax.ConstantStepSize())


def backsolve() -> Built:
    return _ode(diffrax.BacksolveAdjoint(), diffrax.ConstantStepSize())


def stochastic() -> Built:
    params, static = _field(3)

    def loss(params: Any, start: Any, key: Any) -> Any:
        field = eqx.combine(params, static)

        def of_one(key: Any) -> Any:
            path = diffrax.VirtualBrownianTree(0.0, 1.0, tol=1e-2, shape=(3,), key=key)
            terms = diffrax.MultiTerm(
                diffrax.ODETerm(lambda t, y, args: field(y)),
                diffrax.ControlTerm(lambda t, y, args: 0.1 * jnp.diag(jnp.cos(y)), path),
            )
            solution = diffrax.diffeqsolve(terms, diffrax.EulerHeun(), 0.0, 1.0, 0.05, start, max_steps=32)
            return jnp.sum(solution.ys**2)

        return jnp.mean(jax.vmap(of_one)(jax.random.split(key, 8)))

    return loss, (params, jnp.ones(3), jax.random.key(1))


LOSSES = (
    Loss("diffrax-node", "neural differential equation, adaptive steps, checkpointed loop", recursive),
    Loss("diffrax-direct", "neural differential equation, bounded loop differentiated", direct),
    Loss("diffrax-backsolve", "neural differential equation, adjoint equation", backsolve),
    Loss("diffrax-sde", "stochastic differential equation, Brownian tree", stochastic),
)
