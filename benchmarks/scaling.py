"""How every step from a function to StableHLO scales: 1,000, 10,000, 100,000 equations, on request 1,000,000.

    python benchmarks/scaling.py [--million] [--steps trace,jvp,print] [--check 1.1]

For each step: processor seconds at each size, the exponent p of the fit seconds = c * equations^p (1 is linear),
seconds for a million equations at the largest size, and the peak of Python's memory beyond what is there before, in
bytes for each equation of the function. Steps run as the compiler runs them, with Python's cycle collector paused.
`--million` measures one size in one go, with the peak of the process's memory after each step. With `--check`, exit 1
if an exponent is greater.
"""

from __future__ import annotations

import argparse
import gc
import resource
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import rematc
from rematc.ir.builder import Builder
from rematc.ir.collecting import collection_paused
from rematc.ir.core import Graph
from rematc.ir.parser import parse_graph
from rematc.ir.printer import print_graph
from rematc.ir.verifier import verify
from rematc.lowering.module import stablehlo_text
from rematc.lowering.xla_cpu.prediction import allocation
from rematc.passes.jvp import jvp
from rematc.passes.linearize import linearize, under_policy, vjp
from rematc.passes.manager import parse_pipeline
from rematc.passes.partial_eval import partial_eval
from rematc.passes.policies import nothing_saveable
from rematc.passes.staging.stage import staged
from rematc.passes.transpose import transpose
from rematc.passes.vmap import vmap

SIZES = (1_000, 10_000, 100_000)
MILLION = 1_000_000
#: Where memory is measured: tracemalloc makes Python several times slower.
MEMORY_SIZE = 10_000
SHAPE = (4, 4)


def layers(count: int) -> Callable[..., object]:
    """Layers of a product, a sine, a norm and a shift: 8 equations each, as frontends write them."""

    def loss(x: np.ndarray, w: np.ndarray) -> object:
        for layer in range(count):
            hidden = np.sin(x @ w)
            x = (hidden + np.sum(hidden, axis=0)) * np.float32(layer)
        return np.sum(x)

    return loss


