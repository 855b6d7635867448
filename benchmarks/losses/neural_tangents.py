"""Losses of neural_tangents' kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import neural_tangents as nt
from neural_tangents import stax

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)


def kernel_regression() -> Built:
    _, _, kernel = stax.serial(stax.Dense(32), stax.Relu(), stax.Dense(32), stax.Erf(), stax.Dense(1))
    x = jax.random.normal(KEY, (32, 6))
    y = jnp.sin(x[:, :1])
    params = {"scale": jnp.ones(6), "log_ridge": jnp.full((), -2.0)}

    def loss(params: Any, x: Any, y: Any) -> Any:
        given, asked = x[:24] * params["scale"], x[24:] * params["scale"]
        within = kernel(given, None, "ntk") + jnp.exp(params["log_ridge"]) * jnp.eye(24, dtype=x.dtype)
        predicted = kernel(asked, given, "ntk") @ jax.scipy.linalg.solve(within, y[:24], assume_a="pos")
        return jnp.mean(jnp.square(predicted - y[24:]))

    return loss, (params, x, y)


def empirical() -> Built:
    init, apply, _ = stax.serial(stax.Dense(24), stax.Gelu(), stax.Dense(24), stax.Gelu(), stax.Dense(2))
    x = jax.random.normal(KEY, (12, 6))
    _, params = init(KEY, x.shape)
    tangent_kernel = nt.empirical_ntk_fn(apply, vmap_axes=0, implementation=nt.NtkImplementation.JACOBIAN_CONTRACTION)

    def loss(params: Any, x: Any) -> Any:
        return jnp.linalg.slogdet(tangent_kernel(x, None, params) + jnp.eye(12, dtype=x.dtype))[1]

    return loss, (params, x)


LOSSES = (
    Loss("neural-tangents-regression", "regression with an infinite network's kernel", kernel_regression),
    Loss("neural-tangents-empirical", "determinant of a network's tangent kernel (second derivatives)", empirical),
)
