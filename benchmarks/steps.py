"""Whole training steps that JAX differentiates, under a budget, beside the same losses under a policy.

    python benchmarks/steps.py [--only chain,transformer] [--policies nothing,dots]
    python benchmarks/steps.py --written [--only maml,epochs] [--budgets 60,40]

The models of benchmarks/memory.py. A step is `jax.value_and_grad` of the loss and Adam, with its state donated,
compiled by `rematc.jax.jit`; its budget is what XLA takes for the loss under a policy of `rematc.value_and_grad`.
Nothing is run.

    jax, policy, budget   MiB of temporary memory as XLA says: the step by `jax.jit`, the loss under the policy, and
                          the step under `rematc.jax.jit` with so much as its budget, or the least that was reached
    again                 FLOPs of what is computed again over all of the loss, or the step, without that
    compiled, s           how many plans were compiled, and the seconds that planning and compiling took

With `--written` the steps are those of benchmarks/training_steps.py, as users write them, for budgets in percent of
what `jax.jit` takes. They run three times:

    differs               the largest difference from `jax.jit`'s results and values, of the largest of an array
    FLOP                  those that XLA counts, over those of `jax.jit`'s program
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import rematc
import rematc.jax

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a script, only this folder is on the path

from benchmarks.architectures import MODELS, ON_REQUEST, unwrapped
from benchmarks.architectures.library import JAX
from benchmarks.training_steps import STEPS

MIB = 2**20


def adam_step(loss: Any) -> Any:
    """A step of Adam: of (parameters, first moments, second moments) and the rest, to the new ones and the value."""

    def train_step(state: Any, *rest: Any) -> Any:
        params, first, second = state
        value, gradients = jax.value_and_grad(loss)(params, *rest)
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradients)
        params = jax.tree.map(lambda p, m, v: p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), params, first, second)
        return (params, first, second), value

    return train_step


def _flops(lowered: Any) -> int:
    return sum(eqn.flops for eqn in lowered.graph.equations)


def measure(name: str, policies: list[str]) -> None:
    """Print a row for each policy of a model."""
    loss = MODELS[name].build(JAX, unwrapped, unwrapped)
    struct: Any = jax.ShapeDtypeStruct
    params, *rest = jax.tree.map(lambda leaf: struct(leaf.shape, leaf.dtype), MODELS[name].arguments())
    step, arguments = adam_step(loss), ((params, params, params), *rest)
    plain = jax.jit(step, donate_argnums=0).lower(*arguments).compile().memory_analysis()
    imported = rematc.from_jax(loss)
    whole = _flops(rematc.lower(rematc.value_and_grad(imported), params, *rest))
    for policy in policies:
        under = rematc.compile(rematc.value_and_grad(imported, policy=policy), params, *rest)
        budget, again = under.memory().temp_bytes, _flops(under.lowered) / whole - 1
        start, head = time.perf_counter(), f"| {name} | {policy} | {plain.temp_size_in_bytes / MIB:.0f}"
        head += f" | {budget / MIB:.0f} | {again:.1%}"
        try:
            jitted: Any = rematc.jax.jit(step, budget=budget, donate_argnums=0)
            found = jitted.report(*arguments).budget
        except rematc.CompileError as error:
            print(f"{head} | {str(error).splitlines()[0].partition('; ')[2]} | | | |", flush=True)
            continue
        seconds = time.perf_counter() - start
        extra = found.plan.extra_flops / found.plan.flops
        print(f"{head} | {found.measured / MIB:.0f} | {extra:.1%} | {found.compilations} | {seconds:.0f} |", flush=True)


def _arrays(tree: Any) -> list[Any]:
    """The leaves in float64, keys as their words."""
    leaves = jax.tree.leaves(tree)
    is_key = [jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) for leaf in leaves]
    plain = [jax.random.key_data(leaf) if one else leaf for leaf, one in zip(leaves, is_key, strict=True)]
    return [np.asarray(leaf).astype(np.float64) for leaf in plain]


def _three_times(step: Any, state: Any, data: Any) -> list[Any]:
    """The last state, and what is returned beside each."""
    state = jax.jit(lambda tree: jax.tree.map(jnp.copy, tree))(state)  # the step takes its memory
    values = []
    for _ in range(3):
        state, value = step(state, *data)
        values += _arrays(value)
    return [*_arrays(state), *values]


def _difference(found: list[Any], expected: list[Any]) -> float:
    pairs = zip(found, expected, strict=True)
    return float(max(np.max(np.abs(a - b)) / max(np.max(np.abs(b)), 1e-30) for a, b in pairs))


def measure_written(name: str, budgets: list[str]) -> None:
    """Print a row for each budget of a step."""
    step, state, data = STEPS[name]()
    reference: Any = jax.jit(step, donate_argnums=0)
    plain = reference.lower(state, *data).compile()
    whole, flops = plain.memory_analysis().temp_size_in_bytes, plain.cost_analysis()["flops"]
    expected = _three_times(reference, state, data)
    for percent in budgets:
        budget, start = whole * int(percent) // 100, time.perf_counter()
        head = f"| {name} | {whole / MIB:.1f} | {budget / MIB:.1f}"
        try:
            jitted: Any = rematc.jax.jit(step, budget=budget, donate_argnums=0)
            found = jitted.report(state, *data).budget
        except rematc.CompileError as error:
            reached = str(error).splitlines()[0].partition("was reached is ")[2].partition(",")[0]
            print(f"{head} | refused: {reached or error} | | | | |", flush=True)
            continue
        seconds = time.perf_counter() - start
        compiled = jitted.lower(state, *data).compile()
        extra = compiled.cost_analysis()["flops"] / flops - 1
        differs = _difference(_three_times(jitted, state, data), expected)
        taken = compiled.memory_analysis().temp_size_in_bytes / MIB
        print(
            f"{head} | {taken:.1f} | {extra:+.0%} | {differs:.0e} | {found.compilations} | {seconds:.0f} |", flush=True
        )


def _heading(columns: tuple[str, ...], words: int) -> str:
    return f"| {' | '.join(columns)} |\n|{'---|' * words}{'--:|' * (len(columns) - words)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--only", help=f"models, separated by commas, of: {', '.join(MODELS)}; or steps: {', '.join(STEPS)}"
    )
    parser.add_argument("--policies", default="nothing,dots", help="policies, separated by commas")
    parser.add_argument("--written", action="store_true", help="steps of benchmarks/training_steps.py")
    parser.add_argument("--budgets", default="60,40", help="theirs, in percent, separated by commas")
    options = parser.parse_args()
    only = options.only.split(",") if options.only else []
    if options.written:
        print(_heading(("step", "jax", "budget", "taken", "FLOP", "differs", "compiled", "s"), 1))
        for name in only or STEPS:
            measure_written(name, options.budgets.split(","))
        return
    print(_heading(("model", "policy", "jax", "policy", "again", "budget", "again", "compiled", "s"), 2))
    for name in only or [name for name in MODELS if name not in ON_REQUEST]:
        measure(name, options.policies.split(","))


if __name__ == "__main__":
    main()
