"""Losses of flax.linen modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)


class Block(nn.Module):
    """A block of a transformer, with dropout."""

    heads: int
    rate: float

    @nn.compact
    def __call__(self, x: Any, mask: Any) -> Any:
        attention = nn.MultiHeadDotProductAttention(self.heads, dropout_rate=self.rate, deterministic=False)
        x = x + attention(nn.LayerNorm()(x), mask=mask)
        hidden = nn.gelu(nn.Dense(4 * x.shape[-1])(nn.LayerNorm()(x)))
        hidden = nn.Dropout(self.rate, deterministic=False)(hidden)
        return x + nn.Dense(x.shape[-1])(hidden)


class Decoder(nn.Module):
    """Token ids to logits."""

    vocabulary: int
    width: int
    layers: int
    rate: float = 0.1

    @nn.compact
    def __call__(self, tokens: Any) -> Any:
        embed = nn.Embed(self.vocabulary, self.width)
        positions = self.param("positions", nn.initializers.normal(0.02), (tokens.shape[-1], self.width))
        x = embed(tokens) + positions
        mask = nn.make_causal_mask(tokens)
        for _ in range(self.layers):
            x = Block(4, self.rate)(x, mask)
        return embed.attend(nn.LayerNorm()(x))


def transformer() -> Built:
    model = Decoder(vocabulary=128, width=64, layers=3)
    tokens = jax.random.randint(KEY, (4, 33), 0, 128)
    params = jax.jit(model.init)({"params": KEY, "dropout": KEY}, tokens[:, :-1])

    def loss(params: Any, tokens: Any, key: Any) -> Any:
        logits = model.apply(params, tokens[:, :-1], rngs={"dropout": key})
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    return loss, (params, tokens, jax.random.key(1))


class Residual(nn.Module):
    """A block of a residual network."""

    features: int
    stride: int

    @nn.compact
    def __call__(self, x: Any) -> Any:
        strides = (self.stride, self.stride)
        y = nn.Conv(self.features, (3, 3), strides, use_bias=False)(x)
        y = nn.relu(nn.BatchNorm(use_running_average=False)(y))
        y = nn.Conv(self.features, (3, 3), use_bias=False)(y)
        y = nn.BatchNorm(use_running_average=False, scale_init=nn.initializers.zeros)(y)
        if x.shape != y.shape:
            x = nn.Conv(self.features, (1, 1), strides, use_bias=False)(x)
        return nn.relu(x + y)


class ResNet(nn.Module):
    """Images to logits."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.relu(nn.Conv(16, (3, 3))(x))
        x = nn.max_pool(x, (3, 3), (2, 2), "SAME")
        for features, stride in ((16, 1), (32, 2), (32, 1)):
            x = Residual(features, stride)(x)
        return nn.Dense(10)(x.mean(axis=(1, 2)))


def resnet() -> Built:
    model = ResNet()
    images = jax.random.normal(KEY, (8, 32, 32, 3))
    labels = jnp.arange(8) % 10
    variables = jax.jit(model.init)(KEY, images)

    def loss(params: Any, statistics: Any, images: Any, labels: Any) -> Any:
        state = {"params": params, "batch_stats": statistics}
        logits, _ = model.apply(state, images, mutable=["batch_stats"])
        smooth = optax.smooth_labels(jax.nn.one_hot(labels, 10), 0.1)
        return optax.softmax_cross_entropy(logits, smooth).mean()

    return loss, (variables["params"], variables["batch_stats"], images, labels)


class Speech(nn.Module):
    """Frames to the logits of characters: convolution, two recurrent layers in two directions."""

    @nn.compact
    def __call__(self, frames: Any) -> Any:
        x = nn.relu(nn.Conv(48, (5,), strides=(2,))(frames))
        x = nn.Bidirectional(nn.RNN(nn.OptimizedLSTMCell(32)), nn.RNN(nn.OptimizedLSTMCell(32)))(x)
        x = nn.RNN(nn.GRUCell(48))(x)
        return nn.Dense(20)(x)


def speech() -> Built:
    model = Speech()
    frames = jax.random.normal(KEY, (4, 64, 24), jnp.float32)
    labels = jax.random.randint(KEY, (4, 10), 1, 20)
    padding = (jnp.arange(10) >= jnp.array([[10], [8], [7], [4]])).astype(jnp.float32)
    params = jax.jit(model.init)(KEY, frames)

    def loss(params: Any, frames: Any, labels: Any, padding: Any) -> Any:
        logits = model.apply(params, frames)
        return optax.ctc_loss(logits, jnp.zeros(logits.shape[:2]), labels, padding).mean()

    return loss, (params, frames, labels, padding)


