"""Convolutional networks: a U-Net at 256x256, a ResNet-50 and a MobileNet with statistics of the batch, a VGG-16."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.architectures.language import shaped
from benchmarks.architectures.library import Function, Wrap
from benchmarks.whole.model import Whole, integers, reals
from benchmarks.whole.plain import norm_shapes


def convolution(x: Any, kernel: Any, stride: int = 1) -> Any:
    """Zeros outside. x: [batch, height, width, channels]."""
    return jax.lax.conv_general_dilated(x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


# -- the U-Net -------------------------------------------------------------------------------------------------------

SIZE, IMAGES, WIDTHS, MIDDLE, LABELS = 256, 4, (32, 64, 128, 256), 512, 21


def group_norm(weights: Any, x: Any, groups: int = 8) -> Any:
    """Of each image."""
    grouped = x.reshape(*x.shape[:3], groups, -1)
    mean = jnp.mean(grouped, axis=(1, 2, 4), keepdims=True)
    variance = jnp.var(grouped, axis=(1, 2, 4), keepdims=True)
    normalized = ((grouped - mean) * jax.lax.rsqrt(variance + 1e-5)).reshape(x.shape)
    return normalized * weights["scale"] + weights["shift"]


def pair(weights: Any, x: Any) -> Any:
    """Two convolutions."""
    x = jax.nn.relu(group_norm(weights["norm"], convolution(x, weights["kernel"])))
    return jax.nn.relu(group_norm(weights["norm2"], convolution(x, weights["kernel2"])))


def max_pool(x: Any) -> Any:
    """Half the size."""
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def build_unet(block: Wrap) -> Function:
    """Cross-entropy of each pixel's class."""
    wrapped = block(pair)

    def loss(params: Any, images: Any, labels: Any) -> Any:
        x, skips = images, []
        for weights in params["down"]:
            x = wrapped(weights, x)
            skips.append(x)
            x = max_pool(x)
        x = wrapped(params["middle"], x)
        for weights in params["up"]:
            batch, height, width, channels = x.shape
            x = jax.image.resize(x, (batch, 2 * height, 2 * width, channels), "nearest")
            x = wrapped(weights, jnp.concatenate([skips.pop(), x], axis=-1))
        logs = jax.nn.log_softmax(convolution(x, params["head"]))
        return -jnp.mean(jnp.sum(logs * jax.nn.one_hot(labels, LABELS), axis=-1))

    return loss


def unet_shapes() -> tuple[Any, ...]:
    """Of the parameters, images and labels."""

    def one(inputs: int, outputs: int) -> dict[str, Any]:
        kernels = {"kernel": (3, 3, inputs, outputs), "kernel2": (3, 3, outputs, outputs)}
        return {**kernels, "norm": norm_shapes(outputs), "norm2": norm_shapes(outputs)}

    above = (*WIDTHS[1:], MIDDLE)
    params = {
        "down": [one(before, width) for before, width in zip((3, *WIDTHS), WIDTHS, strict=False)],
        "middle": one(WIDTHS[-1], MIDDLE),
        "up": [one(width + below, width) for width, below in zip(reversed(WIDTHS), reversed(above), strict=True)],
        "head": (1, 1, WIDTHS[0], LABELS),
    }
    return shaped(params), reals(IMAGES, SIZE, SIZE, 3), integers(IMAGES, SIZE, SIZE)


# -- the ResNet ------------------------------------------------------------------------------------------------------

STAGES, BATCH, PIXELS, CLASSES = ((3, 64), (4, 128), (6, 256), (3, 512)), 16, 224, 1000


def batch_norm(weights: Any, x: Any) -> Any:
    """With the statistics of the batch, as in training."""
    mean = jnp.mean(x, axis=(0, 1, 2))
    variance = jnp.mean(jnp.square(x), axis=(0, 1, 2)) - jnp.square(mean)
    return (x - mean) * (jax.lax.rsqrt(variance + 1e-5) * weights["scale"]) + weights["shift"]


def bottleneck(weights: Any, x: Any) -> Any:
    """Narrow, convolve, widen."""
    stride = 2 if weights["kernels"][0].shape[2] == weights["kernels"][0].shape[3] * 2 else 1
    inside = jax.nn.relu(batch_norm(weights["norms"][0], convolution(x, weights["kernels"][0])))
    inside = jax.nn.relu(batch_norm(weights["norms"][1], convolution(inside, weights["kernels"][1], stride)))
    inside = batch_norm(weights["norms"][2], convolution(inside, weights["kernels"][2]))
    if "shortcut" in weights:
        x = batch_norm(weights["shortcut_norm"], convolution(x, weights["shortcut"], stride))
    return jax.nn.relu(inside + x)


def build_resnet(block: Wrap) -> Function:
    """Cross-entropy."""
    wrapped = block(bottleneck)

    def loss(params: Any, images: Any, labels: Any) -> Any:
        x = jax.nn.relu(batch_norm(params["stem_norm"], convolution(images, params["stem"], 2)))
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        for weights in params["blocks"]:
            x = wrapped(weights, x)
        logits = jnp.mean(x, axis=(1, 2)) @ params["head"] + params["bias"]
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1))

    return loss


