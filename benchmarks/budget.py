"""Budgets of temporary memory: what XLA takes for the plan of each, and what that costs.

    python benchmarks/budget.py [--only chain,transformer,gpt2,gpt2-scan-4] [--points 9] [--predicted] [--policies]
        [--json FILE]

Models: the chain of 12 layers and the transformer of 6 layers of benchmarks/architectures, and the GPT-2 of 4 layers
with its vocabulary of benchmarks/language.py, unrolled and in a scan; `value_and_grad`, no policy; compiled from shapes
and never run. Budgets lie evenly from the smallest predicted peak that is found, as XLA takes it, to 90 % of what XLA
takes without a plan.

    MiB         of temporary memory: the budget, the prediction of the plan, and what XLA takes (memory_analysis)
    products    matrix products executed, over those without a plan
    FLOPs, time of what is computed again over all without a plan; predicted
    gap         how far the predicted time is from the optimum at most, in the model
    compiled    how many plans were
    s           of planning and compiling them

With `--predicted` plans are those that `rematc.jax` makes, where XLA is not asked: the models of benchmarks/memory.py,
budgets in percent of what each is expected to take without a plan, what is expected and what XLA takes then, in MiB,
the one over the other, and whether that is within the budget.

With `--policies` budgets are what XLA takes under each named policy, of the models of benchmarks/memory.py and the two
GPT-2s: the MiB under the policy and with the plan, and the FLOPs of what is computed again under the one and the other.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax

import rematc

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a script, only this folder is on the path

from benchmarks.architectures import MODELS as ARCHITECTURES
from benchmarks.architectures import ON_REQUEST, chain, transformer, unwrapped
from benchmarks.architectures.library import JAX
from benchmarks.whole import WHOLE
from rematc.compiler.driver.budget import Planner, compile_within
from rematc.compiler.driver.pareto import POLICIES, candidates
from rematc.lowering.hlo.parser import parse_hlo
from rematc.lowering.hlo.products import executed_products

MIB = 2**20
#: Budgets where plans are made by the prediction, in percent of what it says without one.
PARTS = (30, 45, 60, 75, 90)


def _of_chain() -> tuple[Any, Any]:
    return chain.build(JAX, unwrapped, unwrapped), chain.arguments()


def _of_transformer() -> tuple[Any, Any]:
    return transformer.build(JAX, unwrapped, unwrapped), transformer.arguments(6)


def _of_architecture(name: str) -> tuple[Any, Any]:
    model = ARCHITECTURES[name]
    return model.build(JAX, unwrapped, unwrapped), model.arguments()


def _of_gpt2() -> tuple[Any, Any]:
    return WHOLE["gpt2"].build(unwrapped), WHOLE["gpt2"].shapes()


def _of_gpt2_in_a_loop() -> tuple[Any, Any]:
    return WHOLE["gpt2-scan-4"].build(unwrapped), WHOLE["gpt2-scan-4"].shapes()


MODELS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "chain": _of_chain,
    "transformer": _of_transformer,
    "gpt2": _of_gpt2,
    "gpt2-scan-4": _of_gpt2_in_a_loop,
}


def _products(compiled: Any) -> int:
    return executed_products(parse_hlo(compiled.hlo_optimized())).total.most


def measure(name: str, points: int) -> list[dict[str, Any]]:
    """A row for each budget of a model, printed as it comes."""
    loss, arguments = MODELS[name]()
    shapes = jax.tree_util.tree_map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), arguments)
    lowered = rematc.lower(rematc.value_and_grad(rematc.from_jax(loss)), *shapes)
    without = lowered.compile()
    whole, products = without.memory().temp_bytes, _products(without)
    planner = Planner(lowered)
    plan = planner.smallest
    smallest = planner.lower(plan, 0).compile().memory().temp_bytes
    print(f"| {name} | all kept | {planner.peak / MIB:.0f} | {whole / MIB:.0f} | {products} | | | | | |", flush=True)
    print(f"| {name} | smallest | {plan.peak / MIB:.0f} | {smallest / MIB:.0f} | | | | | | |", flush=True)
    rows = []
    for point in range(points):
        budget = smallest + (whole * 9 // 10 - smallest) * point // max(1, points - 1)
        rows.append(_row(name, lowered, budget, products))
    return rows


def _row(name: str, lowered: Any, budget: int, products: int) -> dict[str, Any]:
    start = time.perf_counter()
    try:
        compiled = compile_within(lowered, rematc.Budget(budget))
    except rematc.CompileError as error:
        print(f"| {name} | {budget / MIB:.0f} | {str(error).splitlines()[0]} | | | | | | | |", flush=True)
        return {"model": name, "budget": budget, "error": str(error)}
    seconds = time.perf_counter() - start
    report = compiled.lowered.budget
    assert report is not None and report.measured is not None
    plan, again = report.plan, _products(compiled) / products
    print(
        f"| {name} | {budget / MIB:.0f} | {plan.peak / MIB:.0f} | {report.measured / MIB:.0f} | {again:.2f} | "
        f"{plan.extra_flops / plan.flops:.1%} | {plan.time / plan.time_without - 1:.1%} | {plan.gap:.1%} | "
        f"{report.compilations} | {seconds:.0f} |",
        flush=True,
    )
    return {"model": name, **report.as_dict(), "products": again, "wall": seconds}


def measure_predicted(name: str, parts: Sequence[int]) -> list[dict[str, Any]]:
    """A row for each budget, in percent of what a model is expected to take without a plan."""
    loss, arguments = _of_architecture(name)
    shapes = jax.tree_util.tree_map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), arguments)
    lowered = rematc.lower(rematc.value_and_grad(rematc.from_jax(loss)), *shapes)
    planner = Planner(lowered)
    rows = []
    for part in parts:
        wanted = planner.wanted(rematc.Budget(f"{part}%"))
        try:
            plan = planner.predicted_within(wanted)
        except rematc.CompileError as error:
            print(f"| {name} | {part} | {str(error).splitlines()[0]} | | | |", flush=True)
            continue
        expected = planner.expected(plan)
        measured = planner.lower(plan, wanted).compile().memory().temp_bytes
        figures = f"{wanted / MIB:.1f} | {expected / MIB:.1f} | {measured / MIB:.1f} | {measured / expected:.2f}"
        print(f"| {name} | {part} | {figures} | {'yes' if measured <= wanted else 'no'} |", flush=True)
        rows.append({"model": name, "budget": wanted, "expected": expected, "measured": measured})
    return rows


def measure_policies(name: str) -> list[dict[str, Any]]:
    """A row for each named policy: what XLA takes and computes again under it, and with a plan for as much memory."""
    loss, arguments = MODELS[name]() if name in MODELS else _of_architecture(name)
    shapes = jax.tree_util.tree_map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), arguments)
    function = rematc.from_jax(loss)
    lowered = rematc.lower(rematc.value_and_grad(function), *shapes)
    under = {policy: rematc.lower(rematc.value_and_grad(function, policy=policy), *shapes) for policy in POLICIES}
    points = {candidate.point.name: candidate.point for candidate in candidates(lowered, under, 2)}
    rows = []
    for policy in [policy for policy in under if policy in points]:
        budget, again = under[policy].compile().memory().temp_bytes, points[policy].extra_flops
        start = time.perf_counter()
        try:
            compiled = compile_within(lowered, rematc.Budget(budget))
        except rematc.CompileError as error:
            print(f"| {name} | {policy} | {budget / MIB:.1f} | {str(error).splitlines()[0]} | | | | |", flush=True)
            rows.append({"model": name, "policy": policy, "budget": budget, "error": str(error)})
            continue
        seconds, report = time.perf_counter() - start, compiled.lowered.budget
        assert report is not None and report.measured is not None
        flops = [f"{part / report.plan.flops:.1%}" for part in (again, report.plan.extra_flops)]
        figures = f"{budget / MIB:.1f} | {report.measured / MIB:.1f} | {' | '.join(flops)}"
        print(f"| {name} | {policy} | {figures} | {report.compilations} | {seconds:.0f} |", flush=True)
        rows.append({"model": name, "policy": policy, "flops": again, "wall": seconds, **report.as_dict()})
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", help="models, separated by commas")
    parser.add_argument("--points", type=int, default=9, help="how many budgets")
    parser.add_argument("--predicted", action="store_true", help="plan by the prediction alone")
    parser.add_argument("--policies", action="store_true", help="budgets of what XLA takes under each policy")
    parser.add_argument("--json", type=Path, help="a file for the figures")
    options = parser.parse_args()
    print(f"jax {jax.__version__}, on {jax.devices()[0].device_kind}\n")
    small = [name for name in ARCHITECTURES if name not in ON_REQUEST]
    if options.policies:
        print("| model | policy | MiB | of the plan | FLOPs again | of the plan | compiled | s |")
        print("|---|---|--:|--:|--:|--:|--:|--:|", flush=True)
        default, measured = [*small, "gpt2", "gpt2-scan-4"], measure_policies
    elif options.predicted:
        print("| model | % | budget MiB | expected | measured | measured / expected | within |")
        print("|---|--:|--:|--:|--:|--:|---|", flush=True)
        default, measured = small, functools.partial(measure_predicted, parts=PARTS)
    else:
        print("| model | budget MiB | predicted | measured | products | FLOPs | time | gap | compiled | s |")
        print("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|", flush=True)
        default, measured = list(MODELS), functools.partial(measure, points=options.points)
    rows = []
    for name in options.only.split(",") if options.only else default:
        rows += measured(name)
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
