"""Transformers over images: a classifier like ViT-B/16, and a denoiser like DiT-B/2, conditioned by adaptive norms."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.architectures.language import shaped
from benchmarks.architectures.library import Function, Wrap
from benchmarks.whole.model import Whole, integers, reals
from benchmarks.whole.plain import norm_shapes

WIDTH, HEADS, INNER = 768, 12, 3072


def layer_norm(x: Any) -> Any:
    """In float32, over the last dimension."""
    wide = x.astype(jnp.float32)
    mean, variance = jnp.mean(wide, axis=-1, keepdims=True), jnp.var(wide, axis=-1, keepdims=True)
    return ((wide - mean) * jax.lax.rsqrt(variance + 1e-6)).astype(x.dtype)


def attention(weights: Any, x: Any) -> Any:
    """Among all. x: [batch, length, width]."""
    batch, length, width = x.shape
    mixed = (x @ weights["qkv"].astype(x.dtype)).reshape(batch, length, 3, HEADS, width // HEADS)
    out = jax.nn.dot_product_attention(mixed[:, :, 0], mixed[:, :, 1], mixed[:, :, 2])
    return out.reshape(x.shape) @ weights["out"].astype(x.dtype)


def perceptron(weights: Any, x: Any) -> Any:
    """Two layers with gelu."""
    return jax.nn.gelu(x @ weights["up"].astype(x.dtype)) @ weights["down"].astype(x.dtype)


LAYER = {"qkv": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH), "up": (WIDTH, INNER), "down": (INNER, WIDTH)}

# -- the classifier, in a scan or not --------------------------------------------------------------------------------

SIZE, PATCH, IMAGES, CLASSES = 224, 16, 16, 1000


def classifying_layer(weights: Any, x: Any) -> Any:
    """Attention, then a perceptron."""
    first, second = weights["first"], weights["second"]
    x = x + attention(weights, layer_norm(x) * first["scale"].astype(x.dtype) + first["shift"].astype(x.dtype))
    return x + perceptron(weights, layer_norm(x) * second["scale"].astype(x.dtype) + second["shift"].astype(x.dtype))


def build_classifier(block: Wrap) -> Function:
    """Cross-entropy with smoothed labels; layers are a list, or stacked."""
    wrapped = block(classifying_layer)

    def loss(params: Any, images: Any, labels: Any) -> Any:
        patches = jax.lax.conv_general_dilated(
            images.astype(jnp.bfloat16),
            params["patches"].astype(jnp.bfloat16),
            (PATCH, PATCH),
            "VALID",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        x = patches.reshape(patches.shape[0], -1, WIDTH)
        first = jnp.broadcast_to(params["class"].astype(x.dtype), (x.shape[0], 1, WIDTH))
        x = jnp.concatenate([first, x], axis=1) + params["positions"].astype(x.dtype)
        if isinstance(params["layers"], list):
            for weights in params["layers"]:
                x = wrapped(weights, x)
        else:
            x, _ = jax.lax.scan(lambda x, weights: (wrapped(weights, x), None), x, params["layers"])
        logits = (layer_norm(x[:, 0]) @ params["head"].astype(x.dtype)).astype(jnp.float32)
        targets = 0.9 * jax.nn.one_hot(labels, CLASSES) + 0.1 / CLASSES
        return -jnp.mean(jnp.sum(targets * jax.nn.log_softmax(logits), axis=-1))

    return loss


def classifier_shapes(layers: int, is_scanned: bool) -> tuple[Any, ...]:
    """Of the parameters, images and labels."""
    one = {**LAYER, "first": norm_shapes(WIDTH), "second": norm_shapes(WIDTH)}
    whole = {
        "patches": (PATCH, PATCH, 3, WIDTH),
        "class": (WIDTH,),
        "positions": ((SIZE // PATCH) ** 2 + 1, WIDTH),
        "head": (WIDTH, CLASSES),
    }
    stack = shaped(one, layers) if is_scanned else [shaped(one)] * layers
    return {**shaped(whole), "layers": stack}, reals(IMAGES, SIZE, SIZE, 3), integers(IMAGES)


# -- the denoiser ----------------------------------------------------------------------------------------------------

LATENT, CHANNELS, LATENTS, STEPS = 32, 4, 16, 1000


def denoising_layer(weights: Any, x: Any, condition: Any) -> Any:
    """Norms whose scale, shift and gate the condition [batch, width] gives."""
    six = jax.nn.silu(condition) @ weights["modulation"] + weights["modulation_bias"]
    shift, scale, gate, shift2, scale2, gate2 = (part[:, None, :] for part in jnp.split(six, 6, axis=-1))
    x = x + gate * attention(weights, layer_norm(x) * (1 + scale) + shift)
    return x + gate2 * perceptron(weights, layer_norm(x) * (1 + scale2) + shift2)


def timestep_embedding(steps: Any) -> Any:
    """Sines and cosines. steps: [batch]."""
    frequencies = jnp.exp(-jnp.log(10000.0) * jnp.arange(128) / 128)
    angles = steps[:, None].astype(jnp.float32) * frequencies
    return jnp.concatenate([jnp.cos(angles), jnp.sin(angles)], axis=-1)


def build_denoiser(block: Wrap) -> Function:
    """Mean squared error of the noise."""
    wrapped = block(denoising_layer)

    def loss(params: Any, latents: Any, noise: Any, steps: Any, labels: Any) -> Any:
        signal = jnp.cos(0.5 * jnp.pi * steps / STEPS)[:, None, None, None]
        noisy = signal * latents + jnp.sqrt(1 - signal**2) * noise
        count = LATENT // 2
        patches = noisy.reshape(LATENTS, count, 2, count, 2, CHANNELS).transpose(0, 1, 3, 2, 4, 5)
        x = patches.reshape(LATENTS, count * count, 4 * CHANNELS) @ params["patches"] + params["positions"]
        condition = jax.nn.silu(timestep_embedding(steps) @ params["time"]) @ params["time2"] + params["labels"][labels]
        for weights in params["layers"]:
            x = wrapped(weights, x, condition)
        shift, scale = jnp.split(jax.nn.silu(condition) @ params["last"], 2, axis=-1)
        out = (layer_norm(x) * (1 + scale[:, None]) + shift[:, None]) @ params["head"]
        out = out.reshape(LATENTS, count, count, 2, 2, CHANNELS).transpose(0, 1, 3, 2, 4, 5)
        return jnp.mean(jnp.square(out.reshape(noise.shape) - noise))

    return loss


def denoiser_shapes() -> tuple[Any, ...]:
    """Of the parameters, latents, noise, steps and labels; float32."""
    one = {**LAYER, "modulation": (WIDTH, 6 * WIDTH), "modulation_bias": (6 * WIDTH,)}
    whole = {
        "patches": (4 * CHANNELS, WIDTH),
        "positions": ((LATENT // 2) ** 2, WIDTH),
        "time": (256, WIDTH),
        "time2": (WIDTH, WIDTH),
        "labels": (CLASSES, WIDTH),
        "last": (WIDTH, 2 * WIDTH),
        "head": (WIDTH, 4 * CHANNELS),
    }
    image = reals(LATENTS, LATENT, LATENT, CHANNELS)
    return shaped({**whole, "layers": [one] * 6}), image, image, integers(LATENTS), integers(LATENTS)


VIT = Whole("vit", build_classifier, lambda: classifier_shapes(6, is_scanned=False))
VIT_SCAN = Whole("vit-scan", build_classifier, lambda: classifier_shapes(12, is_scanned=True), is_scanned=True)
DIT = Whole("dit", build_denoiser, denoiser_shapes)
