"""The predicted temporary memory beside what XLA on the CPU takes, on programs that others wrote or chance did.

    python benchmarks/prediction.py [--only losses,fuzz,harnesses] [--programs 200] [--half tuned|held-out]
                                    [--policies none,nothing] [--limit SECONDS] [--json FILE]

Losses are those of benchmarks/losses/ as far as their packages are installed; fuzzed programs are the fuzzer's, with
dimensions of 128 and 384 where it has 2 and 3; harnesses are JAX's differentiable ones, whose sum is differentiated,
where XLA takes a MiB or more. Policies are on the whole loss, or harness. Programs that take less than 64 KiB are left
out: tuples and alignment are much of that.

A draw by name puts half of the programs aside. Misses are printed of the other half alone: rules are mended by those,
and judged by both.
"""

from __future__ import annotations

import argparse
import dataclasses
import faulthandler
import functools
import importlib
import json
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

import rematc

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a script, only this folder is on the path
sys.path.insert(0, str(Path(__file__).parent / "suites"))

from benchmarks.losses import PACKAGES
from benchmarks.models import in_type, ours_of
from rematc.ir.core import Graph
from rematc.lowering.pipeline import make_program, run_passes, runs_depth_first
from rematc.lowering.runtime import compile_program
from rematc.lowering.targeting import current_target
from rematc.lowering.xla_cpu.prediction import predict

#: A prediction is good that is this close to XLA's figure, relative to it.
CLOSE = 0.15
#: Least bytes that a program takes, by source, to be judged.
LEAST = {"losses": 2**16, "fuzz": 2**16, "harnesses": 2**20}
#: Sizes of dimensions by the fuzzer's own, and the most elements that it makes.
SIZES, MOST_ELEMENTS = {0: 0, 1: 1, 2: 128, 3: 384}, 2**21
#: A fuzzed program counts if one of its values is as large, a harness if its arguments are.
LARGE_VALUE, LARGE_ARGUMENTS = 2**18, 2**16
HALVES = ("tuned", "held-out")

