"""Losses of flowjax's normalizing flows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import paramax
from flowjax.bijections import RationalQuadraticSpline
from flowjax.distributions import Normal
from flowjax.flows import block_neural_autoregressive_flow, masked_autoregressive_flow

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)


def _likelihood(flow: Any, size: int) -> Built:
    params, static = eqx.partition(flow, eqx.is_inexact_array, is_leaf=lambda x: isinstance(x, paramax.NonTrainable))
    x = jax.random.normal(KEY, (64, size))

    def loss(params: Any, x: Any) -> Any:
        return -paramax.unwrap(eqx.combine(params, static)).log_prob(x).mean()

    return loss, (params, x)


def autoregressive() -> Built:
    flow = masked_autoregressive_flow(
        KEY,
        base_dist=Normal(jnp.zeros(4)),
        transformer=RationalQuadraticSpline(knots=6, interval=4),
        flow_layers=3,
        nn_width=24,
    )
    return _likelihood(flow, 4)


def block() -> Built:
    return _likelihood(block_neural_autoregressive_flow(KEY, base_dist=Normal(jnp.zeros(3)), nn_block_dim=6), 3)


LOSSES = (
    Loss("flowjax-maf", "masked autoregressive flow, splines, layers in a loop", autoregressive),
    Loss("flowjax-bnaf", "block neural autoregressive flow", block),
)
