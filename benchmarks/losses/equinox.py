"""Losses of equinox modules: the arrays are differentiated, what is static stays in the function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)


def mlp() -> Built:
    model = eqx.nn.MLP(16, 4, 64, 3, activation=jax.nn.silu, key=KEY)
    params, static = eqx.partition(model, eqx.is_inexact_array)
    x = jax.random.normal(KEY, (64, 16))
    y = jax.random.normal(jax.random.key(1), (64, 4))

    def loss(params: Any, x: Any, y: Any) -> Any:
        return optax.huber_loss(jax.vmap(eqx.combine(params, static))(x), y).mean()

    return loss, (params, x, y)


class Layer(eqx.Module):
    """A transformer's layer on one sequence."""

    attention: eqx.nn.MultiheadAttention
    norm: eqx.nn.LayerNorm
    hidden_norm: eqx.nn.RMSNorm
    mlp: eqx.nn.MLP
    dropout: eqx.nn.Dropout

    def __init__(self, width: int, key: Any) -> None:
        one, other = jax.random.split(key)
        self.attention = eqx.nn.MultiheadAttention(4, width, key=one)
        self.norm = eqx.nn.LayerNorm(width)
        self.hidden_norm = eqx.nn.RMSNorm(width)
        self.mlp = eqx.nn.MLP(width, width, 4 * width, 1, activation=jax.nn.gelu, key=other)
        self.dropout = eqx.nn.Dropout(0.1)

    def __call__(self, x: Any, key: Any) -> Any:
        one, other = jax.random.split(key)
        y = jax.vmap(self.norm)(x)
        mask = jnp.tril(jnp.ones((x.shape[0], x.shape[0]), bool))
        x = x + self.dropout(self.attention(y, y, y, mask), key=one)
        return x + self.dropout(jax.vmap(self.mlp)(jax.vmap(self.hidden_norm)(x)), key=other)


class Decoder(eqx.Module):
    """Token ids of one sequence to logits; positions by rotation of the embedding."""

    embed: eqx.nn.Embedding
    rotate: eqx.nn.RotaryPositionalEmbedding
    layers: list[Layer]
    head: eqx.nn.Linear

    def __init__(self, key: Any) -> None:
        keys = jax.random.split(key, 5)
        self.embed = eqx.nn.Embedding(96, 64, key=keys[0])
        self.rotate = eqx.nn.RotaryPositionalEmbedding(64)
        self.layers = [Layer(64, key) for key in keys[1:4]]
        self.head = eqx.nn.Linear(64, 96, key=keys[4])

    def __call__(self, tokens: Any, key: Any) -> Any:
        x = self.rotate(jax.vmap(self.embed)(tokens))
        for layer, one in zip(self.layers, jax.random.split(key, len(self.layers)), strict=True):
            x = layer(x, one)
        return jax.vmap(self.head)(x)


def transformer() -> Built:
    params, static = eqx.partition(Decoder(KEY), eqx.is_inexact_array)
    tokens = jax.random.randint(KEY, (4, 33), 0, 96)

    def loss(params: Any, tokens: Any, key: Any) -> Any:
        model = eqx.combine(params, static)
        logits = jax.vmap(model)(tokens[:, :-1], jax.random.split(key, tokens.shape[0]))
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    return loss, (params, tokens, jax.random.key(1))


class UNet(eqx.Module):
    """Noise in a noisy image, given the time: three convolutions down, three up."""

    down: list[eqx.nn.Conv2d]
    up: list[eqx.nn.ConvTranspose2d]
    norms: list[eqx.nn.GroupNorm]
    time: eqx.nn.MLP
    last: eqx.nn.Conv2d

    def __init__(self, key: Any) -> None:
        keys = jax.random.split(key, 6)
        self.down = [eqx.nn.Conv2d(1, 16, 3, 2, 1, key=keys[0]), eqx.nn.Conv2d(16, 32, 3, 2, 1, key=keys[1])]
        self.up = [
            eqx.nn.ConvTranspose2d(32, 16, 4, 2, padding=1, key=keys[2]),
            eqx.nn.ConvTranspose2d(32, 16, 4, 2, padding=1, key=keys[3]),
        ]
        self.norms = [eqx.nn.GroupNorm(4, 16), eqx.nn.GroupNorm(8, 32)]
        self.time = eqx.nn.MLP(1, 32, 32, 1, key=keys[4])
        self.last = eqx.nn.Conv2d(16, 1, 3, padding=1, key=keys[5])

    def __call__(self, x: Any, t: Any) -> Any:
        first = jax.nn.silu(self.norms[0](self.down[0](x)))
        second = jax.nn.silu(self.norms[1](self.down[1](first))) + self.time(t[None])[:, None, None]
        third = jax.nn.silu(self.up[0](second))
        return self.last(jax.nn.silu(self.up[1](jnp.concatenate([first, third]))))


def diffusion() -> Built:
    params, static = eqx.partition(UNet(KEY), eqx.is_inexact_array)
    images = jax.random.normal(KEY, (8, 1, 32, 32))

    def loss(params: Any, images: Any, key: Any) -> Any:
        model = eqx.combine(params, static)
        time_key, noise_key = jax.random.split(key)
        t = jax.random.uniform(time_key, (images.shape[0],), images.dtype)
        noise = jax.random.normal(noise_key, images.shape, images.dtype)
        decay = jnp.exp(-2 * t)[:, None, None, None]
        noisy = jnp.sqrt(decay) * images + jnp.sqrt(1 - decay) * noise
        return jnp.mean(jnp.square(jax.vmap(model)(noisy, t) - noise))

    return loss, (params, images, jax.random.key(1))


def recurrent() -> Built:
    cell = eqx.nn.GRUCell(8, 48, key=KEY)
    head = eqx.nn.Linear(48, 1, key=KEY)
    params, static = eqx.partition((cell, head), eqx.is_inexact_array)
    sequences = jax.random.normal(KEY, (16, 40, 8))

    def loss(params: Any, sequences: Any) -> Any:
        cell, head = eqx.combine(params, static)

        def of_one(sequence: Any) -> Any:
            last, _ = jax.lax.scan(lambda h, x: (cell(x, h), None), jnp.zeros(48, sequence.dtype), sequence)
            return jax.nn.softplus(head(last))[0]

        return jnp.mean(jax.vmap(of_one)(sequences))

    return loss, (params, sequences)


LOSSES = (
    Loss("equinox-mlp", "perceptron under vmap", mlp),
    Loss("equinox-transformer", "decoder under vmap, rotary positions, dropout", transformer),
    Loss("equinox-diffusion", "score matching with a U-net", diffusion),
    Loss("equinox-gru", "recurrence under vmap", recurrent),
)