def resnet_shapes() -> tuple[Any, ...]:
    """Of the parameters, images and labels; float32."""
    blocks: list[Any] = []
    before = 64
    for count, width in STAGES:
        for index in range(count):
            kernels = [(1, 1, before, width), (3, 3, width, width), (1, 1, width, 4 * width)]
            one = {"kernels": kernels, "norms": [norm_shapes(kernel[3]) for kernel in kernels]}
            if index == 0:
                one |= {"shortcut": (1, 1, before, 4 * width), "shortcut_norm": norm_shapes(4 * width)}
            blocks.append(one)
            before = 4 * width
    ends = {"stem": (7, 7, 3, 64), "stem_norm": norm_shapes(64), "head": (before, CLASSES), "bias": (CLASSES,)}
    return shaped({**ends, "blocks": blocks}), reals(BATCH, PIXELS, PIXELS, 3), integers(BATCH)


# -- the MobileNet ---------------------------------------------------------------------------------------------------

#: The channels and the stride of each block that is a depthwise convolution and one of single pixels.
SEPARABLE = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))


def separable(stride: int, weights: Any, x: Any) -> Any:
    """A convolution of each channel by itself, then one of all channels of a pixel."""
    channels = x.shape[-1]
    x = jax.lax.conv_general_dilated(
        *(x, weights["depthwise"], (stride, stride), "SAME"),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=channels,
    )
    x = jax.nn.relu(batch_norm(weights["norms"][0], x))
    return jax.nn.relu(batch_norm(weights["norms"][1], convolution(x, weights["pointwise"])))


def build_mobilenet(block: Wrap) -> Function:
    """Cross-entropy."""
    by_stride = {stride: block(functools.partial(separable, stride)) for stride in (1, 2)}

    def loss(params: Any, images: Any, labels: Any) -> Any:
        x = jax.nn.relu(batch_norm(params["stem_norm"], convolution(images, params["stem"], 2)))
        for weights, (_, stride) in zip(params["blocks"], SEPARABLE, strict=True):
            x = by_stride[stride](weights, x)
        logits = jnp.mean(x, axis=(1, 2)) @ params["head"] + params["bias"]
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1))

    return loss


def mobilenet_shapes() -> tuple[Any, ...]:
    """Of the parameters, images and labels; float32."""
    blocks, before = list[Any](), 32
    for width, _ in SEPARABLE:
        kernels = {"depthwise": (3, 3, 1, before), "pointwise": (1, 1, before, width)}
        blocks.append({**kernels, "norms": [norm_shapes(before), norm_shapes(width)]})
        before = width
    ends = {"stem": (3, 3, 3, 32), "stem_norm": norm_shapes(32), "head": (before, CLASSES), "bias": (CLASSES,)}
    return shaped({**ends, "blocks": blocks}), reals(BATCH, PIXELS, PIXELS, 3), integers(BATCH)


# -- the VGG ---------------------------------------------------------------------------------------------------------

RUNS, HIDDEN = ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)), 4096


def run_of_convolutions(weights: Any, x: Any) -> Any:
    """Convolutions of one size, and half of it."""
    for layer in weights:
        x = jax.nn.relu(convolution(x, layer["kernel"]) + layer["bias"])
    return max_pool(x)


def build_vgg(block: Wrap) -> Function:
    """Cross-entropy."""
    wrapped = block(run_of_convolutions)

    def loss(params: Any, images: Any, labels: Any) -> Any:
        x = images
        for weights in params["runs"]:
            x = wrapped(weights, x)
        x = x.reshape(BATCH, -1)
        for weights in params["hidden"]:
            x = jax.nn.relu(x @ weights["kernel"] + weights["bias"])
        logits = x @ params["head"] + params["bias"]
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1))

    return loss


def vgg_shapes() -> tuple[Any, ...]:
    """Of the parameters, images and labels; float32."""
    runs, before = [], 3
    for count, width in RUNS:
        inputs = (before, *(width,) * (count - 1))
        runs.append([{"kernel": (3, 3, size, width), "bias": (width,)} for size in inputs])
        before = width
    flat = (PIXELS // 2 ** len(RUNS)) ** 2 * before
    hidden = [{"kernel": (size, HIDDEN), "bias": (HIDDEN,)} for size in (flat, HIDDEN)]
    params = {"runs": runs, "hidden": hidden, "head": (HIDDEN, CLASSES), "bias": (CLASSES,)}
    return shaped(params), reals(BATCH, PIXELS, PIXELS, 3), integers(BATCH)


UNET = Whole("unet-256", build_unet, unet_shapes)
RESNET = Whole("resnet-50", build_resnet, resnet_shapes)
MOBILENET = Whole("mobilenet", build_mobilenet, mobilenet_shapes)
VGG = Whole("vgg-16", build_vgg, vgg_shapes)
