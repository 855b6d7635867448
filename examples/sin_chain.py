"""Three matrix-vector products, each followed by a sine: the smallest model in which policies differ."""

import numpy as np


def g(W, x):
    """sin(W x). W: [out, in]; x: [in]."""
    return np.sin(np.dot(W, x))


def f(W1, W2, W3, x):
    """Three steps of `g`. x: [4]; the result: [7]."""
    return g(W3, g(W2, g(W1, x)))


def loss(W1, W2, W3, x):
    """The sum of the chain's results."""
    return np.sum(f(W1, W2, W3, x))


def example_args():
    """Three weights and an input, float32."""
    rng = np.random.default_rng(0)
    return tuple(rng.standard_normal(shape, dtype=np.float32) for shape in [(5, 4), (6, 5), (7, 6), (4,)])


if __name__ == "__main__":
    print(f"loss {loss(*example_args()):.6f}")
