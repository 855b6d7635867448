"""A decoder in plain float32 with a small vocabulary: what a first model of one's own looks like."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.architectures.language import shaped
from benchmarks.architectures.library import Function, Wrap
from benchmarks.whole.model import Whole, integers

LAYERS, WIDTH, HEADS, LENGTH, BATCH, VOCABULARY = 6, 512, 8, 512, 8, 256


def layer_norm(weights: Any, x: Any) -> Any:
    """Over the last dimension."""
    mean = jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.var(x, axis=-1, keepdims=True)
    return (x - mean) / jnp.sqrt(variance + 1e-5) * weights["scale"] + weights["shift"]


def attention(weights: Any, x: Any) -> Any:
    """Causal. x: [batch, length, width]."""
    batch, length, width = x.shape
    query, key, value = jnp.split(x @ weights["qkv"], 3, axis=-1)
    query, key, value = (
        one.reshape(batch, length, HEADS, width // HEADS).swapaxes(1, 2) for one in (query, key, value)
    )
    scores = query @ key.swapaxes(-1, -2) / jnp.sqrt(width // HEADS)
    scores = jnp.where(jnp.tril(jnp.ones((length, length), dtype=bool)), scores, -jnp.inf)
    mixed = jax.nn.softmax(scores, axis=-1) @ value
    return mixed.swapaxes(1, 2).reshape(batch, length, width) @ weights["out"]


def layer(weights: Any, x: Any) -> Any:
    """Attention, then a perceptron."""
    x = x + attention(weights["attention"], layer_norm(weights["first"], x))
    hidden = jax.nn.gelu(layer_norm(weights["second"], x) @ weights["up"] + weights["up_bias"])
    return x + hidden @ weights["down"] + weights["down_bias"]


def build(block: Wrap) -> Function:
    """Cross-entropy of the next character."""
    wrapped = block(layer)

    def loss(params: Any, tokens: Any, targets: Any) -> Any:
        x = params["tokens"][tokens] + params["positions"]
        for weights in params["layers"]:
            x = wrapped(weights, x)
        logits = layer_norm(params["last"], x) @ params["head"]
        log_probabilities = jax.nn.log_softmax(logits)
        return -jnp.mean(jnp.take_along_axis(log_probabilities, targets[..., None], axis=-1))

    return loss


def norm_shapes(width: int) -> dict[str, Any]:
    """Of a layer norm's weights."""
    return {"scale": (width,), "shift": (width,)}


def shapes() -> tuple[Any, ...]:
    """Of the parameters, tokens and targets."""
    one = {
        "attention": {"qkv": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH)},
        "first": norm_shapes(WIDTH),
        "second": norm_shapes(WIDTH),
        "up": (WIDTH, 4 * WIDTH),
        "up_bias": (4 * WIDTH,),
        "down": (4 * WIDTH, WIDTH),
        "down_bias": (WIDTH,),
    }
    whole = {
        "tokens": (VOCABULARY, WIDTH),
        "positions": (LENGTH, WIDTH),
        "last": norm_shapes(WIDTH),
        "head": (WIDTH, VOCABULARY),
    }
    tokens = integers(BATCH, LENGTH)
    return shaped({"layers": [one] * LAYERS, **whole}), tokens, tokens


PLAIN = Whole("plain", build, shapes)
