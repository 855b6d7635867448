"""Slices of a language model's head and attention beside both sliced by hand: temporary memory of value and gradient.

    python benchmarks/slices.py [--slices N] [--target cpu|h100|v5e|...] [--policies nothing,dots] [--auto]
    python benchmarks/slices.py --batch 1 --tokens 8192 --vocabulary 32768 --policies nothing
    python benchmarks/slices.py --scan --layers 12 --policies none,nothing,dots --slices 8 [--target h100]
    python benchmarks/slices.py --step 40%,20%,10%
    python benchmarks/slices.py --step 40%,20%,10% --target h100:8 --batch 64 [--weights sharded]
    python benchmarks/slices.py --curve [--models all]

A GPT-2 of 4 layers: width 768, 12 heads, sequence 1024, batch 8, vocabulary 50,304, tied, bfloat16 compute, float32
parameters. By hand each layer is in `jax.checkpoint`, then the head in `jax.checkpoint` of a scan over slices of the
tokens, then attention in `jax.checkpoint` of a map over blocks of queries, too. Nothing runs: it is what XLA says of
the compiled programs, for the targets of rematc.targets ahead of time. `--auto` has a column more, of as many slices as
rematc finds best. After each figure stand the TFLOP of its products, as often as they run. `--step` takes a whole
training step instead, with Adam's moments and donated buffers, under `rematc.jax.jit` with these budgets and
slices="auto"; where the target is several devices, the batch is spread over them, and with `--weights sharded` so are
parameters and moments, along their longest dimension. Memory is that of one device then, and beside the TFLOP stand the
MiB that collectives give. `--scan` has the layers in a scan, and their weights in stacks.
"""

from __future__ import annotations

import argparse
import functools
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

sys.path.insert(0, str(Path(__file__).parents[1]))
import rematc
import rematc.jax
from benchmarks.architectures import MODELS, ON_REQUEST, REMATC, unwrapped
from benchmarks.language import executed_work
from benchmarks.meshes import collectives, refusal

MEBIBYTE = 2**20
Wrap = Callable[[Any], Any]
_struct: Any = jax.ShapeDtypeStruct  # whose constructor JAX leaves untyped
_spec: Any = jax.sharding.PartitionSpec