class Layer(nn.Module):
    """One layer of a stack that is scanned and rematerialized by flax."""

    @nn.compact
    def __call__(self, x: Any, _: Any) -> Any:
        x = x + nn.SelfAttention(4)(nn.RMSNorm()(x))
        gate, up = jnp.split(nn.Dense(4 * x.shape[-1], use_bias=False)(nn.RMSNorm()(x)), 2, axis=-1)
        return x + nn.Dense(x.shape[-1], use_bias=False)(nn.silu(gate) * up), None


class Scanned(nn.Module):
    """A stack of layers in one loop."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        layer = nn.remat(Layer, prevent_cse=False)
        stack = nn.scan(layer, variable_axes={"params": 0}, split_rngs={"params": True}, length=6)
        return stack()(x, None)[0]


def scanned() -> Built:
    model = Scanned()
    x = jax.random.normal(KEY, (4, 32, 64))
    params = jax.jit(model.init)(KEY, x)

    def loss(params: Any, x: Any) -> Any:
        return jnp.mean(jnp.square(model.apply(params, x)))

    return loss, (params, x)


class VAE(nn.Module):
    """A variational autoencoder of images of 16 x 16."""

    @nn.compact
    def __call__(self, x: Any, key: Any) -> Any:
        h = nn.relu(nn.Conv(16, (3, 3), (2, 2))(x))
        h = nn.relu(nn.Conv(32, (3, 3), (2, 2))(h)).reshape(x.shape[0], -1)
        mean, log_variance = jnp.split(nn.Dense(32)(h), 2, axis=-1)
        z = mean + jnp.exp(0.5 * log_variance) * jax.random.normal(key, mean.shape, mean.dtype)
        h = nn.relu(nn.Dense(4 * 4 * 32)(z)).reshape(-1, 4, 4, 32)
        h = nn.relu(nn.ConvTranspose(16, (3, 3), (2, 2))(h))
        return nn.ConvTranspose(1, (3, 3), (2, 2))(h), mean, log_variance


def vae() -> Built:
    model = VAE()
    images = jax.random.uniform(KEY, (16, 16, 16, 1))
    params = jax.jit(model.init)(KEY, images, KEY)

    def loss(params: Any, images: Any, key: Any) -> Any:
        logits, mean, log_variance = model.apply(params, images, key)
        reconstruction = optax.sigmoid_binary_cross_entropy(logits, images).sum(axis=(1, 2, 3))
        divergence = -0.5 * jnp.sum(1 + log_variance - mean**2 - jnp.exp(log_variance), axis=-1)
        return jnp.mean(reconstruction + divergence)

    return loss, (params, images, jax.random.key(1))


class Mixer(nn.Module):
    """MLP-mixer on patches, in bfloat16."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.Conv(48, (4, 4), (4, 4), dtype=jnp.bfloat16)(x)
        x = x.reshape(x.shape[0], -1, x.shape[-1])
        for _ in range(2):
            y = nn.LayerNorm(dtype=jnp.bfloat16)(x).swapaxes(1, 2)
            y = nn.Dense(64, dtype=jnp.bfloat16)(nn.gelu(nn.Dense(64, dtype=jnp.bfloat16)(y)))
            x = x + y.swapaxes(1, 2)
            y = nn.LayerNorm(dtype=jnp.bfloat16)(x)
            x = x + nn.Dense(48, dtype=jnp.bfloat16)(nn.gelu(nn.Dense(96, dtype=jnp.bfloat16)(y)))
        return nn.Dense(10, dtype=jnp.float32)(x.mean(axis=1))


def mixer() -> Built:
    model = Mixer()
    images = jax.random.normal(KEY, (8, 32, 32, 3))
    labels = jnp.arange(8) % 10
    params = jax.jit(model.init)(KEY, images)

    def loss(params: Any, images: Any, labels: Any) -> Any:
        return optax.softmax_cross_entropy_with_integer_labels(model.apply(params, images), labels).mean()

    return loss, (params, images, labels)


LOSSES = (
    Loss("linen-transformer", "decoder with dropout, cross-entropy", transformer),
    Loss("linen-resnet", "residual network with batch statistics", resnet),
    # flax makes the first state of a recurrence in float32.
    Loss("linen-speech", "convolution, LSTM, GRU, temporal classification", speech, is_single=True),
    Loss("linen-scan-remat", "attention layers under nn.scan and nn.remat", scanned),
    Loss("linen-vae", "variational autoencoder, transposed convolutions", vae),
    # 8 bits of significand: JAX's gradients are up to 0.11 from those of the same model in float32.
    Loss("linen-mixer-bf16", "MLP-mixer in bfloat16", mixer, tolerance=0.15, is_single=True),
)
