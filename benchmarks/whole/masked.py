"""An encoder that finds masked words, like BERT: dropout, the exact gelu, norms behind layers, a tied vocabulary."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.architectures.language import shaped
from benchmarks.architectures.library import Function, Wrap
from benchmarks.whole.model import Whole, integers
from benchmarks.whole.plain import layer_norm, norm_shapes

LAYERS, WIDTH, HEADS, LENGTH, BATCH, VOCABULARY, RATE = 6, 512, 8, 256, 16, 30522, 0.1


def dropout(key: Any, x: Any) -> Any:
    """Zeros in the place of one of ten, the rest larger."""
    return jnp.where(jax.random.bernoulli(key, 1 - RATE, x.shape), x / (1 - RATE), 0)


def attention(weights: Any, x: Any, key: Any) -> Any:
    """Among all, with weights dropped. x: [batch, length, width]."""
    batch, length, width = x.shape
    query, key_, value = (
        (x @ weights[name] + weights[f"{name}_bias"]).reshape(batch, length, HEADS, width // HEADS)
        for name in ("query", "key", "value")
    )
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key_) / jnp.sqrt(width // HEADS)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", dropout(key, jax.nn.softmax(scores)), value)
    return mixed.reshape(x.shape) @ weights["out"] + weights["out_bias"]


def layer(weights: Any, x: Any, key: Any) -> Any:
    """Attention and a perceptron, with a norm behind each."""
    keys = jax.random.split(key, 3)
    x = layer_norm(weights["first"], x + dropout(keys[0], attention(weights, x, keys[1])))
    hidden = jax.nn.gelu(x @ weights["up"] + weights["up_bias"], approximate=False)
    return layer_norm(weights["second"], x + dropout(keys[2], hidden @ weights["down"] + weights["down_bias"]))


def build(block: Wrap) -> Function:
    """Cross-entropy of all words, by the table of words."""
    wrapped = block(layer)

    def loss(params: Any, tokens: Any, targets: Any, key: Any) -> Any:
        keys = jax.random.split(key, LAYERS + 1)
        x = dropout(keys[0], layer_norm(params["first"], params["tokens"][tokens] + params["positions"]))
        for weights, own in zip(params["layers"], keys[1:], strict=True):
            x = wrapped(weights, x, own)
        hidden = jax.nn.gelu(x @ params["transform"], approximate=False)
        logits = layer_norm(params["last"], hidden) @ params["tokens"].T + params["bias"]
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], axis=-1))

    return loss


def shapes() -> tuple[Any, ...]:
    """Of the parameters, tokens, targets and the random key."""
    one: dict[str, Any] = dict.fromkeys(("query", "key", "value", "out"), (WIDTH, WIDTH))
    one |= {f"{name}_bias": (WIDTH,) for name in tuple(one)}
    one |= {"first": norm_shapes(WIDTH), "second": norm_shapes(WIDTH)}
    one |= {"up": (WIDTH, 4 * WIDTH), "up_bias": (4 * WIDTH,), "down": (4 * WIDTH, WIDTH), "down_bias": (WIDTH,)}
    ends = {
        "tokens": (VOCABULARY, WIDTH),
        "positions": (LENGTH, WIDTH),
        "first": norm_shapes(WIDTH),
        "last": norm_shapes(WIDTH),
        "transform": (WIDTH, WIDTH),
        "bias": (VOCABULARY,),
    }
    tokens = integers(BATCH, LENGTH)
    key: Any = jax.eval_shape(lambda: jax.random.PRNGKey(0))
    return shaped({"layers": [one] * LAYERS, **ends}), tokens, tokens, key


MASKED = Whole("masked", build, shapes)
