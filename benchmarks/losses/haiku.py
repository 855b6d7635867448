"""Losses of haiku modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import optax

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)


def lstm() -> Built:
    def forward(tokens: Any) -> Any:
        x = hk.Embed(64, 32)(tokens)
        core = hk.DeepRNN([hk.LSTM(48), jax.nn.relu, hk.LSTM(48)])
        hidden, _ = hk.dynamic_unroll(core, x, core.initial_state(tokens.shape[1]))
        return hk.BatchApply(hk.Linear(64))(hidden)

    model = hk.without_apply_rng(hk.transform(forward))
    tokens = jax.random.randint(KEY, (25, 8), 0, 64)
    params = jax.jit(model.init)(KEY, tokens[:-1])

    def loss(params: Any, tokens: Any) -> Any:
        logits = model.apply(params, tokens[:-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[1:]).mean()

    return loss, (params, tokens)


def vq_vae() -> Built:
    def forward(images: Any) -> Any:
        x = jax.nn.relu(hk.Conv2D(32, 4, 2)(images))
        x = hk.Conv2D(16, 3)(x)
        quantized = hk.nets.VectorQuantizer(16, 32, 0.25)(x, is_training=True)
        y = jax.nn.relu(hk.Conv2DTranspose(32, 4, 2)(quantized["quantize"]))
        return hk.Conv2D(1, 3)(y), quantized["loss"]

    model = hk.without_apply_rng(hk.transform_with_state(forward))
    images = jax.random.normal(KEY, (4, 16, 16, 1))
    params, state = jax.jit(model.init)(KEY, images)

    def loss(params: Any, state: Any, images: Any) -> Any:
        (image, commitment), _ = model.apply(params, state, images)
        return jnp.mean(jnp.square(image - images)) + commitment

    return loss, (params, state, images)


def mobilenet() -> Built:
    def forward(images: Any) -> Any:
        return hk.nets.MobileNetV1(strides=(1, 2), channels=(16, 32), num_classes=10, use_bn=True)(
            images, is_training=True
        )

    model = hk.without_apply_rng(hk.transform_with_state(forward))
    images = jax.random.normal(KEY, (4, 32, 32, 3))
    params, state = jax.jit(model.init)(KEY, images)
    labels = jnp.arange(4)

    def loss(params: Any, state: Any, images: Any, labels: Any) -> Any:
        logits, _ = model.apply(params, state, images)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    return loss, (params, state, images, labels)


def attention() -> Built:
    def forward(x: Any) -> Any:
        def layer(x: Any) -> Any:
            y = hk.LayerNorm(-1, True, True)(x)
            y = hk.MultiHeadAttention(4, 16, w_init=hk.initializers.VarianceScaling(1.0))(y, y, y)
            return x + y + hk.nets.MLP([128, 64], activation=jax.nn.gelu)(hk.LayerNorm(-1, True, True)(x))

        x = hk.layer_stack(4)(layer)(x)
        return hk.dropout(hk.next_rng_key(), 0.1, x)

    model = hk.transform(forward)
    x = jax.random.normal(KEY, (4, 32, 64))
    params = jax.jit(model.init)(KEY, x)

    def loss(params: Any, key: Any, x: Any) -> Any:
        return optax.cosine_distance(model.apply(params, key, x), x).mean()

    return loss, (params, jax.random.PRNGKey(1), x)


LOSSES = (
    Loss("haiku-lstm", "two LSTM layers, unrolled by a loop", lstm),
    Loss("haiku-vq-vae", "quantized autoencoder, straight-through", vq_vae),
    Loss("haiku-mobilenet", "depthwise convolutions with batch statistics", mobilenet),
    Loss("haiku-layer-stack", "attention layers in a loop, dropout with a raw key", attention),
)
