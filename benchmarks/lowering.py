"""How long it takes from a function in NumPy to StableHLO text of its derivative, beside JAX: ratios.

    python benchmarks/lowering.py [--cases transformer,scan] [--rounds N] [--layers 12,48,192,768] [--jax] [--memory]

The cases are the training step of a transformer; the same under a policy on the whole, which JAX has on each layer by
hand (transformer-nothing, -dots; -auto stands beside JAX's dots): what planning costs; a recurrence whose step has
layers (scan); gradients of each example on its own (vmap); of each sequence under a recurrence (vmap-scan); second
derivatives of layers (hessian), and of layers in a loop (scan-hessian). Each is written once, for whichever array
namespace it is given. One round traces, differentiates and prints it with rematc and with JAX, in turns, each from a
function that it has not seen and with JAX's caches cleared. After that, rematc alone on deeper models: the factor per
doubling is 2.0 where time is linear in depth.
"""

from __future__ import annotations

import argparse
import functools
import gc
import math
import statistics
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import rematc

WIDTH, HEADS, HIDDEN, LENGTH, BATCH, VOCABULARY = 256, 8, 1024, 256, 8, 1024

Loss = Callable[[Any, Any, Any], Any]


def transformer_loss(xp: Any, wrapped: Callable[[Any], Any] = lambda layer: layer) -> Loss:
    """A new function: the cross-entropy of a decoder-only transformer, written in the namespace `xp`.

    `wrapped` gives what takes the place of the function of one layer.
    """

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
            x = wrapped(layer)(weights, x)
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


# -- layers in loops and batches -----------------------------------------------------------------------------------

UNITS, SEQUENCE = 64, 50


def floats(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, np.float32)  # type: ignore[no-untyped-call]  # jax


def layer_weights(layers: int) -> list[dict[str, Any]]:
    """Shapes of the weights of `layer`, for each."""
    square, line = floats(UNITS, UNITS), floats(UNITS)
    return [{"scale": line, "shift": line, "up": square, "bias": line, "down": square} for _ in range(layers)]


def layer(xp: Any, weights: Any, x: Any) -> Any:
    """A residual layer: norm, product, tanh, product."""
    centered = x - xp.mean(x, axis=-1, keepdims=True)
    variance = xp.mean(xp.square(centered), axis=-1, keepdims=True)
    normal = centered / xp.sqrt(variance + 1e-5) * weights["scale"] + weights["shift"]
    return x + xp.tanh(normal @ weights["up"] + weights["bias"]) @ weights["down"]


def layered_loss(xp: Any) -> Loss:
    """A new function: layers one after another."""

    def loss(x: Any, params: Any) -> Any:
        for weights in params:
            x = layer(xp, weights, x)
        return xp.sum(x)

    return loss


def recurrent_loss(xp: Any, scan: Any) -> Loss:
    """A new function: a recurrence over a sequence, whose step has layers."""

    def loss(params: Any, x: Any, sequence: Any) -> Any:
        def step(state: Any, entry: Any) -> Any:
            state = state + entry
            for weights in params:
                state = layer(xp, weights, state)
            return state, xp.sum(state)

        last, sums = scan(step, x, sequence)
        return xp.sum(last) + xp.sum(sums)

    return loss


