"""A decoder with a mixture of experts in each layer, two for a token, and a head of 50,304 tokens."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.architectures.language import shaped
from benchmarks.architectures.library import Function, Wrap
from benchmarks.whole.model import Whole, integers

LAYERS, WIDTH, HEADS, INNER, EXPERTS, LENGTH, BATCH, VOCABULARY = 4, 512, 8, 1024, 8, 512, 8, 50304
#: Tokens that an expert takes of a sequence: a quarter more than if they were spread evenly.
CAPACITY = 2 * LENGTH * 5 // (4 * EXPERTS)


def rms_norm(scale: Any, x: Any) -> Any:
    """In float32."""
    wide = x.astype(jnp.float32)
    wide = wide * jax.lax.rsqrt(jnp.mean(jnp.square(wide), axis=-1, keepdims=True) + 1e-6)
    return (wide * scale).astype(x.dtype)


def attention(weights: Any, x: Any) -> Any:
    """Causal. x: [batch, length, width]."""
    query, key, value = (jnp.einsum("btd,dhk->bthk", x, weights[name].astype(x.dtype)) for name in "qkv")
    scores = jnp.einsum("bthk,bshk->bhts", query, key, preferred_element_type=jnp.float32) * query.shape[-1] ** -0.5
    mask = jnp.arange(LENGTH)[:, None] >= jnp.arange(LENGTH)[None, :]
    weighted = jax.nn.softmax(jnp.where(mask, scores, -1e30), axis=-1).astype(x.dtype)
    mixed = jnp.einsum("bhts,bshk->bthk", weighted, value)
    return jnp.einsum("bthk,hkd->btd", mixed, weights["o"].astype(x.dtype))


def routed(weights: Any, x: Any) -> tuple[Any, Any]:
    """How tokens are dispatched and combined [batch, length, experts, capacity], and a loss that balances experts."""
    gates = jax.nn.softmax(x.astype(jnp.float32) @ weights["router"], axis=-1)
    values, chosen = jax.lax.top_k(gates, 2)
    values = values / jnp.sum(values, axis=-1, keepdims=True)
    taken = jax.nn.one_hot(chosen, EXPERTS, dtype=jnp.int32)  # [batch, length, 2, experts]
    flat = taken.swapaxes(1, 2).reshape(x.shape[0], 2 * LENGTH, EXPERTS)  # first choices before second ones
    position = (jnp.cumsum(flat, axis=1) * flat - 1).reshape(x.shape[0], 2, LENGTH, EXPERTS).swapaxes(1, 2)
    slots = jax.nn.one_hot(position, CAPACITY, dtype=x.dtype)  # rows of zeros for what does not fit
    dispatch = jnp.sum(slots, axis=2)
    combine = jnp.einsum("btk,btkec->btec", values.astype(x.dtype), slots)
    share = jnp.mean(taken[:, :, 0].astype(jnp.float32), axis=(0, 1))
    return (dispatch, combine), EXPERTS * jnp.sum(share * jnp.mean(gates, axis=(0, 1)))


def layer(weights: Any, x: Any) -> tuple[Any, Any]:
    """Attention, then two of the experts for each token."""
    x = x + attention(weights["attention"], rms_norm(weights["first"], x))
    seen = rms_norm(weights["second"], x)
    (dispatch, combine), balance = routed(weights, seen)
    inputs = jnp.einsum("btec,btd->ebcd", dispatch, seen)
    gate = jnp.einsum("ebcd,edf->ebcf", inputs, weights["gate"].astype(x.dtype))
    up = jnp.einsum("ebcd,edf->ebcf", inputs, weights["up"].astype(x.dtype))
    outputs = jnp.einsum("ebcf,efd->ebcd", jax.nn.silu(gate) * up, weights["down"].astype(x.dtype))
    return x + jnp.einsum("btec,ebcd->btd", combine, outputs), balance


def build(block: Wrap) -> Function:
    """Cross-entropy of the next token, and the balance of the experts."""
    wrapped = block(layer)

    def loss(params: Any, tokens: Any) -> Any:
        x = params["tokens"].astype(jnp.bfloat16)[tokens[:, :-1]]
        balances = []
        for weights in params["layers"]:
            x, balance = wrapped(weights, x)
            balances.append(balance)
        x = rms_norm(params["last"], x)
        logits = jnp.einsum("btd,dv->btv", x, params["head"].astype(x.dtype), preferred_element_type=jnp.float32)
        picked = jnp.take_along_axis(logits, tokens[:, 1:, None], axis=-1).squeeze(-1)
        return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - picked) + 0.01 * sum(balances)

    return loss


def shapes() -> tuple[Any, ...]:
    """Of the parameters and tokens."""
    size = WIDTH // HEADS
    one = {
        "attention": {**dict.fromkeys("qkv", (WIDTH, HEADS, size)), "o": (HEADS, size, WIDTH)},
        "first": (WIDTH,),
        "second": (WIDTH,),
        "router": (WIDTH, EXPERTS),
        "gate": (EXPERTS, WIDTH, INNER),
        "up": (EXPERTS, WIDTH, INNER),
        "down": (EXPERTS, INNER, WIDTH),
    }
    whole = {"tokens": (VOCABULARY, WIDTH), "last": (WIDTH,), "head": (WIDTH, VOCABULARY)}
    return shaped({"layers": [one] * LAYERS, **whole}), integers(BATCH, LENGTH + 1)


MIXTURE = Whole("mixture", build, shapes)
