"""Whole models of real sizes: temporary memory of a training step, compiled from shapes and never run.

    python benchmarks/language.py [--only gpt2,llama-scan] [--policies none,nothing,dots,dots-no-batch,auto]
        [--budgets] [--target cpu|h100|v5e|...] [--json FILE] [--beside FILE]

GPT-2 with its vocabulary and a model like Llama (benchmarks/architectures/language.py), and models of other kinds
(benchmarks/whole/). rematc gets the unchanged loss with a policy on the whole; beside it stands JAX with the same
policy in `jax.checkpoint` around each layer by hand, in a scan around its body; beside `auto`, JAX's `dots`. For an
H100, a v5e and others (rematc.targets) XLA compiles ahead of time. The columns, JAX's figure before rematc's:

    MiB         of temporary memory, as XLA says (memory_analysis)
    over        rematc's over JAX's
    products    matrix products and convolutions executed, in loops as often as they run; for a GPU XLA makes one of
                products of the same operand, as of queries, keys and values
    predicted   what rematc said of the memory before XLA saw the program (Lowered.predicted_peak), over it; by a model
                of XLA on the CPU, whatever the target
    lower       seconds of tracing, differentiating and lowering
    XLA         seconds that XLA takes

With `--budgets` rematc has no policy, but as many bytes as JAX takes by hand with it as its budget, and there is a
column more: FLOPs of products (of a TPU cycles), JAX's by hand and rematc's over JAX's without a policy. The seconds of
its planning are XLA's then.

On the CPU before jaxlib 0.12 JAX's side has the option that makes barriers hold.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax

import rematc

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a script, only this folder is on the path

from benchmarks.architectures import unwrapped
from benchmarks.memory import JAX_POLICIES, KEPT
from benchmarks.whole import WHOLE, Whole
from rematc.lowering.hlo.branches import branch_names
from rematc.lowering.hlo.module import HloModule, Instruction, called_computations
from rematc.lowering.hlo.parser import parse_hlo
from rematc.lowering.hlo.products import executed_products
from rematc.lowering.hlo.trips import trip_count
from rematc.lowering.target import Target

POLICIES = ("none", "nothing", "dots", "dots-no-batch", "auto")
#: What JAX is given by hand where it has no policy of that name.
BY_HAND = {"auto": "dots"}
#: XLA's estimate of a TPU's kernel.
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')


@dataclass(frozen=True, slots=True)
class Step:
    """A compiled training step.

    Attributes:
        temporary: bytes, as XLA says.
        products: executed matrix products and convolutions.
        lower: seconds until XLA gets it.
        compile: seconds that XLA takes.
        predicted: bytes; None for JAX's.
        work: FLOPs of products, for a TPU the cycles that XLA estimates, in loops as often as they run.
    """

    temporary: int
    products: int
    lower: float
    compile: float
    predicted: int | None = None
    work: int = 0


def of_jax(model: Whole, policy: str, shapes: tuple[Any, ...], platform: str) -> Step:
    """JAX's step with a policy around each layer by hand."""
    kept = JAX_POLICIES.get(policy)
    # Between the steps of two loops XLA merges nothing, which `prevent_cse` is there for.
    wrap = functools.partial(jax.checkpoint, policy=kept, prevent_cse=not model.is_scanned)
    loss = model.build(unwrapped if kept is None else wrap)
    start = time.perf_counter()
    lowered = jax.jit(jax.value_and_grad(loss)).lower(*shapes)
    middle = time.perf_counter()
    has_option = kept is not None and not Target.of(platform).barriers_hold
    compiled = lowered.compile(compiler_options=KEPT if has_option else None)
    end = time.perf_counter()
    memory: Any = compiled.memory_analysis()
    products, work = executed_work(compiled.as_text() or "")
    return Step(memory.temp_size_in_bytes, products, middle - start, end - middle, work=work)


def of_rematc(model: Whole, policy: str, shapes: tuple[Any, ...], platform: str, budget: int | None = None) -> Step:
    """Our step of the unchanged model, with a policy on the whole, or within a budget in bytes as XLA takes them."""
    step = rematc.value_and_grad(rematc.from_jax(model.build(unwrapped)), policy=None if policy == "none" else policy)
    start = time.perf_counter()
    if budget is None:
        lowered = rematc.lower(step, *shapes)
        middle = time.perf_counter()
        compiled = lowered.compile()
        predicted = lowered.predicted_peak()
    else:
        middle = start
        compiled = rematc.compile(step, *shapes, budget=budget)
        predicted = compiled.lowered.predicted_peak()
    end = time.perf_counter()
    products, work = executed_work(compiled.hlo_optimized())
    return Step(compiled.memory().temp_bytes, products, middle - start, end - middle, predicted, work)