def repeated_loss(xp: Any, scan: Any) -> Loss:
    """A new function: layers, ten times in a loop."""

    def loss(x: Any, params: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            for weights in params:
                state = layer(xp, weights, state)
            return state, None

        return xp.sum(scan(step, x, None, 10)[0])

    return loss


@dataclass(frozen=True, slots=True)
class Library:
    """What the cases take from rematc or JAX."""

    numpy: Any
    scan: Any
    vmap: Any
    value_and_grad: Any
    hessian: Any


OURS = Library(np, rematc.scan, rematc.vmap, rematc.value_and_grad, rematc.hessian)
THEIRS = Library(jnp, jax.lax.scan, jax.vmap, jax.value_and_grad, jax.hessian)
Case = Callable[[Library, int], tuple[Callable[..., Any], tuple[Any, ...]]]


def transformer_case(lib: Library, layers: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    return lib.value_and_grad(transformer_loss(lib.numpy)), transformer_arguments(layers)


def transformer_under(policy: str) -> Case:
    """The transformer under a policy on the whole; JAX has it, or `dots` for `auto`, on each layer."""
    of_jax = jax.checkpoint_policies.nothing_saveable if policy == "nothing" else jax.checkpoint_policies.dots_saveable

    def case(lib: Library, layers: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        if lib is OURS:
            return rematc.value_and_grad(transformer_loss(np), policy=policy), transformer_arguments(layers)
        wrapped = functools.partial(jax.checkpoint, policy=of_jax)
        return jax.value_and_grad(transformer_loss(jnp, wrapped)), transformer_arguments(layers)

    return case


def scan_case(lib: Library, layers: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    arguments = (layer_weights(layers), floats(8, UNITS), floats(SEQUENCE, 8, UNITS))
    return lib.value_and_grad(recurrent_loss(lib.numpy, lib.scan)), arguments


def vmap_case(lib: Library, layers: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    loss = layered_loss(lib.numpy)
    of_each = lib.vmap(lib.value_and_grad(lambda params, x: loss(x, params)), (None, 0))
    return of_each, (layer_weights(layers), floats(32, 8, UNITS))


def vmap_scan_case(lib: Library, layers: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    of_each = lib.vmap(lib.value_and_grad(recurrent_loss(lib.numpy, lib.scan)), (None, 0, 0))
    return of_each, (layer_weights(layers), floats(4, 8, UNITS), floats(4, SEQUENCE, 8, UNITS))


def hessian_case(lib: Library, layers: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    return lib.hessian(layered_loss(lib.numpy)), (floats(UNITS), layer_weights(layers))


def scan_hessian_case(lib: Library, layers: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    return lib.hessian(repeated_loss(lib.numpy, lib.scan)), (floats(UNITS), layer_weights(layers))


CASES: dict[str, Case] = {
    "transformer": transformer_case,
    **{f"transformer-{policy}": transformer_under(policy) for policy in ("nothing", "dots", "auto")},
    "scan": scan_case,
    "vmap": vmap_case,
    "vmap-scan": vmap_scan_case,
    "hessian": hessian_case,
    "scan-hessian": scan_hessian_case,
}


# -- measuring -----------------------------------------------------------------------------------------------------


def rematc_text(case: Case, layers: int) -> str:
    """StableHLO of a case, by rematc."""
    function, arguments = case(OURS, layers)
    return rematc.lower(function, *arguments).stablehlo()


def jax_text(case: Case, layers: int) -> str:
    """StableHLO of a case, by JAX."""
    function, arguments = case(THEIRS, layers)
    return jax.jit(function).lower(*arguments).as_text()


Texts = Callable[[Case, int], str]


def seconds_of(texts: Texts, case: Case, layers: int) -> float:
    """Seconds that the process computes for one text, from cold caches; less distorted by a busy machine."""
    jax.clear_caches()  # type: ignore[no-untyped-call]  # jax
    gc.collect()
    start = time.process_time()
    texts(case, layers)
    return time.process_time() - start


def peak_mebibytes(texts: Texts, case: Case, layers: int) -> float:
    """Peak of Python's memory while one text is made."""
    jax.clear_caches()  # type: ignore[no-untyped-call]  # jax
    gc.collect()
    tracemalloc.start()
    texts(case, layers)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak / 2**20


def compare(name: str, layers: int, rounds: int) -> None:
    """Print the ratio of rematc to JAX, round by round in turns."""
    case = CASES[name]
    for texts in (rematc_text, jax_text):
        texts(case, 1)  # imports and what is made once in a process
    ratios, ours, theirs = [], [], []
    for index in range(rounds):
        order = (rematc_text, jax_text) if index % 2 else (jax_text, rematc_text)
        seconds = {texts: seconds_of(texts, case, layers) for texts in order}
        ours.append(seconds[rematc_text])
        theirs.append(seconds[jax_text])
        ratios.append(ours[-1] / theirs[-1])
    spread = f"({min(ratios):.2f} to {max(ratios):.2f})"
    medians = f"{statistics.median(ours):8.3f} s{statistics.median(theirs):8.3f} s"
    print(f"{name:20}{statistics.median(ratios):6.2f}   {spread:18}{medians}", flush=True)


def scale(name: str, depths: list[int], with_jax: bool, with_memory: bool) -> None:
    """Print time against depth; the factor per doubling is from the row before."""
    texts_of = [("rematc", rematc_text), *([("jax", jax_text)] if with_jax else [])]
    case = CASES[name]
    for library, texts in texts_of:
        before: tuple[int, float] | None = None
        for layers in depths:
            seconds = min(seconds_of(texts, case, layers) for _ in range(3 if layers <= 192 else 2))
            factor = ""
            if before is not None:
                factor = f"{(seconds / before[1]) ** (1 / math.log2(layers / before[0])):.2f}"
            before = layers, seconds
            peak = f"{peak_mebibytes(texts, case, layers):10.0f}" if with_memory else ""
            print(f"{name:20}{library:8}{layers:8}{seconds:10.2f}{factor:>14}{peak}", flush=True)


def main() -> None:
    """Print the tables that the options ask for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", default=",".join(CASES), help="which, of: " + ", ".join(CASES))
    parser.add_argument("--rounds", type=int, default=7, help="rounds of the comparison at 12 layers")
    parser.add_argument("--layers", default="12,48,192,768", help="depths of the second table; none if empty")
    parser.add_argument("--jax", action="store_true", help="time JAX on these depths too")
    parser.add_argument("--memory", action="store_true", help="measure the peak of Python's memory as well")
    options = parser.parse_args()
    names = options.cases.split(",")
    print(f"12 layers, {options.rounds} rounds: rematc / jax {jax.__version__}, and the medians of both")
    for name in names:
        compare(name, 12, options.rounds)
    depths = [int(depth) for depth in options.layers.split(",") if depth]
    if depths:
        peak = f"{'peak MiB':>10}" if options.memory else ""
        print(f"{'':28}{'layers':>8}{'seconds':>10}{'per doubling':>14}{peak}")
        for name in names:
            scale(name, depths, options.jax, options.memory)


if __name__ == "__main__":
    main()
