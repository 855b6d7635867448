"""Losses of keras models on its JAX backend."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "jax")

import jax
import jax.numpy as jnp
import keras

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)


def separable() -> Built:
    if keras.backend.backend() != "jax":
        raise ModuleNotFoundError("keras's JAX backend", name="keras with KERAS_BACKEND=jax")
    keras.utils.set_random_seed(0)
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((24, 24, 3)),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.SeparableConv2D(24, 3, strides=2, padding="same"),
            layers.BatchNormalization(),
            layers.Activation("swish"),
            layers.MaxPooling2D(2),
            layers.Reshape((36, 24)),
            layers.LSTM(24, return_sequences=True),
            layers.GlobalAveragePooling1D(),
            layers.Dense(10),
        ]
    )
    images = jax.random.normal(KEY, (4, 24, 24, 3))
    labels = jnp.arange(4)
    params = [variable.value for variable in model.trainable_variables]
    state = [variable.value for variable in model.non_trainable_variables]
    error = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def loss(params: Any, state: Any, images: Any, labels: Any) -> Any:
        logits, _ = model.stateless_call(params, state, images, training=True)
        return error(labels, logits)

    return loss, (params, state, images, labels)


LOSSES = (Loss("keras-network", "separable convolutions, batch statistics, LSTM", separable, is_single=True),)