def executed_work(text: str) -> tuple[int, int]:
    """Products that an optimized module executes, and its work: XLA's estimated cycles, or where it has none FLOPs."""
    module = parse_hlo(text)
    executed = executed_products(module)
    return executed.total.most, estimated_cycles(module) or 2 * executed.multiplications


def estimated_cycles(module: HloModule) -> int:
    """The cycles that XLA estimates for the kernels that a module executes; 0 where it does not."""

    def cycles(instruction: Instruction) -> int:
        found = _CYCLES.search(instruction.attributes)
        return int(found[1]) if found else 0

    return executed_sum(module, cycles)


def executed_sum(module: HloModule, of: Callable[[Instruction], int]) -> int:
    """The sum of something over the instructions that a module executes, in loops as often as they run."""

    @functools.cache
    def inside(name: str) -> int:
        computation = module.computations[name]
        total = 0
        for instruction in computation.instructions.values():
            total += of(instruction)
            called = called_computations(instruction)
            if instruction.opcode == "while":
                trips = trip_count(instruction, computation, module)
                total += sum(inside(body) for body in called.get("body", ())) * (1 if trips is None else trips)
            elif instruction.opcode == "conditional":
                total += max((inside(branch) for branch in branch_names(instruction)), default=0)
            elif instruction.opcode in ("call", "async-start"):
                total += sum(inside(one) for names in called.values() for one in names)
        return total

    return 0 if module.entry is None else inside(module.entry)


def row(name: str, policy: str, theirs: Step, ours: Step, whole: Step | None = None) -> str:
    """A line of the table; with what JAX's step takes without a policy both's work over that of it."""
    cells = (
        f"{theirs.temporary / 2**20:.0f}",
        f"{ours.temporary / 2**20:.0f}",
        f"{ours.temporary / theirs.temporary:.2f}",
        f"{theirs.products} {ours.products}",
        "" if ours.predicted is None else f"{ours.predicted / ours.temporary:.2f}",
        f"{theirs.lower:.1f} {ours.lower:.1f}",
        f"{theirs.compile:.0f} {ours.compile:.0f}",
        *([] if whole is None else [f"{theirs.work / whole.work:.3f} {ours.work / whole.work:.3f}"]),
    )
    return f"| {name} | {policy} | {' | '.join(cells)} |"


def by_hand(
    model: Whole, policy: str, shapes: tuple[Any, ...], target: str, measured: dict[str, dict[str, Any]]
) -> Step:
    """`of_jax`, and what was measured before."""
    key = f"{model.name}, {policy}"
    if key not in measured:
        measured[key] = asdict(of_jax(model, policy, shapes, target))
    return Step(**measured[key])


def main() -> None:
    """Compile and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", help=f"models, separated by commas, of: {', '.join(WHOLE)}")
    parser.add_argument("--policies", default=",".join(POLICIES), help="separated by commas")
    parser.add_argument(
        "--budgets", action="store_true", help="what JAX takes is rematc's budget, in place of the policy"
    )
    parser.add_argument("--target", default="cpu", help="what to compile for: cpu, or of rematc.targets")
    parser.add_argument("--json", type=Path, help="a file for the figures")
    parser.add_argument("--beside", type=Path, help="take JAX's figures from such a file")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(WHOLE)
    if unknown := set(names) - set(WHOLE):
        parser.error(f"no model {', '.join(sorted(unknown))}")
    jax.config.update("jax_platforms", "cpu")  # type: ignore[no-untyped-call]  # jax
    device = rematc.targets.devices(options.target)[0]
    sharding = jax.sharding.SingleDeviceSharding(device)
    measured: dict[str, Any] = json.loads(options.beside.read_text()) if options.beside else {}
    print(f"jax {jax.__version__}, compiled for {device.device_kind}\n")
    more = " FLOPs |" if options.budgets else ""
    print(f"| model | policy | MiB: JAX by hand | rematc | over | products | predicted | lower s | XLA s |{more}")
    print(f"|---|---|--:|--:|--:|--:|--:|--:|--:|{'--:|' * options.budgets}", flush=True)
    for name in names:
        model = WHOLE[name]
        shapes = jax.tree_util.tree_map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),  # type: ignore[no-untyped-call]  # jax
            model.shapes(),
        )
        for policy in options.policies.split(","):
            theirs = by_hand(model, BY_HAND.get(policy, policy), shapes, options.target, measured)
            whole = by_hand(model, "none", shapes, options.target, measured) if options.budgets else None
            chosen, budget = ("none", theirs.temporary) if options.budgets else (policy, None)
            ours = of_rematc(model, chosen, shapes, options.target, budget)
            print(row(name, policy, theirs, ours, whole), flush=True)
            measured[f"rematc {name}, {policy}{' as budget' * options.budgets}"] = asdict(ours)
            if options.json:
                options.json.write_text(json.dumps(measured, indent=1) + "\n")


if __name__ == "__main__":
    main()
