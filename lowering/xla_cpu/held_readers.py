"""What holds memory at the predicted peak only for a reader that XLA:CPU runs late reads it earlier.

Before:  %1 = convolution %x, %dy   %2 = convolution %dy, %w   %3 = convolution %image, %2
After:   %1 = convolution %x, %dy   %4, %5 = optimization_barrier %dy, %1   %2 = convolution %4, %w   ...

A program with barriers runs breadth first: the gradient of a kernel, which nothing waits for, comes behind what the
next one's gradient needs, and both hold the copies that they read. Behind the barrier the second waits for the first.
A barrier also ends fusion, and what waits may be what everything else waits for; so each is kept only where the
predicted peak is lower with it. First, what only repeats a number or a row is no array that several kernels share
(`own_broadcasts`), on the same condition.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from rematc.ir.core import Graph
from rematc.ir.ops.placement import has_placements
from rematc.lowering.target import Target
from rematc.lowering.targeting import current_target
from rematc.lowering.xla_cpu.buffers import Placement
from rematc.lowering.xla_cpu.own_broadcasts import with_own_broadcasts
from rematc.lowering.xla_cpu.prediction import placement, predict
from rematc.passes.barriers import has_recomputation
from rematc.passes.kernels import CPU
from rematc.passes.legalize.last_readers import Waits, waits_of, with_waits
from rematc.passes.manager import Pass

#: How often what holds the peak is looked for, and with how many of what was found alone where all of it is no less.
_ROUNDS, _ALONE = 6, 3


@dataclass(frozen=True, slots=True)
class HoldReaders(Pass):
    """The pass that does so for the current target. It is in no pipeline's text: only who knows the target adds it."""

    name: ClassVar[str] = "hold_readers"

    def run(self, graph: Graph) -> Graph:
        return with_readers_held(graph, current_target())


@dataclass(frozen=True, slots=True)
class _Held:
    """A graph with such barriers, or without, and the bytes that it is predicted to take."""

    graph: Graph
    peak: int


def _is_open(graph: Graph, target: Target) -> bool:
    """Whether the order in which it runs is XLA:CPU's breadth-first one, and what holds memory then is known."""
    if target.platform != "cpu" or target.devices > 1:
        return False
    return has_recomputation(graph) and not has_placements(graph)


def least_peak(graph: Graph, target: Target) -> int:
    """Bytes that a graph, after the passes, is predicted to take with these barriers."""
    return _held(graph, target).peak if _is_open(graph, target) else predict(graph, target).peak


def with_readers_held(graph: Graph, target: Target) -> Graph:
    """The graph, after the passes, with these barriers; the graph itself where none lowers the predicted peak."""
    return _held(graph, target).graph if _is_open(graph, target) else graph


def _held(graph: Graph, target: Target) -> _Held:
    placed, _ = placement(graph, target)
    peak = placed.peak
    own = with_own_broadcasts(graph, placed)
    if own is not graph:
        other, _ = placement(own, target)
        if other.peak <= peak:
            graph, placed, peak = own, other, other.peak
    possible = waits_of(graph, CPU)
    best, late = graph, _late(graph, placed, possible)
    taken: Waits = {}
    for _ in range(_ROUNDS):
        for found in _attempts(late, possible):
            joined = _joined(taken, found)
            held = with_waits(graph, joined)
            placed, _ = placement(held, target)
            if placed.peak < peak:
                best, peak, taken, late = held, placed.peak, joined, _late(graph, placed, possible)
                break
        else:
            break
    return _Held(best, peak)


def _late(graph: Graph, placed: Placement, possible: Waits) -> Waits:
    """What of all that may wait would be read before the peak, where the graph's kernels are placed like this."""
    live = placed.allocation.live()
    at = max(range(len(live)), key=live.__getitem__, default=0)
    time = {value: step for step, kernel in enumerate(placed.order.order) for value in placed.values(kernel)}
    late: Waits = {}
    for then, (operand, readers) in possible.items():
        begins = [time[value] for value in graph.equations[then].results if value in time]
        found = [value for value in readers if time.get(value, -1) > at]
        if found and begins and min(begins) <= at:
            late[then] = (operand, found)
    return late


def _attempts(late: Waits, possible: Waits) -> Iterator[Waits]:
    """All of what is late at once, and then one after the other, what takes most memory first."""
    if late:
        yield late
    if len(late) > 1:
        sizes = {then: operand.type.bytes for then, (operand, _) in possible.items()}
        for then in sorted(late, key=lambda then: -sizes[then])[:_ALONE]:
            yield {then: late[then]}


def _joined(waits: Waits, others: Waits) -> Waits:
    joined = {then: (operand, list(readers)) for then, (operand, readers) in waits.items()}
    for then, (operand, readers) in others.items():
        known = joined.setdefault(then, (operand, []))[1]
        known += [value for value in readers if value not in known]
    return joined
