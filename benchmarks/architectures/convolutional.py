"""Convolutional networks: one like a ResNet, one like a U-Net, and a U-Net with attention as diffusion models have."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.architectures.library import Draw, Function, Library, Model, Wrap
from benchmarks.architectures.transformer import attention, attention_weights


def normalized(lib: Library, x: Any, groups: int = 8) -> Any:
    """Each group of channels of each image with mean 0 and variance 1. x: [batch, height, width, channels]."""
    grouped = x.reshape(*x.shape[:3], groups, x.shape[3] // groups)
    centered = grouped - lib.xp.mean(grouped, axis=(1, 2, 4), keepdims=True)
    variance = lib.xp.mean(centered * centered, axis=(1, 2, 4), keepdims=True)
    return (centered / lib.xp.sqrt(variance + 1e-5)).reshape(x.shape)


def relu(lib: Library, x: Any) -> Any:
    """Rectified linear unit."""
    return lib.xp.maximum(x, 0)


def silu(lib: Library, x: Any) -> Any:
    """x times its logistic function."""
    return x / (1 + lib.xp.exp(-x))


def doubled(lib: Library, x: Any) -> Any:
    """Each pixel four times."""
    batch, height, width, channels = x.shape
    spread = lib.xp.broadcast_to(x[:, :, None, :, None, :], (batch, height, 2, width, 2, channels))
    return spread.reshape(batch, 2 * height, 2 * width, channels)


def halved(lib: Library, x: Any) -> Any:
    """The mean of each four pixels."""
    batch, height, width, channels = x.shape
    return lib.xp.mean(x.reshape(batch, height // 2, 2, width // 2, 2, channels), axis=(2, 4))


# -- like a ResNet ---------------------------------------------------------------------------------------------------

CHANNELS, BLOCKS = (32, 64, 128), 3


def build_resnet(lib: Library, block: Wrap, group: Wrap) -> Function:
    """Three stages of residual blocks, the size halved between them; cross-entropy."""

    def residual(weights: Any, x: Any) -> Any:
        stride = 2 if "shortcut" in weights else 1
        inside = relu(lib, normalized(lib, lib.convolution(x, weights["first"], stride)))
        inside = normalized(lib, lib.convolution(inside, weights["second"]))
        short = lib.convolution(x, weights["shortcut"], stride) if "shortcut" in weights else x
        return relu(lib, inside + short)

    wrapped = block(residual)

    def loss(params: Any, images: Any, labels: Any) -> Any:
        x = relu(lib, normalized(lib, lib.convolution(images, params["stem"])))
        for weights in params["blocks"]:
            x = wrapped(weights, x)
        scores = lib.xp.mean(x, axis=(1, 2)) @ params["head"]
        shifted = scores - lib.xp.max(scores, axis=-1, keepdims=True)
        log_sums = lib.xp.log(lib.xp.sum(lib.xp.exp(shifted), axis=-1))
        return lib.xp.mean(log_sums - lib.xp.sum(shifted * labels, axis=-1))

    return loss


def resnet_arguments(batch: int = 16, size: int = 48) -> tuple[Any, ...]:
    """Kernels, images [batch, size, size, 3] and labels as one-hot rows."""
    draw = Draw()
    blocks = []
    for stage, width in enumerate(CHANNELS):
        for index in range(BLOCKS):
            is_wider = stage > 0 and index == 0
            before = CHANNELS[stage - 1] if is_wider else width
            kernels = {"first": draw.kernel(3, before, width), "second": draw.kernel(3, width, width)}
            blocks.append({**kernels, "shortcut": draw.kernel(1, before, width)} if is_wider else kernels)
    params = {"stem": draw.kernel(3, 3, CHANNELS[0]), "blocks": blocks, "head": draw.weight(CHANNELS[-1], 10)}
    labels = (draw.random.integers(10, size=(batch, 1)) == np.arange(10)).astype(np.float32)
    return params, draw.normal(batch, size, size, 3), labels


# -- like a U-Net ----------------------------------------------------------------------------------------------------

WIDTHS = (32, 64, 128)


def build_unet(lib: Library, block: Wrap, group: Wrap) -> Function:
    """Down through three sizes and up again, each size's result carried over; mean squared error."""

    def pair(weights: Any, x: Any) -> Any:
        for kernel in weights:
            x = relu(lib, normalized(lib, lib.convolution(x, kernel)))
        return x

    wrapped = block(pair)

    def loss(params: Any, images: Any, targets: Any) -> Any:
        x, skips = images, []
        for weights in params["down"]:
            x = wrapped(weights, x)
            skips.append(x)
            x = halved(lib, x)
        x = wrapped(params["middle"], x)
        for weights, skip in zip(params["up"], reversed(skips), strict=True):
            x = wrapped(weights, lib.xp.concatenate([doubled(lib, x), skip], axis=-1))
        return lib.xp.mean((lib.convolution(x, params["head"]) - targets) ** 2)

    return loss


