"""Losses of networks of blox (the package jax-blox), whose parameters travel with its random state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import blox as bx
import jax
import jax.numpy as jnp

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)


def captioner() -> Built:
    graph = bx.Graph("net")
    rng = bx.Rng(graph.child("rng"))
    convolution = bx.Conv(graph.child("conv"), kernel_size=(3, 3), output_channels=12, strides=2, rng=rng)
    norm = bx.LayerNorm(graph.child("norm"), rng=rng)
    cell = bx.LSTM(graph.child("lstm"), hidden_size=16, rng=rng)
    dropout = bx.Dropout(graph.child("dropout"), rate=0.2, rng=rng)
    out = bx.Linear(graph.child("out"), output_size=10, rng=rng)
    images = jax.random.normal(KEY, (4, 16, 16, 3))
    labels = jnp.arange(4)

    def logits_of(params: Any, images: Any) -> Any:
        x, params = convolution(params, images)
        x, params = norm(params, jax.nn.silu(x))
        x = x.reshape(len(images), 8, -1)
        state, params = cell.initial_state(params, x[:, 0])
        (hidden, _), params = cell.apply(params, x, state)
        hidden, params = dropout(params, hidden, is_training=True)
        return out(params, hidden.mean(1))

    params = rng.seed(bx.Params(), seed=0)
    _, params = logits_of(params, images)
    trainable, rest = params.locked().split()

    def loss(trainable: Any, rest: Any, images: Any, labels: Any) -> Any:
        logits, _ = logits_of(trainable.merge(rest), images)
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).mean()

    return loss, (trainable, rest, images, labels)


LOSSES = (Loss("blox-network", "convolution, LSTM, dropout, parameters with random state", captioner),)
