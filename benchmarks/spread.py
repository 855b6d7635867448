"""Programs that run on eight devices, spread in two dozen ways: what one device holds, and whether values are right.

    python benchmarks/spread.py [--programs ring,zero] [--kinds Explicit,Auto,Mixed] [--target cpu|h100:8|v5e:2x4]
        [--policies none,nothing,dots] [--budgets 60,40] [--values] [--second]

The programs are those of `benchmarks/parallel`, on meshes whose axes have each of JAX's types that they can have. For
each the table has temporary MiB of one device, and MiB that collectives give: JAX with `jax.checkpoint` around each
layer by hand; rematc with the policy on the whole, as a program of its own (`rematc.compile` of `rematc.from_jax`), and
what was predicted of that before XLA saw it, over what it takes; and inside `jax.jit` (`rematc.jax.value_and_grad`). In
brackets is what `check()` says where XLA did not keep what is to be computed again. Rows with percent are of the whole
step as JAX differentiates it, under `rematc.jax.jit(budget=)`, in percent of what `jax.jit` takes.

`--values` runs small programs in double precision on eight CPU devices, and gives the largest difference of values and
gradients from JAX's, beside the largest of these; `--second` the same of Hessian-vector products, by `rematc.grad` of
`rematc.grad`, by `rematc.jax.grad` twice, and by `jax.jvp` of it. Rows with percent are of `rematc.jax.jit(budget=)`.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import rematc
import rematc.jax

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a script, only this folder is on the path

from benchmarks.architectures import unwrapped
from benchmarks.memory import JAX_POLICIES, KEPT
from benchmarks.meshes import COUNT, MEBIBYTE, collectives, current
from benchmarks.parallel import PROGRAMS
from benchmarks.parallel.program import REAL, SMALL, Built
from benchmarks.second import along, forward
from rematc.lowering.target import Target

_MESSAGE = 160


def _cell(temporary: int, text: str) -> str:
    return f"{temporary / MEBIBYTE:.0f} / {collectives(text)[1] / MEBIBYTE:.0f}"


def _memory(compiled: Any) -> str:
    memory: Any = compiled.memory_analysis()
    return _cell(memory.temp_size_in_bytes, compiled.as_text() or "")


def _or_error(cell: Callable[[], str]) -> str:
    """A cell, or the error that it ends with: a table of many programs goes on."""
    try:
        return cell()
    except Exception as error:  # anything that a program may meet is what the table is for
        text = " ".join(str(error).split())
        smallest = re.search(r"reached is ([\d.]+ \w+)", text)
        return f"refused: {smallest[1]}" if smallest else f"**{type(error).__name__}**: {text[:_MESSAGE]}"


def _by_hand(built: Built, policy: str, platform: str) -> str:
    kept = JAX_POLICIES.get(policy)
    wrap = unwrapped if kept is None else lambda layer: jax.checkpoint(layer, policy=kept)
    lowered = jax.jit(jax.value_and_grad(built.loss_of(wrap))).lower(*built.given)
    has_option = kept is not None and not Target.of(platform).barriers_hold
    return _memory(lowered.compile(compiler_options=KEPT if has_option else None))


def _of_its_own(built: Built, policy: str | None) -> str:
    step = rematc.value_and_grad(rematc.from_jax(built.loss_of(unwrapped)), policy=policy)
    compiled = rematc.compile(step, *built.given)
    taken, check = compiled.memory().temp_bytes, compiled.check()
    said = f" ({check.in_short})" if check.faults else ""
    predicted = compiled.lowered.predicted_peak() / taken
    return f"{_cell(taken, compiled.hlo_optimized())}{said} | {predicted:.2f}"


def _inside_jax(built: Built, policy: str | None) -> str:
    step = rematc.jax.value_and_grad(built.loss_of(unwrapped), policy=policy)
    return _memory(jax.jit(step).lower(*built.given).compile())


def _budgeted(built: Built, percent: str) -> str:
    step = rematc.jax.jit(jax.value_and_grad(built.loss_of(unwrapped)), budget=f"{percent}%")
    return _memory(step.lower(*built.given).compile())


def rows_of_memory(name: str, built: Built, policies: Sequence[str], budgets: Sequence[str], platform: str) -> None:
    """Print a program's rows of the first table."""
    for policy in policies:
        own = None if policy == "none" else policy
        cells = [
            _or_error(lambda policy=policy: _by_hand(built, policy, platform)),  # type: ignore[misc]  # called at once
            _or_error(lambda own=own: _of_its_own(built, own)),  # type: ignore[misc]
            _or_error(lambda own=own: _inside_jax(built, own)),  # type: ignore[misc]
        ]
        print(f"| {name} | {policy} | {' | '.join(cells)} |", flush=True)
    if budgets:
        plain = _or_error(
            lambda: _memory(jax.jit(jax.value_and_grad(built.loss_of(unwrapped))).lower(*built.given).compile())
        )
    for percent in budgets:
        found = _or_error(lambda percent=percent: _budgeted(built, percent))  # type: ignore[misc]
        print(f"| {name} | {percent} % | {plain} | {found} | | |", flush=True)


# -- values -----------------------------------------------------------------------------------------------------------


def _arrays(given: Any, seed: int) -> Any:
    """Drawn in double precision, and spread as these."""
    rng = np.random.default_rng(seed)

    def drawn(one: Any) -> Any:
        is_number = jnp.issubdtype(one.dtype, jnp.floating)
        array = rng.standard_normal(one.shape) / 4 if is_number else rng.integers(0, 8, one.shape).astype(one.dtype)
        return jax.device_put(array, one.sharding)

    return jax.tree.map(drawn, given)


