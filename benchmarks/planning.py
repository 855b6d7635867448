"""Plans within a budget against PyTorch's partitioner: same graphs, same costs, same simulator.

    python benchmarks/planning.py [--trace] [--graphs NAME ...] [--sizes]

Three training losses that PyTorch 2.13 traced into joint forward and backward graphs: a GPT of six layers with fused
attention and with attention spelled out (width 256, 8 heads, 256 tokens, batch 8, vocabulary 1024), and twelve dense
layers (1024 wide, batch 4096). Costs are FLOPs as its partitioner counts them, bytes those of the storages; parameters
and inputs take none. Each of its `activation_memory_budget`s gives a forward and a backward graph, which is simulated
as it stands. The table has what rematc's planner finds at the same peak, and at smaller ones: extra FLOPs as a part of
those of the forward pass, how far from the lower bound of all FLOPs that is at most, stages, and seconds.

The graphs are in planning.npz; `--trace` makes them anew (pip install rematc[planning]). `--sizes` plans for synthetic
networks of 1,280 to 100,000 nodes instead.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from rematc.passes.planning.budget import plan_for_budget
from rematc.passes.planning.problem import GIVEN, Problem, problem_of, simulate

STORED = Path(__file__).with_suffix(".npz")
MEBIBYTE = 2**20
#: Peaks, in MiB, that are asked for beside PyTorch's own.
PEAKS = {
    "gpt6-sdpa": (146, 120, 100, 90, 78, 70, 60, 50),
    "gpt6-manual": (138, 120, 110, 99, 95, 90, 80),
    "mlp12": (240, 220, 204, 190, 180, 160, 140),
}


def load(name: str) -> tuple[Problem, np.ndarray, int]:
    """A stored graph; rows of PyTorch's budget, peak, FLOPs and seconds; the FLOPs of its forward pass."""
    with np.load(STORED) as stored:
        part = {key.removeprefix(name + "."): stored[key] for key in stored if key.startswith(name + ".")}
    reads = np.split(part["reads"], np.cumsum(part["counts"])[:-1])
    problem = problem_of(
        cost=part["cost"].tolist(),
        reads=[row.tolist() for row in reads],
        size=part["size"].tolist(),
        producer=part["producer"].tolist(),
        results=part["results"].tolist(),
    )
    return problem, part["points"], int(part["forward"])


def store(name: str, problem: Problem, points: list[tuple[float, int, int, float]], forward: int) -> dict[str, object]:
    """The arrays of a graph as they are stored."""
    part = {
        "cost": problem.cost,
        "reads": np.concatenate([np.asarray(row, np.int32) for row in problem.reads]),
        "counts": np.array([len(row) for row in problem.reads], np.int32),
        "size": problem.size,
        "producer": problem.producer.astype(np.int32),
        "results": np.flatnonzero(problem.is_result),
        "points": np.array(points),
        "forward": np.array(forward),
    }
    return {f"{name}.{key}": value for key, value in part.items()}


def compare(name: str) -> None:
    """Print what PyTorch's settings give, and what the planner finds at the same peaks and at smaller ones."""
    problem, points, forward = load(name)
    stands = simulate(problem)
    print(f"{name}: {len(problem.cost)} nodes, {stands.peak / MEBIBYTE:.1f} MiB as it stands")
    print("   MiB   torch: budget  extra  seconds   rematc: MiB  extra  from bound  stages  seconds")
    rows = {int(peak): (budget, int(flops), seconds) for budget, peak, flops, seconds in points[::-1]}
    for peak in sorted({*rows, *(size * MEBIBYTE for size in PEAKS[name])}, reverse=True):
        started = time.perf_counter()
        found = plan_for_budget(problem, peak)
        seconds = time.perf_counter() - started
        row = f"{peak / MEBIBYTE:6.1f}"
        if peak in rows:
            budget, flops, torch_seconds = rows[peak]
            row += f"{budget:15.2f} {(flops - stands.time) / forward:6.1%} {torch_seconds:8.2f}"
        else:
            row += " " * 31
        row += f"{found.run.peak / MEBIBYTE:15.1f} "
        row += f"{(found.run.time - stands.time) / forward:6.1%} {found.gap:11.1%}" if found.is_feasible else "none"
        print(f"{row} {len(found.stages.begins):7} {seconds:8.2f}", flush=True)
    print()


def network(layers: int, nodes: int = 20) -> Problem:
    """Layers of the same nodes forwards, with products among them and a residual, and backwards in reversed order."""
    random = np.random.default_rng(0)
    near, far = random.random(nodes) < 0.9, random.random(nodes) < 0.3
    other = [int(random.integers(0, max(1, node))) for node in range(nodes)]
    product, size = random.random(nodes) < 0.3, random.choice([1, 2, 4], nodes)
    kept = random.random((nodes, 3)) < 0.7
    reads: list[list[int]] = []
    for layer in range(layers):
        first, residual = layer * nodes + 1, layer * nodes
        for node in range(nodes):
            row = {first + node - 1 if node and near[node] else residual}
            row |= {first + other[node]} if node > 2 and far[node] else set()
            reads.append(sorted(row | ({residual} if node == nodes - 1 else set())))
    count = len(reads)
    for node in reversed(range(count)):
        row = {value for value, is_kept in zip((*reads[node], node + 1), kept[node % nodes], strict=False) if is_kept}
        reads.append(sorted(row | {len(reads)}))
    cost = np.where(product, 100_000, 3_000)[np.arange(count) % nodes]
    return problem_of(
        cost=[*cost.tolist(), *(2 * cost[::-1]).tolist()],
        reads=reads,
        size=[0, *(size[np.arange(count) % nodes] * MEBIBYTE).tolist(), *[2 * MEBIBYTE] * count],
        producer=[GIVEN, *range(2 * count)],
        results=[2 * count],
    )


def measure_sizes() -> None:
    """Print the time that plans take, by the size of the network."""
    print("  nodes  peak asked  extra time  from bound  stages  seconds")
    for layers in (32, 250, 2500):
        problem = network(layers)
        stands = simulate(problem)
        for part in (0.7, 0.3, 0.1):
            started = time.perf_counter()
            found = plan_for_budget(problem, int(part * stands.peak))
            seconds = time.perf_counter() - started
            extra = f"{found.run.time / stands.time - 1:11.1%} {found.gap:11.1%}" if found.is_feasible else "none"
            print(f"{len(problem.cost):7} {part:11.0%} {extra} {len(found.stages.begins):7} {seconds:8.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", action="store_true", help="trace the graphs with PyTorch and store them")
    parser.add_argument("--graphs", nargs="*", choices=PEAKS, default=list(PEAKS), metavar="NAME")
    parser.add_argument("--sizes", action="store_true", help="networks of up to 100,000 nodes")
    arguments = parser.parse_args()
    if arguments.trace:
        from benchmarks.planning_torch import traced  # noqa: PLC0415  PyTorch is there for this alone

        np.savez_compressed(STORED, **{key: value for graph in traced() for key, value in store(*graph).items()})
    if arguments.sizes:
        measure_sizes()
        return
    for name in arguments.graphs:
        compare(name)


if __name__ == "__main__":
    main()
