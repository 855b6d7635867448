"""Losses of bijx's normalizing flows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import bijx
import jax
import jax.numpy as jnp
from flax import nnx

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)


def splines() -> Built:
    flow = bijx.coupling_flow(
        6,
        lambda rngs: bijx.MonotoneRQSpline(8, (), rngs=rngs),
        n_coupling_layers=4,
        width=32,
        bias_mode="zeros",
        final_kernel_init=nnx.initializers.normal(0.1),
        rngs=nnx.Rngs(0),
    )
    definition, params, rest = nnx.split(flow, nnx.Param, ...)
    x = jax.random.uniform(KEY, (64, 6), minval=0.05, maxval=0.95)

    def loss(params: Any, x: Any) -> Any:
        y, log_density = nnx.merge(definition, params, rest).forward(x, jnp.zeros(len(x), x.dtype))
        return jnp.mean(jnp.square(y).sum(-1) + log_density)

    return loss, (nnx.to_pure_dict(params), x)


def lattice_field() -> Built:
    field = bijx.ConvVF.build(kernel_shape=(3, 3), features_reduced=8, time_kernel_reduced=6, rngs=nnx.Rngs(0))
    definition, params, rest = nnx.split(field, nnx.Param, ...)
    noise = jax.random.normal(KEY, (4, 6, 6))

    def loss(params: Any, noise: Any) -> Any:
        flow = bijx.ContFlowRK4(nnx.merge(definition, params, rest), steps=6)
        phi, log_density = flow.forward(noise, -0.5 * jnp.square(noise).sum((1, 2)))
        action = jax.vmap(lambda phi: bijx.lattice.scalar.phi4_term(phi, -4.0, 8.0).sum())(phi)
        return jnp.mean(log_density + action)

    return loss, (nnx.to_pure_dict(params), noise)


LOSSES = (
    Loss("bijx-splines", "normalizing flow, spline couplings", splines),
    Loss("bijx-lattice", "continuous flow of a lattice field, adjoint equation (custom_vjp)", lattice_field),
)