def _difference(found: Any, expected: Any) -> str:
    """The largest of a tree, relative to the largest value, of those of one leaf."""
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    worst = 0.0
    for one, other in pairs:
        if one.shape != other.shape or one.dtype != other.dtype:
            return f"**{one.dtype}{one.shape} for {other.dtype}{other.shape}**"
        scale = float(np.max(np.abs(other))) or 1.0
        worst = max(worst, float(np.max(np.abs(np.asarray(one) - np.asarray(other)))) / scale)
    return f"{worst:.0e}" if worst < 1e-9 else f"**{worst:.0e}**"


def _second_of_its_own(loss: Any, weights: Any, inputs: Any, direction: Any, policy: str | None) -> Any:
    """By `rematc.grad` of `rematc.grad`."""
    plain = rematc.from_jax(loss)

    def slope(weights: Any, inputs: Any, direction: Any) -> Any:
        found = rematc.grad(plain, policy=policy)(weights, inputs)
        pairs = zip(jax.tree.leaves(found), jax.tree.leaves(direction), strict=True)
        return sum((one * other).sum() for one, other in pairs)

    return rematc.compile(rematc.grad(slope, policy=policy), weights, inputs, direction)(weights, inputs, direction)


def rows_of_values(
    name: str, built: Built, policies: Sequence[str], budgets: Sequence[str], *, has_second: bool
) -> None:
    """Print a program's rows of the second table."""
    weights, inputs = _arrays(built.given[0], 0), _arrays(built.given[1], 1)
    direction = _arrays(built.given[0], 2)
    loss = built.loss_of(unwrapped)
    expected = jax.jit(jax.value_and_grad(loss))(weights, inputs)
    second = (
        jax.jit(lambda w: forward(lambda w: jax.grad(loss)(w, inputs), w, direction))(weights) if has_second else None
    )
    for policy in policies:
        own = None if policy == "none" else policy

        def first_of_its_own(own: str | None = own) -> str:
            step = rematc.value_and_grad(rematc.from_jax(loss), policy=own)
            return _difference(rematc.compile(step, weights, inputs)(weights, inputs), expected)

        def first_inside(own: str | None = own) -> str:
            return _difference(jax.jit(rematc.jax.value_and_grad(loss, policy=own))(weights, inputs), expected)

        def second_of_its_own(own: str | None = own) -> str:
            return _difference(_second_of_its_own(loss, weights, inputs, direction, own), second)

        def second_twice(own: str | None = own) -> str:
            gradient = rematc.jax.grad(loss, policy=own)
            slope = along(lambda w: gradient(w, inputs), direction)
            return _difference(jax.jit(rematc.jax.grad(slope, policy=own))(weights), second)

        def second_forward(own: str | None = own) -> str:
            gradient = rematc.jax.grad(loss, policy=own)
            product = jax.jit(lambda w: forward(lambda w: gradient(w, inputs), w, direction))
            return _difference(product(weights), second)

        ways = [first_of_its_own, first_inside]
        ways += [second_of_its_own, second_twice, second_forward] if has_second else []
        print(f"| {name} | {policy} | {' | '.join(map(_or_error, ways))} |", flush=True)
    for percent in budgets:
        step = rematc.jax.jit(jax.value_and_grad(loss), budget=f"{percent}%")
        found = _or_error(lambda step=step: _difference(step(weights, inputs), expected))  # type: ignore[misc]
        print(f"| {name} | {percent} % | | {found} |{' |' * 3 * has_second}", flush=True)


def main() -> None:
    """Compile or run, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--programs", default=",".join(name.replace(", ", "+") for name in PROGRAMS), help="a scan as fsdp+scan"
    )
    parser.add_argument("--kinds", default="Explicit,Auto,Mixed", help="types of the meshes' axes")
    parser.add_argument("--target", default="cpu", help="eight devices: cpu, or of rematc.targets, as h100:8")
    parser.add_argument("--policies", default="none,nothing,dots")
    parser.add_argument("--budgets", default="", help="percent, for steps as JAX differentiates them")
    parser.add_argument("--values", action="store_true", help="run small ones and compare with JAX")
    parser.add_argument("--second", action="store_true", help="and Hessian-vector products")
    options = parser.parse_args()
    config: Any = jax.config
    config.update("jax_platforms", "cpu")
    config.update("jax_num_cpu_devices", COUNT)
    has_values = options.values or options.second
    config.update("jax_enable_x64", has_values)
    devices = np.array(rematc.targets.devices(options.target))
    policies, budgets = [list(filter(None, text.split(","))) for text in (options.policies, options.budgets)]
    print(f"jax {jax.__version__}, compiled for {options.target}\n")
    if has_values:
        ways = ["rematc.value_and_grad", "rematc.jax.value_and_grad"]
        ways += ["rematc.grad twice", "rematc.jax.grad twice", "jax.jvp of rematc.jax.grad"] if options.second else []
        print(f"| program | policy | {' | '.join(ways)} |\n|---|---|{'--:|' * len(ways)}", flush=True)
    else:
        print(
            "| program | policy | by hand | of its own | predicted | inside jax.jit |\n|---|---|--:|--:|--:|--:|",
            flush=True,
        )
    for text in options.programs.split(","):
        program = PROGRAMS[text.replace("+", ", ")]
        for kind in options.kinds.split(","):
            if kind not in program.kinds:
                continue
            name = f"{program.name}, {kind}"
            with current(program.mesh(devices, kind)) as mesh:
                if has_values:
                    built = program.build(mesh, SMALL)
                    rows_of_values(name, built, policies, budgets, has_second=options.second)
                else:
                    built = program.build(mesh, REAL)
                    rows_of_memory(name, built, policies, budgets, devices.flat[0].platform)


if __name__ == "__main__":
    main()
