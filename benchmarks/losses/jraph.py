"""Losses of jraph's graph networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import jraph

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)


def _graph(nodes: int, edges: int, width: int) -> Any:
    senders, receivers = jax.random.randint(KEY, (2, edges), 0, nodes)
    return jraph.GraphsTuple(
        nodes=jax.random.normal(KEY, (nodes, width)),
        edges=jax.random.normal(KEY, (edges, width)),
        senders=senders,
        receivers=receivers,
        globals=jnp.zeros((2, width)),
        n_node=jnp.array([nodes // 2, nodes - nodes // 2]),
        n_edge=jnp.array([edges // 2, edges - edges // 2]),
    )


class Interaction(nn.Module):
    """Three rounds of messages."""

    @nn.compact
    def __call__(self, graph: Any) -> Any:
        def update() -> Callable[..., Any]:
            layers = nn.Sequential([nn.Dense(32), nn.relu, nn.Dense(32), nn.LayerNorm()])
            return jraph.concatenated_args(layers)

        for _ in range(3):
            graph = jraph.GraphNetwork(update(), update(), update())(graph)
        return nn.Dense(1)(graph.globals)


def network() -> Built:
    model, graph = Interaction(), _graph(100, 400, 16)
    params = jax.jit(model.init)(KEY, graph)

    def loss(params: Any, graph: Any) -> Any:
        return jnp.mean(jnp.square(model.apply(params, graph) - 1.0))

    return loss, (params, graph)


def attention() -> Built:
    graph = _graph(100, 400, 24)._replace(edges=None, globals=None)
    params = {"query": 0.2 * jax.random.normal(KEY, (24, 24)), "logit": jax.random.normal(KEY, (48, 1))}
    labels = jnp.arange(100) % 24

    def loss(params: Any, graph: Any, labels: Any) -> Any:
        def logit(sent: Any, received: Any, _: Any) -> Any:
            return jax.nn.leaky_relu(jnp.concatenate([sent, received], axis=-1) @ params["logit"])

        layer = jraph.GAT(lambda nodes: nodes @ params["query"], logit, node_update_fn=jax.nn.elu)
        nodes = layer(layer(graph)).nodes
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(nodes), labels[:, None], axis=1))

    return loss, (params, graph, labels)


LOSSES = (
    Loss("jraph-network", "graph network, three rounds", network),
    Loss("jraph-attention", "graph attention, softmax over segments", attention),
)
