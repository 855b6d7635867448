"""Programs on eight devices: what one of them holds, beside JAX by hand, and what budgets take. Nothing runs.

    python benchmarks/meshes.py [--target cpu|h100:8|v5e:2x4|...] [--layouts data,manual,...] [--models plain,scan]

A decoder of six layers: width 512, 8 heads, hidden 2048, 256 tokens, vocabulary 8192, float32; eight sequences on each
device, or in all of `tensor`:

    data      the batch is spread, weights are whole on each device
    sharded   the batch is spread, and so are the weights, which are gathered for products
    tensor    weights are spread by heads and hidden units, activations between blocks are whole
    manual    as sharded, in one `jax.shard_map` around all of it, whose layers gather their weights themselves
    typed     as sharded, over axes of type Explicit, as `jax.make_mesh` makes them: layers gather weights by
              `jax.reshard`
    in-typed  as manual, over axes of type Explicit

The first table has temporary MiB of one device, and how often it runs a collective and how many MiB these give: JAX,
with `jax.checkpoint` around each layer by hand, before rematc with the policy on the whole. The second one has budgets,
in percent of what rematc takes without any: MiB, plans compiled, and the time that the plan adds by the model; beside
it that of one device with an eighth of the batch, where that is the same program.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import operator
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding

import rematc

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a script, only this folder is on the path

from benchmarks.architectures import unwrapped
from benchmarks.language import executed_sum
from benchmarks.memory import JAX_POLICIES, KEPT
from rematc.lowering.hlo.module import Instruction
from rematc.lowering.hlo.parser import parse_hlo
from rematc.lowering.target import Target

COUNT = 8
LAYERS, WIDTH, HEADS, HIDDEN, TOKENS, VOCABULARY = 6, 512, 8, 2048, 256, 8192
#: Layouts over axes of type Explicit.
TYPED = ("typed", "in-typed")
POLICIES = ("none", "nothing", "dots")
BUDGETS = ("35%", "60%", "80%")
MEBIBYTE = 2**20
_spec: Any = jax.sharding.PartitionSpec  # which JAX leaves without annotations
_struct: Any = jax.ShapeDtypeStruct
_reshard: Any = jax.reshard
#: Of one in two parts the second, which gives what the whole does: the first gives its operands, too.
_COLLECTIVES = re.compile(r"(all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(-done)?")
_ARRAYS = re.compile(r"[a-z]+(\d*)[a-z0-9]*\[([\d,]*)\]")
Wrap = Callable[[Any], Any]


def norm(x: Any) -> Any:
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)


def block(x: Any, weights: Any) -> Any:
    """Causal attention, then a perceptron. x: [batch, tokens, width]."""
    queries, keys, values = [(norm(x) @ weights[name]).reshape(*x.shape[:2], HEADS, -1) for name in "qkv"]
    scores = jnp.einsum("bthd,bshd->bhts", queries, keys) / 8
    scores = jnp.where(jnp.tril(jnp.ones((TOKENS, TOKENS), bool)), scores, -1e9)
    mixed = jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores), values)
    x = x + mixed.reshape(x.shape) @ weights["out"]
    return x + jax.nn.gelu(norm(x) @ weights["up"]) @ weights["down"]


def loss_of(is_scanned: bool, wrap: Wrap, gather: Wrap = unwrapped, embed: Any = operator.getitem) -> Any:
    """The cross-entropy; `wrap` is around each layer, which reads weights by `gather`; `embed` reads the embedding."""
    layer = wrap(lambda x, weights: block(x, jax.tree.map(gather, weights)))

    def loss(params: Any, tokens: Any, labels: Any) -> Any:
        x = embed(params["embedding"], tokens)
        if is_scanned:
            x, _ = jax.lax.scan(lambda x, weights: (layer(x, weights), None), x, params["layers"])
        else:
            for weights in params["layers"]:
                x = layer(x, weights)
        logs = jax.nn.log_softmax(norm(x) @ gather(params["head"]))
        return -jnp.take_along_axis(logs, labels[..., None], -1).mean()

    return loss


def placed_loss(layout: str, is_scanned: bool, wrap: Wrap, given: Sequence[Any], mesh: Mesh | None) -> Any:
    """The loss of a layout, of arguments of these types."""
    if mesh is None or layout not in ("manual", *TYPED):
        return loss_of(is_scanned, wrap)
    if layout == "typed":

        def embed(table: Any, tokens: Any) -> Any:
            return table.at[tokens].get(out_sharding=_spec("x"))

        return loss_of(is_scanned, wrap, lambda weight: _reshard(weight, _spec()), embed)

    def gather(weight: Any) -> Any:
        return jax.lax.all_gather(weight, "x", tiled=True)

    def own(*parts: Any) -> Any:
        return jax.lax.pmean(loss_of(is_scanned, wrap, gather)(*parts), "x")

    specs = jax.tree.map(lambda one: one.sharding.spec, tuple(given))
    return jax.shard_map(own, mesh=mesh, in_specs=specs, out_specs=_spec())


def shapes(layout: str, is_scanned: bool, mesh: Mesh | None) -> tuple[Any, ...]:
    """Of the arguments; without a mesh those of one device, with an eighth of the batch."""
    batch = 8 if mesh is None or layout == "tensor" else 8 * COUNT
    columns, rows = {
        "data": (_spec(), _spec()),
        "sharded": (_spec("x"), _spec("x")),
        "tensor": (_spec(None, "x"), _spec("x")),
        "manual": (_spec("x"), _spec("x")),
        "typed": (_spec("x"), _spec("x")),
        "in-typed": (_spec("x"), _spec("x")),
    }[layout]

    def of(shape: tuple[int, ...], spec: Any, dtype: Any = jnp.float32) -> Any:
        return _struct(shape, dtype, sharding=None if mesh is None else NamedSharding(mesh, spec))

    def stacked(shape: tuple[int, ...], spec: Any) -> Any:
        return of((LAYERS, *shape), _spec(None, *spec)) if is_scanned else of(shape, spec)

    layer = {name: stacked((WIDTH, WIDTH), columns) for name in "qkv"}
    layer |= {"out": stacked((WIDTH, WIDTH), rows)}
    layer |= {"up": stacked((WIDTH, HIDDEN), columns), "down": stacked((HIDDEN, WIDTH), rows)}
    params = {
        "embedding": of((VOCABULARY, WIDTH), _spec()),
        "layers": layer if is_scanned else [layer] * LAYERS,
        "head": of((WIDTH, VOCABULARY), columns),
    }
    text = of((batch, TOKENS), _spec() if layout == "tensor" else _spec("x"), jnp.int32)
    return params, text, text


def collectives(text: str) -> tuple[int, int]:
    """How often an optimized module runs a collective, and the bytes that these give."""
    module = parse_hlo(text)

    def times(instruction: Instruction) -> int:
        return 1 if _COLLECTIVES.fullmatch(instruction.opcode) else 0

    return executed_sum(module, times), executed_sum(module, lambda one: times(one) * _bytes(one.shape))


def refusal(error: rematc.CompileError) -> str:
    """The least memory that was reached for a budget that no plan meets."""
    smallest = re.search(r"reached is ([\d.]+ \w+)", error.message)
    return f"refused: {smallest[1] if smallest else error.message}"


def _bytes(shape: str) -> int:
    """Those of the arrays that a shape's text names."""
    found = _ARRAYS.findall(shape)
    return sum(int(bits or 8) * math.prod(map(int, filter(None, sizes.split(",")))) // 8 for bits, sizes in found)


def _cells(temporary: int, text: str) -> str:
    times, given = collectives(text)
    return f"{temporary / MEBIBYTE:.0f} | {times} / {given / MEBIBYTE:.0f}"


def compare(layout: str, is_scanned: bool, mesh: Mesh, platform: str) -> None:
    """Rows of the first table."""
    given = shapes(layout, is_scanned, mesh)
    for policy in POLICIES:
        kept = JAX_POLICIES.get(policy)

        def wrap(layer: Any, kept: Any = kept) -> Any:
            return layer if kept is None else jax.checkpoint(layer, policy=kept, prevent_cse=not is_scanned)

        lowered = jax.jit(jax.value_and_grad(placed_loss(layout, is_scanned, wrap, given, mesh))).lower(*given)
        has_option = kept is not None and not Target.of(platform).barriers_hold
        by_hand = lowered.compile(compiler_options=KEPT if has_option else None)
        plain = rematc.from_jax(placed_loss(layout, is_scanned, unwrapped, given, mesh))
        step = rematc.value_and_grad(plain, policy=None if policy == "none" else policy)
        ours = rematc.compile(step, *given)
        memory: Any = by_hand.memory_analysis()
        cells = [
            _cells(memory.temp_size_in_bytes, by_hand.as_text() or ""),
            _cells(ours.memory().temp_bytes, ours.hlo_optimized()),
        ]
        print(f"| {layout}{', scan' if is_scanned else ''} | {policy} | {' | '.join(cells)} |", flush=True)


def budgets(layout: str, is_scanned: bool, mesh: Mesh) -> None:
    """Rows of the second table."""
    for budget in BUDGETS:
        cells = []
        for each in (mesh, *([] if layout == "tensor" else [None])):
            given = shapes(layout, is_scanned, each)
            step = rematc.value_and_grad(rematc.from_jax(placed_loss(layout, is_scanned, unwrapped, given, each)))
            try:
                made = rematc.compile(step, *given, budget=budget)
            except rematc.CompileError as error:
                cells += [refusal(error), "", ""]
                continue
            report = made.lowered.budget
            assert report is not None and report.measured is not None
            without = report.plan.time_without
            cells.append(f"{report.measured / MEBIBYTE:.0f} of {report.budget / MEBIBYTE:.0f}")
            cells += [str(report.compilations), f"{report.plan.time / without - 1:.1%}"]
        cells += [""] * (6 - len(cells))
        print(f"| {layout}{', scan' if is_scanned else ''} | {budget} | {' | '.join(cells)} |", flush=True)


@contextlib.contextmanager
def mesh_of(layout: str, devices: Any) -> Iterator[Mesh]:
    """The mesh of a layout; one over which types say how arrays lie is JAX's current one meanwhile."""
    kind = AxisType.Explicit if layout in TYPED else AxisType.Auto
    with current(Mesh(devices, ("x",), axis_types=(kind,))) as mesh:
        yield mesh


@contextlib.contextmanager
def current(mesh: Mesh) -> Iterator[Mesh]:
    """A mesh over which types say how arrays lie is JAX's current one, as users have it; others are passed on."""
    set_mesh: Any = jax.set_mesh
    with set_mesh(mesh) if AxisType.Explicit in mesh.axis_types else contextlib.nullcontext():
        yield mesh


def main() -> None:
    """Compile and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", default="cpu", help="eight devices: cpu, or of rematc.targets, as h100:8")
    parser.add_argument("--layouts", default="data,sharded,tensor,manual,typed,in-typed")
    parser.add_argument("--models", default="plain,scan")
    options = parser.parse_args()
    config: Any = jax.config
    config.update("jax_platforms", "cpu")
    config.update("jax_num_cpu_devices", COUNT)
    devices = np.array(rematc.targets.devices(options.target))
    cases = [(layout, model == "scan") for layout in options.layouts.split(",") for model in options.models.split(",")]
    print(f"jax {jax.__version__}, compiled for {options.target}\n")
    print("| layout | policy | MiB: baseline | collectives / MiB | MiB: rematc | collectives / MiB |")
    print("|---|---|--:|--:|--:|--:|", flush=True)
    for layout, is_scanned in cases:
        with mesh_of(layout, devices) as mesh:
            compare(layout, is_scanned, mesh, devices.flat[0].platform)
    print("\n| layout | budget | MiB | compiled | time | one device: MiB | compiled | time |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|", flush=True)
    for layout, is_scanned in cases:
        with mesh_of(layout, devices) as mesh:
            budgets(layout, is_scanned, mesh)


if __name__ == "__main__":
    main()
