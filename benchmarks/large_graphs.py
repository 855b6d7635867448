"""How printing, parsing, verifying and cleaning up scale: graphs of 25,000 to 200,000 equations.

    python benchmarks/large_graphs.py

Prints seconds for each size, and how much longer each doubling takes: 2.0 is linear.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from rematc.ir.builder import Builder
from rematc.ir.core import Graph
from rematc.ir.locations import Location
from rematc.ir.parser import parse_graph
from rematc.ir.printer import print_graph
from rematc.ir.types import F32, TensorType
from rematc.ir.verifier import verify
from rematc.passes.manager import parse_pipeline

SIZES = (25_000, 50_000, 100_000, 200_000)


def layers(equations: int) -> Graph:
    """Layers of a product, a sine and a shift, with locations and a constant in each."""
    b = Builder("layers")
    square = TensorType(F32, (4, 4))
    x, w = b.parameter(square, "x"), b.parameter(square, "w")
    layer = 0
    while len(b.equations) < equations:
        layer += 1
        b.loc = Location("model.py", layer % 500 + 1, 8, "layer")
        x = b.sine(b.dot_general(x, w, ([1], [0])))
        x = b.add(x, b.broadcast_in_dim(b.reduce_sum(x, (0,)), (4, 4), (1,)))
        x = b.transpose(
            b.multiply(x, b.broadcast_in_dim(b.constant(np.asarray(layer, np.float32)), (4, 4), ())), (1, 0)
        )
    return b.build(x)


def measure(graph: Graph) -> dict[str, float]:
    """Seconds of each step."""
    text = print_graph(graph)
    steps: dict[str, Callable[[], object]] = {
        "print": lambda: print_graph(graph),
        "parse": lambda: parse_graph(text),
        "verify": lambda: verify(graph),
    }
    for each in parse_pipeline("simplify,cse,dce,inline"):
        steps[each.name] = partial(each.run, graph)
    seconds = {}
    for name, step in steps.items():
        start = time.perf_counter()
        step()
        seconds[name] = time.perf_counter() - start
    return seconds


def main() -> None:
    """Measure each size once and print the table."""
    previous: dict[str, float] = {}
    for size in SIZES:
        seconds = measure(layers(size))
        cells = [f"{name} {took:.2f} s" + _growth(previous.get(name), took) for name, took in seconds.items()]
        print(f"{size:7d} equations: {', '.join(cells)}")
        previous = seconds


def _growth(before: float | None, now: float) -> str:
    return f" (x{now / before:.1f})" if before else ""


if __name__ == "__main__":
    main()
