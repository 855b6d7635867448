"""Losses of flax.nnx modules, split into a graph definition and a state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)


class Encoder(nnx.Module):
    """A transformer's encoder layer."""

    def __init__(self, width: int, rngs: nnx.Rngs) -> None:
        self.attention = nnx.MultiHeadAttention(4, width, decode=False, rngs=rngs)
        self.norms = nnx.List([nnx.LayerNorm(width, rngs=rngs) for _ in range(2)])
        self.up = nnx.Linear(width, 4 * width, rngs=rngs)
        self.down = nnx.Linear(4 * width, width, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = x + self.attention(self.norms[0](x))
        return x + self.down(nnx.gelu(self.up(self.norms[1](x))))


class VisionTransformer(nnx.Module):
    """Images to logits."""

    def __init__(self, width: int, layers: int, rngs: nnx.Rngs) -> None:
        self.patches = nnx.Conv(3, width, (4, 4), strides=(4, 4), rngs=rngs)
        self.positions = nnx.Param(0.02 * jax.random.normal(rngs.params(), (64, width)))
        self.layers = nnx.List([Encoder(width, rngs) for _ in range(layers)])
        self.head = nnx.Linear(width, 10, rngs=rngs)

    def __call__(self, images: Any) -> Any:
        x = self.patches(images)
        x = x.reshape(x.shape[0], -1, x.shape[-1]) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(axis=1))


def vision() -> Built:
    definition, params, rest = nnx.split(VisionTransformer(64, 3, nnx.Rngs(0)), nnx.Param, ...)
    images = jax.random.normal(KEY, (4, 32, 32, 3))
    labels = jnp.arange(4) % 10

    def loss(params: Any, rest: Any, images: Any, labels: Any) -> Any:
        model = nnx.merge(definition, params, rest, copy=True)
        return optax.softmax_cross_entropy_with_integer_labels(model(images), labels).mean()

    return loss, (params, rest, images, labels)


class Recurrent(nnx.Module):
    """A recurrent classifier with dropout."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.embed = nnx.Embed(64, 32, rngs=rngs)
        self.rnn = nnx.RNN(nnx.GRUCell(32, 48, rngs=rngs))
        self.norm = nnx.BatchNorm(48, rngs=rngs)
        self.dropout = nnx.Dropout(0.2, rngs=rngs)
        self.head = nnx.Linear(48, 2, rngs=rngs)

    def __call__(self, tokens: Any) -> Any:
        x = self.embed(tokens)
        hidden = self.rnn(x, initial_carry=jnp.zeros((x.shape[0], 48), x.dtype))[:, -1]
        return self.head(self.dropout(self.norm(hidden)))


def recurrent() -> Built:
    definition, params, rest = nnx.split(Recurrent(nnx.Rngs(0)), nnx.Param, ...)
    tokens = jax.random.randint(KEY, (8, 24), 0, 64)
    labels = jnp.arange(8) % 2

    def loss(params: Any, rest: Any, tokens: Any, labels: Any) -> Any:
        model = nnx.merge(definition, params, rest, copy=True)
        return optax.sigmoid_focal_loss(model(tokens), jax.nn.one_hot(labels, 2)).mean()

    return loss, (params, rest, tokens, labels)


LOSSES = (
    # flax.nnx computes attention in float32.
    Loss("nnx-vision", "vision transformer", vision, is_single=True),
    # Its recurrence carries the type of its parameters as they are made.
    Loss("nnx-gru", "recurrence, batch statistics, dropout", recurrent, is_single=True),
)
