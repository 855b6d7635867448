"""An encoder and a decoder like T5: biases by relative position, shared by all layers; a head of 32,128 tokens."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.architectures.language import shaped
from benchmarks.architectures.library import Function, Wrap
from benchmarks.whole.mixture import rms_norm
from benchmarks.whole.model import Whole, integers

LAYERS, WIDTH, HEADS, INNER, SOURCE, TARGET, BATCH, VOCABULARY, BUCKETS = 4, 512, 8, 1024, 512, 256, 8, 32128, 32


def position_bias(table: Any, queries: int, keys: int) -> Any:
    """A bias for each head of each pair of positions, by their distance on a logarithmic scale; [heads, q, k]."""
    distance = jnp.arange(keys)[None, :] - jnp.arange(queries)[:, None]
    far = jnp.log(jnp.maximum(jnp.abs(distance), 1) / 8) / jnp.log(128 / 8) * (BUCKETS // 2 - 8)
    near = jnp.where(jnp.abs(distance) < 8, jnp.abs(distance), jnp.clip(8 + far.astype(jnp.int32), 8, BUCKETS // 2 - 1))
    return jnp.transpose(table[near + jnp.where(distance > 0, BUCKETS // 2, 0)], (2, 0, 1))


def attention(weights: Any, x: Any, memory: Any, bias: Any) -> Any:
    """From x [batch, length, width] to memory [batch, other length, width]; scores are not scaled, as in T5."""
    query = jnp.einsum("btd,dhk->bhtk", x, weights["q"].astype(x.dtype))
    key = jnp.einsum("bsd,dhk->bhsk", memory, weights["k"].astype(x.dtype))
    value = jnp.einsum("bsd,dhk->bhsk", memory, weights["v"].astype(x.dtype))
    scores = jnp.einsum("bhtk,bhsk->bhts", query, key).astype(jnp.float32) + bias
    mixed = jnp.einsum("bhts,bhsk->bhtk", jax.nn.softmax(scores, axis=-1).astype(x.dtype), value)
    return jnp.einsum("bhtk,hkd->btd", mixed, weights["o"].astype(x.dtype))


def perceptron(weights: Any, x: Any) -> Any:
    """With a gate."""
    gate = jax.nn.gelu(x @ weights["gate"].astype(x.dtype))
    return (gate * (x @ weights["up"].astype(x.dtype))) @ weights["down"].astype(x.dtype)


def encoder_layer(weights: Any, x: Any, bias: Any) -> Any:
    """Attention among all of the source."""
    seen = rms_norm(weights["norms"][0], x)
    x = x + attention(weights["own"], seen, seen, bias)
    return x + perceptron(weights, rms_norm(weights["norms"][1], x))


def decoder_layer(weights: Any, x: Any, encoded: Any, bias: Any) -> Any:
    """Attention to what was, then to the source."""
    seen = rms_norm(weights["norms"][0], x)
    x = x + attention(weights["own"], seen, seen, bias)
    x = x + attention(weights["cross"], rms_norm(weights["norms"][1], x), encoded, 0.0)
    return x + perceptron(weights, rms_norm(weights["norms"][2], x))


def build(block: Wrap) -> Function:
    """Cross-entropy of the target's next token; padding does not count."""
    encode, decode = block(encoder_layer), block(decoder_layer)

    def loss(params: Any, source: Any, target: Any) -> Any:
        table = params["tokens"].astype(jnp.bfloat16)
        x = table[source]
        bias = position_bias(params["encoder_bias"], SOURCE, SOURCE) + jnp.where(source > 0, 0.0, -1e9)[:, None, None]
        for weights in params["encoder"]:
            x = encode(weights, x, bias)
        encoded = rms_norm(params["encoded"], x)
        x, length = table[target[:, :-1]], TARGET
        causal = jnp.where(jnp.tril(jnp.ones((length, length), dtype=bool)), 0.0, -1e9)
        bias = position_bias(params["decoder_bias"], length, length) + causal
        for weights in params["decoder"]:
            x = decode(weights, x, encoded, bias)
        logits = rms_norm(params["last"], x) @ params["head"].astype(x.dtype)
        logs = jax.nn.log_softmax(logits.astype(jnp.float32), axis=-1)
        picked = jnp.take_along_axis(logs, target[:, 1:, None], axis=-1)[..., 0]
        mask = target[:, 1:] > 0
        return -jnp.sum(picked * mask) / jnp.maximum(jnp.sum(mask), 1)

    return loss


def shapes() -> tuple[Any, ...]:
    """Of the parameters, source and target."""
    heads = {**dict.fromkeys("qkv", (WIDTH, HEADS, WIDTH // HEADS)), "o": (HEADS, WIDTH // HEADS, WIDTH)}
    both = {"own": heads, "gate": (WIDTH, INNER), "up": (WIDTH, INNER), "down": (INNER, WIDTH)}
    params = {
        "tokens": (VOCABULARY, WIDTH),
        "head": (WIDTH, VOCABULARY),
        "encoder_bias": (BUCKETS, HEADS),
        "decoder_bias": (BUCKETS, HEADS),
        "encoded": (WIDTH,),
        "last": (WIDTH,),
        "encoder": [{**both, "norms": [(WIDTH,)] * 2}] * LAYERS,
        "decoder": [{**both, "cross": heads, "norms": [(WIDTH,)] * 3}] * LAYERS,
    }
    return shaped(params), integers(BATCH, SOURCE), integers(BATCH, TARGET + 1)


TRANSLATION = Whole("encoder-decoder", build, shapes)