@dataclass(frozen=True, slots=True)
class Model:
    """A GPT-2 of some sizes, as a user writes it, and by hand in slices."""

    batch: int
    tokens: int
    width: int
    heads: int
    layers: int
    vocabulary: int
    is_scanned: bool = False

    def shapes(self) -> tuple[Any, Any]:
        """Of the parameters, and of the tokens."""
        width = self.width

        def of(*sizes: int) -> Any:
            return _struct(sizes, jnp.float32)

        layer = {
            "first": of(width),
            "attention": of(width, 3 * width),
            "out": of(width, width),
            "second": of(width),
            "up": of(width, 4 * width),
            "down": of(4 * width, width),
        }
        whole = {"embedding": of(self.vocabulary, width), "positions": of(self.tokens, width), "last": of(width)}
        stacks = {name: of(self.layers, *one.shape) for name, one in layer.items()}
        layers = stacks if self.is_scanned else [layer] * self.layers
        return {**whole, "layers": layers}, _struct((self.batch, self.tokens + 1), jnp.int32)

    def attend(self, queries: Any, keys: Any, values: Any, rows: Any) -> Any:
        """Causal attention. queries: [batch, rows, heads, width of a head]; keys and values: of all tokens."""
        scores = jnp.einsum("bthe,bshe->bhts", queries, keys).astype(jnp.float32)
        scores = scores / math.sqrt(self.width // self.heads)
        scores = jnp.where(rows[:, None] >= jnp.arange(self.tokens), scores, -1e9)
        weights = jax.nn.softmax(scores, -1).astype(queries.dtype)
        return jnp.einsum("bhts,bshe->bthe", weights, values)

    def block(self, layer: Any, x: Any, blocks: int = 1) -> Any:
        """Attention, in blocks of queries if there are several, then a perceptron. x: [batch, tokens, width]."""
        mixed = norm(x, layer["first"]) @ layer["attention"].astype(x.dtype)
        shape = self.batch, self.tokens, self.heads, -1
        queries, keys, values = [y.reshape(shape) for y in jnp.split(mixed, 3, -1)]
        rows = jnp.arange(self.tokens)
        if blocks == 1:
            seen = self.attend(queries, keys, values, rows)
        else:
            cut = queries.reshape(self.batch, blocks, -1, *queries.shape[2:]).swapaxes(0, 1)
            one = jax.checkpoint(lambda given: self.attend(given[0], keys, values, given[1]))
            seen = jax.lax.map(one, (cut, rows.reshape(blocks, -1))).swapaxes(0, 1)
        x = x + seen.reshape(x.shape) @ layer["out"].astype(x.dtype)
        inner = jax.nn.gelu(norm(x, layer["second"]) @ layer["up"].astype(x.dtype))
        return x + inner @ layer["down"].astype(x.dtype)

    def hidden(self, params: Any, tokens: Any, wrap: Wrap, blocks: int = 1) -> Any:
        x = (params["embedding"][tokens[:, :-1]] + params["positions"]).astype(jnp.bfloat16)
        block = wrap(functools.partial(self.block, blocks=blocks))
        if self.is_scanned:
            x = jax.lax.scan(lambda x, layer: (block(layer, x), None), x, params["layers"])[0]
        else:
            for layer in params["layers"]:
                x = block(layer, x)
        return norm(x, params["last"])

    def loss(self, params: Any, tokens: Any, wrap: Wrap = lambda function: function) -> Any:
        """As a user writes it."""
        return cross_entropy(params["embedding"], self.hidden(params, tokens, wrap), tokens[:, 1:]).mean()

    def loss_by_hand(self, params: Any, tokens: Any, wrap: Wrap, count: int, blocks: int = 1) -> Any:
        """The head in so many slices of the tokens, attention in so many blocks of queries."""
        x, labels = self.hidden(params, tokens, wrap, blocks), tokens[:, 1:]
        cut = self.batch, count, -1
        slices = x.reshape(*cut, self.width).swapaxes(0, 1), labels.reshape(cut).swapaxes(0, 1)

        @jax.checkpoint
        def step(total: Any, one: Any) -> Any:
            return total + cross_entropy(params["embedding"], *one).sum(), None

        return jax.lax.scan(step, jnp.zeros(()), slices)[0] / labels.size

    def step(self, state: Any, tokens: Any, wrap: Wrap = lambda function: function) -> Any:
        """One of Adam, as a user writes it. state: parameters, and two moments of each."""
        params, first, second = state
        value, slopes = jax.value_and_grad(functools.partial(self.loss, wrap=wrap))(params, tokens)
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, slopes)
        second = jax.tree.map(lambda m, g: 0.999 * m + 0.001 * g * g, second, slopes)
        params = jax.tree.map(lambda w, m, v: w - 1e-3 * m / (jnp.sqrt(v) + 1e-8), params, first, second)
        return (params, first, second), value


def norm(x: Any, scale: Any) -> Any:
    wide = x.astype(jnp.float32)
    centered = wide - wide.mean(-1, keepdims=True)
    return (centered * jax.lax.rsqrt((centered**2).mean(-1, keepdims=True) + 1e-5) * (1 + scale)).astype(x.dtype)


def cross_entropy(embedding: Any, x: Any, labels: Any) -> Any:
    logits = (x @ embedding.astype(x.dtype).T).astype(jnp.float32)
    return -jnp.take_along_axis(jax.nn.log_softmax(logits, -1), labels[..., None], -1)


