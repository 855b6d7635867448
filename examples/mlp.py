"""A multilayer perceptron for regression: eight layers of width 1024, gelu between them, mean squared error."""

import numpy as np

LAYERS = 8
WIDTH = 1024
BATCH = 2048


def gelu(x):
    """Gaussian error linear unit, in its approximation by tanh."""
    return 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def linear(layer, x):
    """x W + b. x: [batch, in]; W: [in, out]."""
    return x @ layer["weight"] + layer["bias"]


def mlp(layers, x):
    """All layers in turn, gelu after each but the last. x: [batch, width]."""
    for layer in layers[:-1]:
        x = gelu(linear(layer, x))
    return linear(layers[-1], x)


def loss(layers, x, target):
    """Mean squared error of the network's prediction. x, target: [batch, width]."""
    return np.mean(np.square(mlp(layers, x) - target))


def example_args():
    """Untrained layers, and inputs and targets of independent unit normals, float32."""
    rng = np.random.default_rng(0)

    def normal(*shape):
        return rng.standard_normal(shape, dtype=np.float32)

    layers = [
        {"weight": normal(WIDTH, WIDTH) * np.float32((2 / WIDTH) ** 0.5), "bias": np.zeros(WIDTH, np.float32)}
        for _ in range(LAYERS)
    ]
    return layers, normal(BATCH, WIDTH), normal(BATCH, WIDTH)


if __name__ == "__main__":
    print(f"loss {loss(*example_args()):.6f}")
