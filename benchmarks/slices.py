"""Slices of a language model's head beside the head sliced by hand: temporary memory of value and gradient.

    python benchmarks/slices.py [--slices N] [--target cpu|h100|v5e|...] [--policies nothing,dots] [--auto]

A GPT-2 of 4 layers: width 768, 12 heads, sequence 1024, batch 8, vocabulary 50,304, tied, bfloat16 compute, float32
parameters. By hand each layer is in `jax.checkpoint`, and the head in `jax.checkpoint` of a scan over slices of the
tokens. Nothing runs: it is what XLA says of the compiled programs, for the targets of rematc.targets ahead of time.
`--auto` has a column more, of as many slices as rematc finds best.
"""

from __future__ import annotations

import argparse
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import rematc
import rematc.jax

BATCH, TOKENS, WIDTH, HEADS, LAYERS, VOCABULARY = 8, 1024, 768, 12, 4, 50304
MEBIBYTE = 2**20
Wrap = Callable[[Any], Any]
_struct: Any = jax.ShapeDtypeStruct  # whose constructor JAX leaves untyped


def shapes() -> tuple[Any, Any]:
    """Of the parameters, and of the tokens."""

    def of(*sizes: int) -> Any:
        return _struct(sizes, jnp.float32)

    layer = {
        "first": of(WIDTH),
        "attention": of(WIDTH, 3 * WIDTH),
        "out": of(WIDTH, WIDTH),
        "second": of(WIDTH),
        "up": of(WIDTH, 4 * WIDTH),
        "down": of(4 * WIDTH, WIDTH),
    }
    whole = {"embedding": of(VOCABULARY, WIDTH), "positions": of(TOKENS, WIDTH), "last": of(WIDTH)}
    return {**whole, "layers": [layer] * LAYERS}, _struct((BATCH, TOKENS + 1), jnp.int32)


def norm(x: Any, scale: Any) -> Any:
    wide = x.astype(jnp.float32)
    centered = wide - wide.mean(-1, keepdims=True)
    return (centered * jax.lax.rsqrt((centered**2).mean(-1, keepdims=True) + 1e-5) * (1 + scale)).astype(x.dtype)


def block(layer: Any, x: Any) -> Any:
    """Attention, then a perceptron. x: [batch, tokens, width]."""
    mixed = norm(x, layer["first"]) @ layer["attention"].astype(x.dtype)
    queries, keys, values = [y.reshape(BATCH, TOKENS, HEADS, -1) for y in jnp.split(mixed, 3, -1)]
    scores = jnp.einsum("bthe,bshe->bhts", queries, keys).astype(jnp.float32) / math.sqrt(WIDTH // HEADS)
    scores = jnp.where(jnp.tril(jnp.ones((TOKENS, TOKENS), bool)), scores, -1e9)
    weights = jax.nn.softmax(scores, -1).astype(x.dtype)
    seen = jnp.einsum("bhts,bshe->bthe", weights, values).reshape(x.shape)
    x = x + seen @ layer["out"].astype(x.dtype)
    inner = jax.nn.gelu(norm(x, layer["second"]) @ layer["up"].astype(x.dtype))
    return x + inner @ layer["down"].astype(x.dtype)


def hidden(params: Any, tokens: Any, wrap: Wrap) -> Any:
    x = (params["embedding"][tokens[:, :-1]] + params["positions"]).astype(jnp.bfloat16)
    for layer in params["layers"]:
        x = wrap(block)(layer, x)
    return norm(x, params["last"])


def cross_entropy(embedding: Any, x: Any, labels: Any) -> Any:
    logits = (x @ embedding.astype(x.dtype).T).astype(jnp.float32)
    return -jnp.take_along_axis(jax.nn.log_softmax(logits, -1), labels[..., None], -1)


def loss(params: Any, tokens: Any, wrap: Wrap = lambda function: function) -> Any:
    """As a user writes it."""
    return cross_entropy(params["embedding"], hidden(params, tokens, wrap), tokens[:, 1:]).mean()


def loss_by_hand(params: Any, tokens: Any, wrap: Wrap, count: int) -> Any:
    """The head in so many slices of the tokens."""
    x, labels = hidden(params, tokens, wrap), tokens[:, 1:]
    slices = x.reshape(BATCH, count, -1, WIDTH).swapaxes(0, 1), labels.reshape(BATCH, count, -1).swapaxes(0, 1)

    @jax.checkpoint
    def step(total: Any, one: Any) -> Any:
        return total + cross_entropy(params["embedding"], *one).sum(), None

    return jax.lax.scan(step, jnp.zeros(()), slices)[0] / labels.size


def mebibytes(function: Any, target: str) -> float:
    """XLA's temporary memory."""
    on: Any = jax.sharding.SingleDeviceSharding(rematc.targets.devices(target)[0])
    given = jax.tree.map(lambda one: _struct(one.shape, one.dtype, sharding=on), shapes())
    memory: Any = jax.jit(function).lower(*given).compile().memory_analysis()
    return float(memory.temp_size_in_bytes) / MEBIBYTE


def main() -> None:
    parser = argparse.ArgumentParser(description="Temporary memory of heads in slices.")
    parser.add_argument("--slices", type=int, default=16)
    parser.add_argument("--target", default="cpu", help="what to compile for: cpu, or of rematc.targets")
    parser.add_argument("--policies", default="nothing,dots")
    parser.add_argument("--auto", action="store_true", help="and as many slices as are found best")
    options = parser.parse_args()
    count: int = options.slices
    dots = functools.partial(jax.checkpoint, policy=jax.checkpoint_policies.checkpoint_dots)
    ways: list[Any] = ["off", count, *(["auto"] if options.auto else [])]
    head = ["JAX, layers by hand", "and the head by hand", "rematc", f"slices={count}", *ways[2:]]
    print(f"| policy | {' | '.join(head)} |")
    print(f"|---{'|--:' * len(head)}|")
    wraps: dict[str, Wrap] = {"nothing": jax.checkpoint, "dots": dots}
    for policy in options.policies.split(","):
        wrap = wraps[policy]
        functions = [
            jax.value_and_grad(functools.partial(loss, wrap=wrap)),
            jax.value_and_grad(functools.partial(loss_by_hand, wrap=wrap, count=count)),
            *[rematc.jax.value_and_grad(loss, policy=policy, slices=slices) for slices in ways],
        ]
        taken = [f"{mebibytes(function, options.target):,.0f}" for function in functions]
        print(f"| {policy} | {' | '.join(taken)} |", flush=True)


if __name__ == "__main__":
    main()
