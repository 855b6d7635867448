"""A small convolutional network that classifies 32x32 colour images.

NumPy has no convolution, so it is written as slices of the padded image and one product.
"""

import numpy as np

BATCH = 64
CHANNELS = (3, 16, 32, 64)
SIZE = 32
CLASSES = 10
TAPS = 3


def convolution(x, kernel):
    """Convolution that keeps the image's size. x: [batch, height, width, in]; kernel: [taps, taps, in, out]."""
    height, width = x.shape[1:3]
    edge = TAPS // 2
    padded = np.pad(x, ((0, 0), (edge, edge), (edge, edge), (0, 0)))
    windows = np.stack([padded[:, i : i + height, j : j + width, :] for i in range(TAPS) for j in range(TAPS)], axis=3)
    return np.tensordot(windows, kernel.reshape(TAPS * TAPS, *kernel.shape[2:]), axes=((3, 4), (0, 1)))


def relu(x):
    """Rectified linear unit."""
    return np.maximum(x, 0)


def max_pool(x):
    """The largest of each 2x2 window. x: [batch, height, width, channels]; height and width are halved."""
    batch, height, width, channels = x.shape
    return np.max(x.reshape(batch, height // 2, 2, width // 2, 2, channels), axis=(2, 4))


def convnet(params, images):
    """Scores of the classes. images: [batch, height, width, 3]; the result: [batch, classes]."""
    x = images
    for kernel in params["kernels"]:
        x = max_pool(relu(convolution(x, kernel)))
    return x.reshape(x.shape[0], -1) @ params["head"]


def cross_entropy(scores, labels):
    """Mean negative log-probability of the labels. scores: [batch, classes]; labels: [batch], integers."""
    shifted = scores - np.max(scores, axis=-1, keepdims=True)
    log_probabilities = shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))
    return -np.mean(log_probabilities[np.arange(labels.shape[0]), labels])


def loss(params, images, labels):
    """Cross-entropy of the network's scores. images: [batch, height, width, 3]; labels: [batch], integers."""
    return cross_entropy(convnet(params, images), labels)


def example_args():
    """Untrained parameters, and images and labels drawn at random; float32 and int32."""
    rng = np.random.default_rng(0)

    def normal(shape, scale):
        return rng.standard_normal(shape, dtype=np.float32) * np.float32(scale)

    kernels = [
        normal((TAPS, TAPS, CHANNELS[i], CHANNELS[i + 1]), (2 / (TAPS * TAPS * CHANNELS[i])) ** 0.5)
        for i in range(len(CHANNELS) - 1)
    ]
    features = (SIZE // 2 ** len(kernels)) ** 2 * CHANNELS[-1]
    params = {"kernels": kernels, "head": normal((features, CLASSES), 0.1 / features**0.5)}
    images = normal((BATCH, SIZE, SIZE, CHANNELS[0]), 1)
    return params, images, rng.integers(CLASSES, size=BATCH, dtype=np.int32)


if __name__ == "__main__":
    print(f"loss {loss(*example_args()):.6f}")