def placed(shapes: Any, target: str) -> Any:
    """Arrays on the first device of a target."""
    on: Any = jax.sharding.SingleDeviceSharding(rematc.targets.devices(target)[0])
    return jax.tree.map(lambda one: _struct(one.shape, one.dtype, sharding=on), shapes)


def spread(state: Any, tokens: Any, target: str, weights: str) -> Any:
    """Rows of tokens over all devices of a target, and `sharded` weights along their longest dimension."""
    mesh = Mesh(np.array(rematc.targets.devices(target)), ("x",))

    def at(one: Any, d: int | None) -> Any:
        spec = _spec(*[None if place != d else "x" for place in range(len(one.shape))])
        return _struct(one.shape, one.dtype, sharding=NamedSharding(mesh, spec))

    def weight(one: Any) -> Any:
        longest = int(np.argmax(one.shape))
        is_cut = weights == "sharded" and one.shape[longest] % mesh.size == 0
        return at(one, longest if is_cut else None)

    return jax.tree.map(weight, state), at(tokens, 0)


def figures(function: Any, given: Any, target: str) -> str:
    """XLA's temporary memory in MiB, and the TFLOP of products where its module can be read.

    Of a budget that no plan meets, the least memory that one takes.

    Args:
        function: `jax.jit`'s or `rematc.jax.jit`'s.
        given: its arguments' shapes, and where they lie.
        target: what to compile for.
    """
    try:
        compiled = function.lower(*given).compile()
    except rematc.CompileError as error:
        return refusal(error)
    memory: Any = compiled.memory_analysis()
    taken = f"{float(memory.temp_size_in_bytes) / MEBIBYTE:,.0f}"
    text = compiled.as_text() or ""
    others = [] if target.startswith("v") else [f"{executed_work(text)[1] / 1e12:.2f}"]  # those of TPUs: convolutions
    if ":" in target:
        others.append(f"{collectives(text)[1] / MEBIBYTE:,.0f}")
    return f"{taken} ({', '.join(others)})" if others else taken


def steps(model: Model, budgets: str, target: str, weights: str) -> None:
    """Print what a training step takes under budgets, beside JAX without and with checkpoints around layers."""
    params, tokens = model.shapes()
    is_pod = ":" in target
    shapes = spread((params,) * 3, tokens, target, weights) if is_pod else placed(((params,) * 3, tokens), target)
    by_hand = functools.partial(model.step, wrap=jax.checkpoint)
    ways = {"JAX": jax.jit(model.step, donate_argnums=0), "layers by hand": jax.jit(by_hand, donate_argnums=0)}
    for budget in budgets.split(","):
        ways[budget] = rematc.jax.jit(model.step, budget=budget, slices="auto", donate_argnums=0)
    print(f"| {' | '.join(ways)} |\n{'|--:' * len(ways)}|")
    print(f"| {' | '.join(figures(function, shapes, target) for function in ways.values())} |")


def curve(model: Model, target: str, points: int = 5) -> None:
    """Print memory against time of plans without slices and with them: those that no other one is better than."""
    step = rematc.value_and_grad(rematc.from_jax(model.loss))
    given: dict[str, Any] = {"points": points, "policies": ("nothing", "dots"), "target": target}
    for slices in ("off", "auto"):
        found = rematc.pareto(step, *model.shapes(), **given, slices=slices)
        print(f"\n| slices={slices} | MiB | extra time | extra TFLOP |\n|---|--:|--:|--:|")
        for point in found.points:
            if not point.is_dominated:
                figures = f"{100 * point.extra_seconds / found.seconds:.1f} % | {point.extra_flops / 1e12:.2f}"
                print(f"| {point.name} | {point.memory / MEBIBYTE:,.0f} | {figures} |", flush=True)


#: At most how much more time, in percent of the program without recomputation, the columns of `curves` have.
TIMES = (5, 20, 50)


