"""The model of model.py; the backward pass recomputes what is inside each layer."""

import numpy as np

import rematc

LAYERS = 8
WIDTH = 256
HIDDEN = 1024
BATCH = 512


def gelu(x):
    """Gaussian error linear unit, in its approximation by tanh."""
    return 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def layer(weights, x):
    """x + gelu(x A) B. x: [batch, width]."""
    return x + gelu(x @ weights["up"]) @ weights["down"]


def loss(layers, x, target):
    """Mean squared error of the last layer's result. x, target: [batch, width]."""
    for weights in layers:
        x = rematc.checkpoint(layer)(weights, x)
    return np.mean(np.square(x - target))


def example_args():
    """Untrained layers, inputs and targets, float32."""
    rng = np.random.default_rng(0)

    def normal(*shape):
        return rng.standard_normal(shape, dtype=np.float32) * np.float32(shape[0] ** -0.5)

    layers = [{"up": normal(WIDTH, HIDDEN), "down": normal(HIDDEN, WIDTH)} for _ in range(LAYERS)]
    return layers, normal(BATCH, WIDTH), normal(BATCH, WIDTH)
