"""A decoder-only transformer: causal attention of 8 heads, gelu; width 512, hidden 2048, 256 positions, batch 8."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from benchmarks.architectures.library import Draw, Function, Library, Model, Wrap

WIDTH, HEADS, HIDDEN, LENGTH, BATCH = 512, 8, 2048, 256, 8


def layer_norm(lib: Library, x: Any) -> Any:
    """x with mean 0 and variance 1 over its last dimension. x: [..., width]."""
    centered = x - lib.xp.mean(x, axis=-1, keepdims=True)
    variance = lib.xp.mean(centered * centered, axis=-1, keepdims=True)
    return centered / lib.xp.sqrt(variance + 1e-5)


def split_heads(x: Any, heads: int) -> Any:
    """[batch, length, width] to [batch, heads, length, width of a head]."""
    batch, length, width = x.shape
    return x.reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3)


def attention(lib: Library, weights: Any, x: Any, memory: Any, heads: int, is_causal: bool) -> Any:
    """Attention from x [batch, length, width] to memory [batch, other length, width]."""
    query = split_heads(x @ weights["query"], heads)
    key = split_heads(memory @ weights["key"], heads)
    value = split_heads(memory @ weights["value"], heads)
    scores = query @ key.transpose(0, 1, 3, 2) * query.shape[-1] ** -0.5
    if is_causal:
        position = np.arange(x.shape[1])
        scores = lib.xp.where(position[:, None] >= position, scores, np.float32(-1e9))
    mixed = lib.softmax(scores) @ value
    return mixed.transpose(0, 2, 1, 3).reshape(x.shape) @ weights["output"]


def attention_weights(draw: Draw, width: int) -> dict[str, Any]:
    """The four matrices of an attention."""
    return {name: draw.weight(width, width) for name in ("query", "key", "value", "output")}


def build(lib: Library, block: Wrap, group: Wrap) -> Function:
    """The mean square of the last layer's result."""

    def layer(weights: Any, x: Any) -> Any:
        inside = layer_norm(lib, x)
        x = x + lib.checkpoint_name(attention(lib, weights, inside, inside, HEADS, True), "attention")
        inside = layer_norm(lib, x)
        return x + lib.checkpoint_name(lib.gelu(inside @ weights["up"]) @ weights["down"], "mlp")

    wrapped = block(layer)

    def loss(layers: Any, x: Any) -> Any:
        for weights in layers:
            x = wrapped(weights, x)
        return lib.xp.mean(x * x)

    return loss


def arguments(layers: int) -> tuple[Any, ...]:
    """Weights of each layer, and the embedded input [batch, length, width]."""
    draw = Draw()

    def layer() -> dict[str, Any]:
        return {
            **attention_weights(draw, WIDTH),
            "up": draw.weight(WIDTH, HIDDEN),
            "down": draw.weight(HIDDEN, WIDTH),
        }

    return [layer() for _ in range(layers)], draw.normal(BATCH, LENGTH, WIDTH)


NAMES = ("attention", "mlp")
TRANSFORMER = Model("transformer", "6 layers", build, functools.partial(arguments, 6), NAMES)
DEEP = Model("transformer-48", "48 layers", build, functools.partial(arguments, 48), NAMES)
