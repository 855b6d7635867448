"""How long it takes from a transformer in NumPy to StableHLO text of its training step, beside JAX: ratios.

    python benchmarks/lowering.py [--rounds N] [--layers 12,48,192,768] [--jax] [--memory]

The model is written once, for whichever array namespace it is given. One round traces, differentiates and prints it
with rematc and with JAX, in turns, each from a function that it has not seen and with JAX's caches cleared. After
that, rematc alone on deeper models: the factor per doubling is 2.0 where time is linear in depth.
"""

from __future__ import annotations

import argparse
import gc
import math
import statistics
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import rematc

WIDTH, HEADS, HIDDEN, LENGTH, BATCH, VOCABULARY = 256, 8, 1024, 256, 8, 1024

Loss = Callable[[Any, Any, Any], Any]


def transformer_loss(xp: Any) -> Loss:
    """A new function: the cross-entropy of a decoder-only transformer, written in the namespace `xp`."""

    def layer_norm(norm: Any, x: Any) -> Any:
        centered = x - xp.mean(x, axis=-1, keepdims=True)
        variance = xp.mean(xp.square(centered), axis=-1, keepdims=True)
        return centered / xp.sqrt(variance + 1e-5) * norm["scale"] + norm["shift"]

    def split_heads(x: Any) -> Any:
        return x.reshape(BATCH, LENGTH, HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3)

    def attention(weights: Any, x: Any) -> Any:
        query, key, value = (split_heads(x @ weights[name]) for name in ("query", "key", "value"))
        scores = query @ key.transpose(0, 1, 3, 2) * (WIDTH // HEADS) ** -0.5
        position = xp.arange(LENGTH)
        causal = xp.where(position[:, None] >= position, scores, -1e9)
        chances = xp.exp(causal - xp.max(causal, axis=-1, keepdims=True))
        mixed = chances / xp.sum(chances, axis=-1, keepdims=True) @ value
        return mixed.transpose(0, 2, 1, 3).reshape(BATCH, LENGTH, WIDTH) @ weights["output"]

    def gelu(x: Any) -> Any:
        return 0.5 * x * (1 + xp.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))

    def layer(weights: Any, x: Any) -> Any:
        x = x + attention(weights, layer_norm(weights["attention_norm"], x))
        hidden = gelu(layer_norm(weights["mlp_norm"], x) @ weights["up"] + weights["up_bias"])
        return x + hidden @ weights["down"] + weights["down_bias"]

    def loss(params: Any, tokens: Any, targets: Any) -> Any:
        x = params["tokens"][tokens] + params["positions"]
        for weights in params["layers"]:
            x = layer(weights, x)
        scores = layer_norm(params["norm"], x) @ params["unembedding"]
        shifted = scores - xp.max(scores, axis=-1, keepdims=True)
        log_chances = shifted - xp.log(xp.sum(xp.exp(shifted), axis=-1, keepdims=True))
        chosen = xp.arange(VOCABULARY) == targets[:, :, None]
        return -xp.mean(xp.sum(xp.where(chosen, log_chances, 0.0), axis=-1))

    return loss


def transformer_arguments(layers: int) -> tuple[Any, Any, Any]:
    """Shapes of the parameters and of a text: nothing is allocated."""

    def floats(*shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, np.float32)  # type: ignore[no-untyped-call]  # jax

    def norm() -> Any:
        return {"scale": floats(WIDTH), "shift": floats(WIDTH)}

    def layer() -> Any:
        return {
            **{name: floats(WIDTH, WIDTH) for name in ("query", "key", "value", "output")},
            "attention_norm": norm(),
            "mlp_norm": norm(),
            "up": floats(WIDTH, HIDDEN),
            "up_bias": floats(HIDDEN),
            "down": floats(HIDDEN, WIDTH),
            "down_bias": floats(WIDTH),
        }

    params = {
        "tokens": floats(VOCABULARY, WIDTH),
        "positions": floats(LENGTH, WIDTH),
        "layers": [layer() for _ in range(layers)],
        "norm": norm(),
        "unembedding": floats(WIDTH, VOCABULARY),
    }
    text = jax.ShapeDtypeStruct((BATCH, LENGTH), np.int32)  # type: ignore[no-untyped-call]  # jax
    return params, text, text


