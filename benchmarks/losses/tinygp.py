"""Marginal likelihoods of tinygp's Gaussian processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import tinygp

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)


def _data() -> tuple[Any, Any]:
    x = jnp.linspace(0.0, 10.0, 96)
    return x, jnp.sin(x) + 0.1 * jax.random.normal(KEY, x.shape)


def dense() -> Built:
    params = {"scale": jnp.zeros(()), "period": jnp.zeros(()), "amplitude": jnp.zeros(()), "noise": jnp.full((), -1.0)}

    def loss(params: Any, x: Any, y: Any) -> Any:
        exp = {name: jnp.exp(value) for name, value in params.items()}
        periodic = tinygp.kernels.ExpSineSquared(scale=exp["period"], gamma=exp["scale"])
        kernel = exp["amplitude"] * tinygp.kernels.Matern52(exp["scale"]) + periodic * tinygp.kernels.ExpSquared()
        return -tinygp.GaussianProcess(kernel, x, diag=exp["noise"]).log_probability(y)

    return loss, (params, *_data())


def sparse() -> Built:
    params = {"scale": jnp.zeros(()), "sigma": jnp.zeros(()), "noise": jnp.full((), -1.0)}

    def loss(params: Any, x: Any, y: Any) -> Any:
        kernel = tinygp.kernels.quasisep.Matern32(jnp.exp(params["scale"]), jnp.exp(params["sigma"]))
        return -tinygp.GaussianProcess(kernel, x, diag=jnp.exp(params["noise"])).log_probability(y)

    return loss, (params, *_data())


LOSSES = (
    Loss("tinygp-dense", "Gaussian process, factored matrix", dense),
    Loss("tinygp-quasisep", "Gaussian process, linear time by a loop", sparse),
)
