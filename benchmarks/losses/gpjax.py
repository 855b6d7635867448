"""Objectives of gpjax's Gaussian processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import gpjax as gpx
import jax
import jax.numpy as jnp
import paramax

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)


def sparse() -> Built:
    x = jnp.linspace(-3.0, 3.0, 256)[:, None]
    y = jnp.sin(2 * x) + 0.1 * jax.random.normal(KEY, x.shape)
    prior = gpx.gps.Prior(kernel=gpx.kernels.Matern12(), mean_function=gpx.mean_functions.Constant())
    posterior = prior * gpx.likelihoods.Gaussian()
    family = gpx.variational_families.VariationalGaussian(posterior, inducing_inputs=jnp.linspace(-3, 3, 12)[:, None])
    params, static = eqx.partition(family, eqx.is_inexact_array)

    def loss(params: Any, x: Any, y: Any) -> Any:
        model = paramax.unwrap(eqx.combine(params, static))
        return -gpx.objectives.elbo(model, gpx.Dataset(x, y))

    return loss, (params, x, y)


LOSSES = (Loss("gpjax-sparse", "evidence bound of a sparse variational Gaussian process", sparse),)