def rematc_text(layers: int) -> str:
    """StableHLO of value and gradient, by rematc."""
    return rematc.lower(rematc.value_and_grad(transformer_loss(np)), *transformer_arguments(layers)).stablehlo()


def jax_text(layers: int) -> str:
    """StableHLO of value and gradient, by JAX."""
    return jax.jit(jax.value_and_grad(transformer_loss(jnp))).lower(*transformer_arguments(layers)).as_text()


def seconds_of(function: Callable[[int], str], layers: int) -> float:
    """Seconds that the process computes for one text, from cold caches; less distorted by a busy machine."""
    jax.clear_caches()  # type: ignore[no-untyped-call]  # jax
    gc.collect()
    start = time.process_time()
    function(layers)
    return time.process_time() - start


def peak_mebibytes(function: Callable[[int], str], layers: int) -> float:
    """Peak of Python's memory while one text is made."""
    jax.clear_caches()  # type: ignore[no-untyped-call]  # jax
    gc.collect()
    tracemalloc.start()
    function(layers)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak / 2**20


def compare(layers: int, rounds: int) -> None:
    """Print the ratio of rematc to JAX, round by round in turns."""
    for function in (rematc_text, jax_text):
        function(1)  # imports and what is made once in a process
    ratios, ours, theirs = [], [], []
    for index in range(rounds):
        order = (rematc_text, jax_text) if index % 2 else (jax_text, rematc_text)
        seconds = {function: seconds_of(function, layers) for function in order}
        ours.append(seconds[rematc_text])
        theirs.append(seconds[jax_text])
        ratios.append(ours[-1] / theirs[-1])
    print(f"{layers} layers, {rounds} rounds: rematc / jax {jax.__version__}")
    print(f"  ratio {statistics.median(ratios):5.2f}   ({min(ratios):.2f} to {max(ratios):.2f})")
    print(f"  medians {statistics.median(ours):.3f} s and {statistics.median(theirs):.3f} s")


def scale(depths: list[int], with_jax: bool, with_memory: bool) -> None:
    """Print time against depth; the factor per doubling is from the row before."""
    functions = [("rematc", rematc_text), *([("jax", jax_text)] if with_jax else [])]
    print(f"{'':8}{'layers':>8}{'seconds':>10}{'per doubling':>14}" + (f"{'peak MiB':>10}" if with_memory else ""))
    for name, function in functions:
        before: tuple[int, float] | None = None
        for layers in depths:
            seconds = min(seconds_of(function, layers) for _ in range(3 if layers <= 192 else 2))
            factor = ""
            if before is not None:
                factor = f"{(seconds / before[1]) ** (1 / math.log2(layers / before[0])):.2f}"
            before = layers, seconds
            peak = f"{peak_mebibytes(function, layers):10.0f}" if with_memory else ""
            print(f"{name:8}{layers:8}{seconds:10.2f}{factor:>14}{peak}", flush=True)


def main() -> None:
    """Print the tables that the options ask for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="rounds of the comparison at 12 layers")
    parser.add_argument("--layers", default="12,48,192,768", help="depths of the second table; none if empty")
    parser.add_argument("--jax", action="store_true", help="time JAX on these depths too")
    parser.add_argument("--memory", action="store_true", help="measure the peak of Python's memory as well")
    options = parser.parse_args()
    compare(12, options.rounds)
    depths = [int(depth) for depth in options.layers.split(",") if depth]
    if depths:
        scale(depths, options.jax, options.memory)


if __name__ == "__main__":
    main()
