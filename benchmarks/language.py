"""Language models of their real sizes: temporary memory of a training step, compiled from shapes and never run.

    python benchmarks/language.py [--layers 4] [--only gpt2,llama] [--policies none,nothing,dots,auto]

GPT-2 (width 768, 12 heads, vocabulary 50,304, tied) and a model like Llama (grouped queries, SwiGLU, rotated positions,
vocabulary 32,000, a head of its own), sequences of 1,024, a batch of 8, bfloat16 with float32 parameters. Beside rematc
with a policy on the whole, unchanged loss stands JAX without remat and with `jax.checkpoint` around each layer by hand.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

import rematc

BATCH, LENGTH = 8, 1024
BY_HAND: dict[str, Any] = {
    "nothing": jax.checkpoint_policies.nothing_saveable,
    "dots": jax.checkpoint_policies.dots_saveable,
}


@dataclass(frozen=True, slots=True)
class Language:
    """A model's sizes; `key_heads` is as `heads` where queries are not grouped."""

    name: str
    width: int
    heads: int
    key_heads: int
    inner: int
    vocabulary: int
    is_llama: bool

    def parameters(self, layers: int) -> Any:
        """The shapes of all parameters, float32."""
        size = self.width // self.heads
        layer = {
            "queries": (self.width, self.heads, size),
            "keys": (self.width, self.key_heads, size),
            "values": (self.width, self.key_heads, size),
            "out": (self.heads, size, self.width),
            "up": (self.width, self.inner),
            "down": (self.inner, self.width),
            "first": (self.width,),
            "second": (self.width,),
        }
        whole = {"tokens": (self.vocabulary, self.width), "last": (self.width,)}
        if self.is_llama:
            layer["gate"] = (self.width, self.inner)
            whole["head"] = (self.width, self.vocabulary)
        else:
            whole["positions"] = (LENGTH, self.width)
        tree = {"layers": [layer] * layers, **whole}
        return jax.tree_util.tree_map(
            lambda shape: jax.ShapeDtypeStruct(shape, jnp.float32), tree, is_leaf=lambda leaf: isinstance(leaf, tuple)
        )

    def norm(self, scale: Any, x: Any) -> Any:
        """RMS or layer norm, in float32."""
        wide = x.astype(jnp.float32)
        if not self.is_llama:
            wide = wide - wide.mean(-1, keepdims=True)
        wide = wide * jax.lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + 1e-5)
        return (wide * scale).astype(jnp.bfloat16)

    def attention(self, layer: Any, x: Any) -> Any:
        """Causal, queries in groups of keys."""
        queries, keys, values = (
            jnp.einsum("btw,whd->bthd", x, layer[name].astype(x.dtype)) for name in ("queries", "keys", "values")
        )
        if self.is_llama:
            queries, keys = rotated(queries), rotated(keys)
        queries = queries.reshape(*queries.shape[:2], self.key_heads, self.heads // self.key_heads, -1)
        scores = jnp.einsum("btkgd,bskd->bkgts", queries, keys) / queries.shape[-1] ** 0.5
        mask = jnp.tril(jnp.ones((x.shape[1], x.shape[1]), bool))
        weights = jax.nn.softmax(jnp.where(mask, scores.astype(jnp.float32), -1e30)).astype(x.dtype)
        mixed = jnp.einsum("bkgts,bskd->btkgd", weights, values).reshape(*x.shape[:2], self.heads, -1)
        return jnp.einsum("bthd,hdw->btw", mixed, layer["out"].astype(x.dtype))

    def block(self, layer: Any, x: Any) -> Any:
        """Attention, then a perceptron."""
        x = x + self.attention(layer, self.norm(layer["first"], x))
        seen = self.norm(layer["second"], x)
        up = seen @ layer["up"].astype(x.dtype)
        up = up * jax.nn.silu(seen @ layer["gate"].astype(x.dtype)) if self.is_llama else jax.nn.gelu(up)
        return x + up @ layer["down"].astype(x.dtype)

    def loss(self, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[..., Any]:
        """Cross entropy of the next token; `around` is put around each layer."""
        block = around(self.block)

        def loss(params: Any, tokens: Any) -> Any:
            x = params["tokens"].astype(jnp.bfloat16)[tokens[:, :-1]]
            if not self.is_llama:
                x = x + params["positions"].astype(jnp.bfloat16)
            for layer in params["layers"]:
                x = block(layer, x)
            head = params["head"] if self.is_llama else params["tokens"].T
            logits = (self.norm(params["last"], x) @ head.astype(x.dtype)).astype(jnp.float32)
            right = jnp.take_along_axis(logits, tokens[:, 1:, None], -1)[..., 0]
            return jnp.mean(jax.nn.logsumexp(logits, -1) - right)

        return loss


def rotated(x: Any) -> Any:
    """Rotary positions."""
    size = x.shape[-1] // 2
    angles = jnp.arange(x.shape[1])[:, None] * 1e4 ** (-jnp.arange(size) / size)
    sine, cosine = (f(angles)[:, None].astype(x.dtype) for f in (jnp.sin, jnp.cos))
    return jnp.concatenate(
        [x[..., :size] * cosine - x[..., size:] * sine, x[..., size:] * cosine + x[..., :size] * sine], -1
    )


MODELS = (
    Language("gpt2", 768, 12, 12, 3072, 50304, is_llama=False),
    Language("llama", 768, 12, 4, 2048, 32000, is_llama=True),
)


def temporary(model: Language, layers: int, side: str, policy: str) -> float:
    """MiB of temporary memory of the training step."""
    shapes = (model.parameters(layers), jax.ShapeDtypeStruct((BATCH, LENGTH + 1), jnp.int32))
    if side == "rematc":
        step = rematc.value_and_grad(
            rematc.from_jax(model.loss(lambda block: block)), policy=None if policy == "none" else policy
        )
        return float(rematc.compile(step, *shapes).memory().temp_bytes) / 2**20
    kept = BY_HAND.get(policy)
    around = (lambda block: block) if kept is None else (lambda block: jax.checkpoint(block, policy=kept))
    memory: Any = jax.jit(jax.value_and_grad(model.loss(around))).lower(*shapes).compile().memory_analysis()
    return float(memory.temp_size_in_bytes) / 2**20


def main() -> None:
    """Compile and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--layers", type=int, default=4, help="how many")
    parser.add_argument("--only", default="", help="models, separated by commas")
    parser.add_argument("--policies", default="none,nothing,dots,auto", help="separated by commas")
    options = parser.parse_args()
    only = [name for name in options.only.split(",") if name]
    print(f"jax {jax.__version__} on {jax.default_backend()}, {options.layers} layers\n")
    print("| model | policy | JAX, each layer by hand: MiB | rematc, on the whole: MiB | ratio | seconds |")
    print("|---|---|--:|--:|--:|--:|", flush=True)
    for model in MODELS:
        if only and model.name not in only:
            continue
        for policy in options.policies.split(","):
            start = time.perf_counter()
            theirs = temporary(model, options.layers, "JAX", policy) if policy in ("none", *BY_HAND) else None
            ours = temporary(model, options.layers, "rematc", policy)
            seconds = time.perf_counter() - start
            cells = ("", "") if theirs is None else (f"{theirs:.0f}", f"{ours / theirs:.2f}")
            print(f"| {model.name} | {policy} | {cells[0]} | {ours:.0f} | {cells[1]} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