def unet_arguments(batch: int = 8, size: int = 64) -> tuple[Any, ...]:
    """Kernels, images and targets [batch, size, size, 3]."""
    draw = Draw()

    def pair(inputs: int, outputs: int) -> list[Any]:
        return [draw.kernel(3, inputs, outputs), draw.kernel(3, outputs, outputs)]

    widest = WIDTHS[-1] * 2
    params = {
        "down": [pair(before, after) for before, after in zip((3, *WIDTHS), WIDTHS, strict=False)],
        "middle": pair(WIDTHS[-1], widest),
        "up": [
            pair(before + after, after) for before, after in zip((widest, *WIDTHS[::-1]), WIDTHS[::-1], strict=False)
        ],
        "head": draw.kernel(1, WIDTHS[0], 3),
    }
    return params, draw.normal(batch, size, size, 3), draw.normal(batch, size, size, 3)


# -- as diffusion models have it -------------------------------------------------------------------------------------

SIZES = (32, 64, 128)
HEADS = 4


def build_diffusion(lib: Library, block: Wrap, group: Wrap) -> Function:
    """A U-Net that is told the noise level, attention at its two smaller sizes; the error of the noise predicted."""

    def residual(weights: Any, x: Any, level: Any) -> Any:
        inside = lib.convolution(silu(lib, normalized(lib, x)), weights["first"])
        inside = inside + (silu(lib, level) @ weights["level"])[:, None, None, :]
        inside = lib.convolution(silu(lib, normalized(lib, inside)), weights["second"])
        return lib.convolution(x, weights["shortcut"]) + inside

    def step(weights: Any, x: Any, level: Any) -> Any:
        x = residual(weights, x, level)
        if "attention" not in weights:
            return x
        batch, height, width, channels = x.shape
        flat = normalized(lib, x).reshape(batch, height * width, channels)
        return x + attention(lib, weights["attention"], flat, flat, HEADS, False).reshape(x.shape)

    wrapped = block(step)

    def loss(params: Any, images: Any, noise: Any, amount: Any) -> Any:
        angles = amount[:, None] * params["frequencies"]
        waves = lib.xp.concatenate([lib.xp.sin(angles), lib.xp.cos(angles)], axis=-1)
        level = silu(lib, waves @ params["level"])
        mixed = lib.xp.sqrt(1 - amount)[:, None, None, None] * images
        mixed = mixed + lib.xp.sqrt(amount)[:, None, None, None] * noise
        x, skips = lib.convolution(mixed, params["stem"]), []
        for weights in params["down"]:
            x = wrapped(weights, x, level)
            skips.append(x)
            x = halved(lib, x)
        x = wrapped(params["middle"], x, level)
        for weights, skip in zip(params["up"], reversed(skips), strict=True):
            x = wrapped(weights, lib.xp.concatenate([doubled(lib, x), skip], axis=-1), level)
        return lib.xp.mean((lib.convolution(silu(lib, normalized(lib, x)), params["head"]) - noise) ** 2)

    return loss


def diffusion_arguments(batch: int = 4, size: int = 64) -> tuple[Any, ...]:
    """Weights, images and noise [batch, size, size, 3], and how much of it is noise, in (0, 1)."""
    draw = Draw()
    channels = 128

    def step(inputs: int, outputs: int, has_attention: bool) -> dict[str, Any]:
        weights: dict[str, Any] = {
            "first": draw.kernel(3, inputs, outputs),
            "second": draw.kernel(3, outputs, outputs),
            "shortcut": draw.kernel(1, inputs, outputs),
            "level": draw.weight(channels, outputs),
        }
        if has_attention:
            weights["attention"] = attention_weights(draw, outputs)
        return weights

    pairs = zip((SIZES[0], *SIZES), SIZES, strict=False)
    widest = SIZES[-1] * 2
    params = {
        "frequencies": draw.normal(32, scale=4.0),
        "level": draw.weight(64, channels),
        "stem": draw.kernel(3, 3, SIZES[0]),
        "down": [step(before, after, index == 2) for index, (before, after) in enumerate(pairs)],
        "middle": step(SIZES[-1], widest, True),
        "up": [
            step(before + after, after, index == 0)
            for index, (before, after) in enumerate(zip((widest, *SIZES[::-1]), SIZES[::-1], strict=False))
        ],
        "head": draw.kernel(3, SIZES[0], 3),
    }
    amount = draw.random.uniform(0.1, 0.9, batch).astype("float32")
    return params, draw.normal(batch, size, size, 3), draw.normal(batch, size, size, 3), amount


RESNET = Model(
    "resnet", "9 residual blocks of 3x3 convolutions, 48x48 images, batch 16", build_resnet, resnet_arguments
)
UNET = Model("unet", "4 levels, pairs of 3x3 convolutions, 64x64 images, batch 8", build_unet, unet_arguments)
DIFFUSION = Model(
    "diffusion", "a U-Net with attention and noise levels, 64x64 images, batch 4", build_diffusion, diffusion_arguments
)