def traced(equations: int) -> Graph:
    """The function as traced."""
    array = np.zeros(SHAPE, np.float32)
    per_layer = len(rematc.trace(layers(11), array, array).equations) - len(
        rematc.trace(layers(10), array, array).equations
    )
    return rematc.trace(layers(max(equations // per_layer, 1)), array, array)


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the compiler: prepared once, then measured.

    Attributes:
        name: what it is called.
        prepare: from the traced function to what the step works on.
        run: the step.
    """

    name: str
    prepare: Callable[[Graph], object]
    run: Callable[..., object]


def _gradient(graph: Graph) -> Graph:
    """Value and gradient as one graph."""
    pulled = vjp(graph, [True] * len(graph.params))
    b = Builder("gradient")
    params = [b.parameter(value.type) for value in graph.params]
    forward = b.inline(pulled.forward, params)
    ct = b.full(graph.results[0].type, 1.0)
    return b.build(forward[0], *b.inline(pulled.backward, [*forward[1:], ct]))


def _recomputing(graph: Graph) -> Graph:
    return _gradient(under_policy(graph, nothing_saveable))


def _tangents(graph: Graph) -> tuple[Graph, list[bool]]:
    joint = jvp(graph, [True] * len(graph.params)).graph
    return joint, [index >= len(graph.params) for index in range(len(joint.params))]


def _linear(graph: Graph) -> tuple[Graph, list[bool]]:
    linearized = linearize(graph, [True] * len(graph.params))
    count = len(linearized.residuals)
    return linearized.linear, [index >= count for index in range(len(linearized.linear.params))]


def _pass(name: str, prepare: Callable[[Graph], object] = _gradient) -> Step:
    (one,) = parse_pipeline(name)
    return Step(name, prepare, one.run)


STEPS = (
    Step("trace", lambda graph: len(graph.equations), traced),
    Step("verify", lambda graph: graph, verify),
    Step("print", lambda graph: graph, print_graph),
    Step("parse", print_graph, parse_graph),
    Step("jvp", lambda graph: graph, lambda graph: jvp(graph, [True] * len(graph.params))),
    Step("vmap", lambda graph: graph, lambda graph: vmap(graph, [True] * len(graph.params), 2)),
    Step("partial_eval", _tangents, lambda pair: partial_eval(pair[0], pair[1], None)),
    Step("partial_eval, nothing saved", _tangents, lambda pair: partial_eval(pair[0], pair[1], nothing_saveable)),
    Step("linearize", lambda graph: graph, lambda graph: linearize(graph, [True] * len(graph.params))),
    Step("transpose", _linear, lambda pair: transpose(pair[0], pair[1])),
    Step("staging", lambda graph: graph, lambda graph: staged(graph, nothing_saveable)),
    Step("prediction", _gradient, lambda graph: allocation(graph).peak()),
    _pass("barriers", _recomputing),
    _pass("inline"),
    _pass("simplify"),
    _pass("cse"),
    _pass("dce"),
    _pass("narrow"),
    Step("stablehlo", _gradient, stablehlo_text),
)


def seconds_of(step: Step, graph: Graph, repetitions: int) -> float:
    """The best of some runs."""
    prepared = step.prepare(graph)
    best = float("inf")
    for _ in range(repetitions):
        gc.collect()
        with collection_paused():
            start = time.process_time()
            step.run(prepared)
            best = min(best, time.process_time() - start)
    return best


def peak_bytes(step: Step, graph: Graph) -> int:
    """The most memory that Python has beyond what was there before."""
    prepared = step.prepare(graph)
    gc.collect()
    tracemalloc.start()
    step.run(prepared)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """The slope of the line through log(size), log(seconds)."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def measure(steps: list[Step]) -> dict[str, float]:
    """Print the table; the exponent of each step."""
    graphs = {size: traced(size) for size in SIZES}
    heads = "".join([f"{f'{size:,}':>10}" for size in SIZES])
    print(f"{'step':28}{heads}{'exponent':>10}{'s/million':>11}{'bytes/eqn':>11}")
    found = {}
    for step in steps:
        seconds = [seconds_of(step, graphs[size], 5 if size < 100_000 else 2) for size in SIZES]
        sizes = [len(graphs[size].equations) for size in SIZES]
        found[step.name] = exponent(sizes, seconds)
        cells = "".join([f"{took:>9.3f}s" for took in seconds])
        million = seconds[-1] / sizes[-1] * 1e6
        memory = peak_bytes(step, graphs[MEMORY_SIZE]) / len(graphs[MEMORY_SIZE].equations)
        print(f"{step.name:28}{cells}{found[step.name]:>10.2f}{million:>11.1f}{memory:>11.0f}", flush=True)
    return found


def measure_million(steps: list[Step]) -> None:
    """Print seconds of each step on a million equations, and the process's peak of memory until then."""
    print(f"{'step':28}{'seconds':>10}{'peak GiB of the process':>26}")
    start = time.process_time()
    with collection_paused():
        graph = traced(MILLION)
    print(f"{'trace':28}{time.process_time() - start:>9.1f}s{resident():>26.2f}", flush=True)
    for step in steps:
        if step.name != "trace":
            took = seconds_of(step, graph, 1)
            print(f"{step.name:28}{took:>9.1f}s{resident():>26.2f}", flush=True)


def resident() -> float:
    """The process's peak of memory, in GiB."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


def main() -> int:
    """Measure what the options ask for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--million", action="store_true", help="one run of each step on a million equations")
    parser.add_argument("--steps", help="names of steps, with commas; all of them by default")
    parser.add_argument("--check", type=float, help="exit 1 if an exponent is greater")
    options = parser.parse_args()
    names = options.steps.split(",") if options.steps else None
    steps = [step for step in STEPS if names is None or step.name in names]
    if options.million:
        measure_million(steps)
        return 0
    found = measure(steps)
    worst = max(found, key=lambda name: found[name])
    print(f"the greatest exponent is {found[worst]:.2f}, of {worst}")
    return 1 if options.check and found[worst] > options.check else 0


if __name__ == "__main__":
    sys.exit(main())
