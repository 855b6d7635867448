"""Losses of connex's networks, whose neurons are joined by any graph without cycles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import connex as cnx
import equinox as eqx
import jax
import jax.numpy as jnp

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)


def graph() -> Built:
    edges = {0: [1, 2, 3], 1: [4], 2: [4, 5], 4: [6], 5: [7], 6: [8, 9], 7: [10], 8: [11], 9: [11], 10: [11]}
    network = cnx.NeuralNetwork(edges, [0], [3, 11], jax.nn.tanh, key=KEY)
    params, static = eqx.partition(network, eqx.is_inexact_array)
    x = jnp.linspace(0.0, 6.0, 32)[:, None]
    y = jnp.hstack((jnp.cos(x), jnp.sin(x)))

    def loss(params: Any, x: Any, y: Any) -> Any:
        return jnp.mean(jnp.square(jax.vmap(eqx.combine(params, static))(x) - y))

    return loss, (params, x, y)


LOSSES = (Loss("connex-graph", "neurons joined by a graph, with attention and adaptive activations", graph),)
