"""Losses of evermore's binned likelihoods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import evermore as evm
import jax
import jax.numpy as jnp
from flax import nnx

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)


def histograms() -> Built:
    params = {
        "strength": evm.Parameter(1.2),
        "norm": evm.NormalParameter(0.1),
        "shape": evm.NormalParameter(-0.2),
        "free": evm.Parameter(jnp.full(8, 1.1)),
    }
    definition, moving, rest = nnx.split(params, evm.filter.is_dynamic_parameter, ...)
    bins = jnp.linspace(0.0, 1.0, 8)
    background, signal = 40.0 * jnp.exp(-2.0 * bins), 9.0 * jnp.exp(-jnp.square(8.0 * (bins - 0.5)))
    observed = jax.random.poisson(KEY, background + signal).astype(jnp.float32)

    def loss(moving: Any, signal: Any, background: Any, observed: Any) -> Any:
        params = nnx.merge(definition, moving, rest)
        strength = params["strength"].scale()
        norm = params["norm"].scale_log_asymmetric(up=1.1, down=0.9)
        shape = params["shape"].morphing(up_template=background * (1.0 + 0.2 * bins), down_template=background * 0.9)
        expected = strength(signal) + norm(shape(background)) * params["free"].value
        fit = evm.pdf.PoissonContinuous(lamb=expected).log_prob(observed).sum()
        constraints = evm.util.sum_over_leaves(evm.loss.get_log_probs(params))
        return -(fit + jnp.sum(constraints))

    return loss, (moving, signal, background, observed)


LOSSES = (Loss("evermore-histograms", "binned likelihood with morphed templates", histograms),)