#: What is predicted, and what XLA takes, in bytes.
Measurement = Callable[[], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Row:
    """One program; `error` says why there are no figures."""

    source: str
    name: str
    predicted: int = 0
    measured: int = 0
    error: str = ""

    @property
    def half(self) -> str:
        """By its name without the policy, so that a model is in one half."""
        return HALVES[random.Random(self.name.partition(" ")[0]).random() < 0.5]

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted / self.measured

    @property
    def is_close(self) -> bool:
        """Whether the prediction is good."""
        return abs(self.ratio - 1) <= CLOSE


# -- programs --------------------------------------------------------------------------------------------------------


def programs(source: str, part: str, options: argparse.Namespace) -> Iterator[tuple[str, Measurement]]:
    """The programs of a part of a source, each with what measures it."""
    policies = options.policies.split(",")
    if source == "losses":
        for loss in importlib.import_module(f"benchmarks.losses.{part}").LOSSES:
            for policy in policies:
                yield f"{loss.name} {policy}", functools.partial(_of_loss, loss, policy)
    elif source == "fuzz":
        yield from _fuzzed(options.programs)
    else:
        yield from _harnesses(policies)


def _of_loss(loss: Any, policy: str) -> tuple[int, int]:
    function, arguments = loss.build()
    return _of_function(function, policy, in_type(np.float32, arguments))


def _of_function(function: Callable[..., Any], policy: str, arguments: Sequence[Any]) -> tuple[int, int]:
    lowered = rematc.lower(ours_of(function, None if policy == "none" else policy), *arguments)
    return lowered.predicted_peak(), lowered.compile().memory().temp_bytes


def _of_graph(graph: Graph) -> tuple[int, int]:
    target, passed = current_target(), run_passes(graph).graph
    prediction = predict(passed, target)
    program = dataclasses.replace(
        make_program(passed, (), target), is_depth_first=runs_depth_first(passed, target, lambda: prediction)
    )
    return prediction.peak, compile_program(program, target).memory().temp_bytes


def _fuzzed(count: int) -> Iterator[tuple[str, Measurement]]:
    from tests.support import drawing, random_graphs  # noqa: PLC0415  # needs hypothesis

    shapes = tuple(tuple(SIZES[size] for size in shape) for shape in drawing.SHAPES)
    drawing.SHAPES = random_graphs.SHAPES = shapes  # type: ignore[attr-defined, assignment]
    drawing.MAX_ELEMENTS = MOST_ELEMENTS
    seed = found = 0
    while found < count:
        graph = random_graphs.seeded_program(seed)
        if any(value.type.bytes >= LARGE_VALUE for eqn in graph.equations for value in eqn.results):
            found += 1
            yield f"fuzz-{seed}", functools.partial(_of_graph, graph)
        seed += 1


def _harnesses(policies: Sequence[str]) -> Iterator[tuple[str, Measurement]]:
    from jax_harness_cases import cases  # noqa: PLC0415  # needs absl, and makes thousands of objects

    for case in cases():
        leaves, tree = jax.tree_util.tree_flatten(list(case.harness.dyn_args_maker(np.random.RandomState(0))))
        if sum(getattr(leaf, "nbytes", 0) for leaf in leaves) >= LARGE_ARGUMENTS:
            for policy in policies:
                yield f"{case.name} {policy}", functools.partial(_of_harness, case.harness, leaves, tree, policy)


def _of_harness(harness: Any, leaves: Sequence[Any], tree: Any, policy: str) -> tuple[int, int]:
    inexact = [jax.numpy.issubdtype(leaf.dtype, np.floating) for leaf in leaves]

    def total(inside: Sequence[Any]) -> Any:
        given = iter(inside)
        flat = [next(given) if is_set else leaf for leaf, is_set in zip(leaves, inexact, strict=True)]
        results = jax.tree_util.tree_leaves(harness.dyn_fun(*jax.tree_util.tree_unflatten(tree, flat)))
        return sum(jax.numpy.sum(abs(one)).astype(np.float32) for one in results)

    return _of_function(total, policy, ([leaf for leaf, is_set in zip(leaves, inexact, strict=True) if is_set],))


# -- measuring, in processes of their own ----------------------------------------------------------------------------


def measure(source: str, part: str, options: argparse.Namespace) -> None:
    """Print the name of each program that is not done, then its row."""
    done = options.done.split(",")
    try:
        for name, figures in programs(source, part, options):
            if name in done or (options.half and Row(source, name).half != options.half):
                continue
            print(json.dumps(name), flush=True)
            faulthandler.dump_traceback_later(options.limit, exit=True)
            try:
                row = Row(source, name, *figures())
            except Exception as error:  # noqa: BLE001, RUF100  # others' code raises anything
                row = Row(source, name, error=f"{type(error).__name__}: {str(error)[:100]}")
            faulthandler.cancel_dump_traceback_later()
            print(json.dumps(asdict(row)), flush=True)
    except (ImportError, AttributeError, SyntaxError) as error:  # what packages for another jax, or Python, raise
        print(f"{part or source}: skipped, cannot be imported here: {error}", file=sys.stderr)


def rows_of(source: str, part: str, arguments: Sequence[str]) -> Iterator[Row]:
    """The rows of one part of a source, by a further process after one that a program ended."""
    command = [sys.executable, __file__, *arguments, "--worker", f"{source}:{part}"]
    done: list[str] = []
    while True:
        begun = ""
        with subprocess.Popen(
            [*command, "--done", ",".join(done)],
            stdout=subprocess.PIPE,
            stderr=None if os.environ.get("PREDICTION_ERRORS") else subprocess.DEVNULL,
            text=True,
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("{"):
                    yield Row(**json.loads(line))
                    begun = ""
                elif line.startswith('"'):
                    begun = json.loads(line)
                    done.append(begun)
        if not begun:
            return
        yield Row(source, begun, error=f"ended the process: {process.returncode}")


# -- the report ------------------------------------------------------------------------------------------------------


def show(rows: Sequence[Row]) -> None:
    """A table by source and half, then the misses of the half that may be looked at."""
    judged = [row for row in rows if not row.error and row.measured >= LEAST[row.source]]
    print(
        f"\njax {jax.__version__}, {len(judged)} programs; {sum(bool(row.error) for row in rows)} with an error, ",
        end="",
    )
    print(f"{len(rows) - len(judged) - sum(bool(row.error) for row in rows)} too small\n")
    print("| source | half | programs | within 15 % | median | 5 % | 95 % |")
    print("|---|---|--:|--:|--:|--:|--:|")
    for source in (*LEAST, ""):
        for half in HALVES:
            found = sorted(row.ratio for row in judged if row.half == half and source in ("", row.source))
            if found:
                close = sum(abs(ratio - 1) <= CLOSE for ratio in found) / len(found)
                low, high = found[len(found) // 20], found[-1 - len(found) // 20]
                cells = f"{close:.0%} | {statistics.median(found):.2f} | {low:.2f} | {high:.2f}"
                print(f"| {source or 'all'} | {half} | {len(found)} | {cells} |")
    print("\nMisses of the tuned half, predicted over measured:\n")
    misses = [row for row in judged if row.half == HALVES[0] and not row.is_close]
    for row in sorted(misses, key=lambda row: -max(row.ratio, 1 / max(row.ratio, 1e-9))):
        print(f"{row.ratio:6.2f}  {row.measured / 2**20:9.2f} MiB  {row.source} {row.name}")


def main() -> int:
    """Measure and print; exit 1 where nine of ten are not within 15 %."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default=",".join(LEAST), help="sources, separated by commas")
    parser.add_argument("--packages", default=",".join(PACKAGES), help="of losses, separated by commas")
    parser.add_argument("--programs", type=int, default=200, help="how many fuzzed ones")
    parser.add_argument("--policies", default="none,nothing", help="separated by commas")
    parser.add_argument("--half", choices=HALVES, help="only this one")
    parser.add_argument("--limit", type=float, default=120, help="seconds for a program")
    parser.add_argument("--json", help="write the rows to this file")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--done", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        measure(*options.worker.split(":"), options)
        return 0
    rows: list[Row] = []
    for source in options.only.split(","):
        for part in options.packages.split(",") if source == "losses" else [""]:
            for row in rows_of(source, part, sys.argv[1:]):
                rows.append(row)
                figures = row.error or f"{row.predicted / 2**20:.2f} of {row.measured / 2**20:.2f} MiB"
                print(f"{row.source} {row.name}: {figures}", file=sys.stderr, flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps([asdict(row) for row in rows]), encoding="utf-8")
    show(rows)
    judged = [row for row in rows if not row.error and row.measured >= LEAST[row.source]]
    return 0 if sum(row.is_close for row in judged) >= 0.9 * len(judged) else 1


if __name__ == "__main__":
    sys.exit(main())