def curves(names: str, target: str) -> None:
    """Print for models of benchmarks/memory.py the least memory at so much more time, without slices and with them."""
    head = [f"{time} %: off | auto" for time in TIMES] + ["least: off | auto"]
    print(f"| | none | {' | '.join(head)} |\n|---|{'--:|' * (3 + 2 * len(TIMES))}", flush=True)
    for name in MODELS if names == "all" else names.split(","):
        if name in ON_REQUEST and names == "all":
            continue
        model = MODELS[name]
        step = rematc.value_and_grad(model.build(REMATC, unwrapped, unwrapped))
        given = model.arguments()
        found = [rematc.pareto(step, *given, points=5, target=target, slices=slices) for slices in ("off", "auto")]
        cells = [f"{rematc.compile(step, *given, target=target).memory().temp_bytes / MEBIBYTE:.0f}"]
        for time in (*TIMES, math.inf):
            for one in found:
                most = one.seconds * time / 100
                least = min(
                    (point for point in one.points if point.extra_seconds <= most), key=lambda point: point.memory
                )
                cell = f"{least.memory / MEBIBYTE:.0f}"
                cells.append(cell if time in TIMES else f"{cell} ({100 * least.extra_seconds / one.seconds:.0f} %)")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Temporary memory of heads and attention in slices.")
    parser.add_argument("--slices", type=int, default=16)
    parser.add_argument("--target", default="cpu", help="what to compile for: cpu, or of rematc.targets")
    parser.add_argument("--policies", default="nothing,dots")
    parser.add_argument("--auto", action="store_true", help="and as many slices as are found best")
    for name, default in (("batch", 8), ("tokens", 1024), ("width", 768), ("heads", 12), ("layers", 4)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--step", metavar="BUDGETS", help="a training step within these")
    parser.add_argument("--weights", choices=("whole", "sharded"), default="whole", help="of a step, over the devices")
    parser.add_argument("--curve", action="store_true", help="memory against time, with slices and without")
    parser.add_argument("--models", help="of benchmarks/memory.py, for --curve: names, or all")
    parser.add_argument("--vocabulary", type=int, default=50304)
    parser.add_argument("--scan", action="store_true", help="the layers in a scan")
    options = parser.parse_args()
    count: int = options.slices
    sizes = (options.batch, options.tokens, options.width, options.heads, options.layers, options.vocabulary)
    model = Model(*sizes, is_scanned=options.scan)
    if options.curve and options.models:
        curves(options.models, options.target)
        return
    if options.curve:
        curve(model, options.target)
        return
    if options.step:
        steps(model, options.step, options.target, options.weights)
        return
    dots = functools.partial(jax.checkpoint, policy=jax.checkpoint_policies.checkpoint_dots)
    ways: list[Any] = ["off", count, *(["auto"] if options.auto else [])]
    by_hand = ["JAX, layers by hand", "and the head by hand", "and attention"]
    head = [*by_hand, "rematc", f"slices={count}", *ways[2:]]
    print(f"| policy | {' | '.join(head)} |")
    print(f"|---{'|--:' * len(head)}|")
    wraps: dict[str, Wrap] = {"none": lambda function: function, "nothing": jax.checkpoint, "dots": dots}
    for policy in options.policies.split(","):
        wrap, asked = wraps[policy], None if policy == "none" else policy
        functions = [
            jax.value_and_grad(functools.partial(model.loss, wrap=wrap)),
            jax.value_and_grad(functools.partial(model.loss_by_hand, wrap=wrap, count=count)),
            jax.value_and_grad(functools.partial(model.loss_by_hand, wrap=wrap, count=count, blocks=count)),
            *[rematc.jax.value_and_grad(model.loss, policy=asked, slices=slices) for slices in ways],
        ]
        shapes = placed(model.shapes(), options.target)
        taken = [figures(jax.jit(function), shapes, options.target) for function in functions]
        print(f"| {policy} | {' | '.join(taken)} |", flush=True)


if __name__ == "__main__":
    main()
