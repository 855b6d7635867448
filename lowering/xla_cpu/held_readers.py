"""What holds memory at the predicted peak only for a reader that XLA:CPU runs late reads it earlier.

Before:  %1 = convolution %x, %dy   %2 = convolution %dy, %w   %3 = convolution %image, %2
After:   %1 = convolution %x, %dy   %4, %5 = optimization_barrier %dy, %1   %2 = convolution %4, %w   ...

A program with barriers runs breadth first: the gradient of a kernel, which nothing waits for, comes behind what the
next one's gradient needs, and both hold the copies that they read. Behind the barrier the second waits for the first.
A barrier also ends fusion, and what waits may be what everything else waits for; so each is kept only where the
predicted peak is lower with it. Where a loop's step or a branch runs at the peak, that is looked at on its own. First,
what only repeats a number or a row is no array that several kernels share (`own_broadcasts`), on the same condition.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from rematc.ir.core import Graph, Op
from rematc.lowering.target import Target
from rematc.lowering.targeting import current_target
from rematc.lowering.xla_cpu.buffers import Placement
from rematc.lowering.xla_cpu.instructions import Step
from rematc.lowering.xla_cpu.late_loops import runs_breadth_first
from rematc.lowering.xla_cpu.own_broadcasts import with_own_broadcasts
from rematc.lowering.xla_cpu.prediction import placement, placement_inside, predict
from rematc.passes.kernels import CPU
from rematc.passes.legalize.last_readers import Waits, reads_before, waits_of, with_waits
from rematc.passes.manager import Pass
from rematc.passes.planning.shards import WHOLE, Shards
from rematc.passes.regions import with_region

#: How often what holds the peak is looked for, and with how many of what was found alone where all of it is no less.
_ROUNDS, _ALONE = 6, 3
#: Of several ways to run one program, how many of the best get arrays of their own, and how many readers held, with
#: those that are as good. Their order hardly changes by it, and each look costs as much as the first.
_OWN, _HELD = 3, 2


@dataclass(frozen=True, slots=True)
class HoldReaders(Pass):
    """The pass that does so for the current target. It is in no pipeline's text: only who knows the target adds it."""

    name: ClassVar[str] = "hold_readers"

    def run(self, graph: Graph) -> Graph:
        return with_readers_held(graph, current_target())


@dataclass(frozen=True, slots=True)
class Placed:
    """A graph, after the passes, and its buffers as they are predicted.

    Attributes:
        graph: what runs.
        target: where.
        donated: the parameters in whose memory results may lie.
        placed: its buffers.
        inside: the op whose region the graph is, and which; None for a program.
    """

    graph: Graph
    target: Target
    donated: tuple[int, ...]
    placed: Placement
    inside: tuple[Op, int] | None = None

    @classmethod
    def of(cls, graph: Graph, target: Target, donated: Sequence[int] = ()) -> Placed:
        """A graph for a target, with results in the memory of these parameters."""
        return cls(graph, target, tuple(donated), placement(graph, target, donated)[0])

    @classmethod
    def of_region(cls, op: Op, index: int, target: Target) -> Placed:
        """A region of an op on its own, in a program that recomputes."""
        return cls._inside(op.regions()[index], op, index, target)

    @classmethod
    def _inside(cls, region: Graph, op: Op, index: int, target: Target) -> Placed:
        return cls(region, target, (), placement_inside(region, Step.of(op, index), target), (op, index))

    def with_graph(self, graph: Graph) -> Placed:
        """Another graph in its place."""
        if self.inside is not None:
            return self._inside(graph, *self.inside, self.target)
        return Placed.of(graph, self.target, self.donated)

    @property
    def peak(self) -> int:
        """Bytes that it is predicted to take."""
        return self.placed.peak

    def with_readers_held(self) -> Placed:
        """The same with these barriers, in regions, too; itself where none lowers the predicted peak."""
        if self.inside is None and not runs_breadth_first(self.graph, self.target):
            return self
        looked_at: set[int] = set()
        held = _with_regions_held(self, looked_at)
        return _with_regions_held(_with_late_ones_held(_with_own_broadcasts(held)), looked_at)


def least_peaks(graphs: Sequence[Graph], target: Target, as_good: float, shards: Shards = WHOLE) -> list[int]:
    """Bytes that ways to run one program, graphs after the passes, are predicted to take with these barriers.

    The least of all that are looked for: of what takes more than others at first, and is not among so many of the best,
    the bytes without them. A way is as good as another one that takes `as_good` of its bytes. Of graphs that are spread
    over devices it is what one device takes, without them.
    """
    if not shards.is_whole:
        return [predict(graph, target, (), shards).peak for graph in graphs]
    ways = {index: Placed.of(graph, target) for index, graph in enumerate(graphs) if runs_breadth_first(graph, target)}
    for count, better in ((_OWN, _with_own), (_HELD, _with_late_ones_held)):
        peaks = sorted(way.peak for way in ways.values())[:count]
        for index, way in ways.items():
            if way.peak * as_good <= peaks[-1]:
                ways[index] = better(way)
    return [ways[at].peak if at in ways else predict(graph, target).peak for at, graph in enumerate(graphs)]


def with_readers_held(graph: Graph, target: Target) -> Graph:
    """The graph, after the passes, with these barriers; the graph itself where none lowers the predicted peak."""
    return Placed.of(graph, target).with_readers_held().graph if runs_breadth_first(graph, target) else graph


def _with_own(way: Placed) -> Placed:
    return _with_own_broadcasts(_with_regions_held(way, set()))


def _with_regions_held(best: Placed, looked_at: set[int]) -> Placed:
    """What is late held in the regions that run at the peak, one after the other; the graphs that were `looked_at`
    before are left.
    """
    for _ in range(_ROUNDS):
        place = _at_peak(best)
        if place is None:
            return best
        op, graph = best.graph.equations[place].op, best.graph
        if looked_at.issuperset(map(id, op.regions())):
            return best
        regions = [Placed.of_region(op, index, best.target) for index in range(len(op.regions()))]
        index, region = max(enumerate(regions), key=lambda found: found[1].peak)
        if id(region.graph) in looked_at:
            return best
        looked_at.add(id(region.graph))
        held = region.with_readers_held()
        if held is region:
            return best
        eqn = replace(graph.equations[place], op=with_region(op, index, held.graph))
        equations = (*graph.equations[:place], eqn, *graph.equations[place + 1 :])
        other = best.with_graph(Graph(graph.name, graph.params, equations, graph.results))
        if other.peak > best.peak:
            return best
        looked_at.add(id(held.graph))
        best = other
    return best


def _at_peak(found: Placed) -> int | None:
    """The place of the equation that runs at the predicted peak, if it is one with regions."""
    live = found.placed.allocation.live()
    at = max(range(len(live)), key=live.__getitem__, default=None)
    if at is None or not found.placed.inside[at]:
        return None
    values = set(found.placed.values(found.placed.order.order[at]))
    places = (index for index, eqn in enumerate(found.graph.equations) if eqn.op.regions())
    return next((index for index in places if not values.isdisjoint(found.graph.equations[index].results)), None)


def _with_own_broadcasts(way: Placed) -> Placed:
    own = with_own_broadcasts(way.graph, way.placed)
    if own is way.graph:
        return way
    other = way.with_graph(own)
    return other if other.peak <= way.peak else way


def _with_late_ones_held(best: Placed) -> Placed:
    graph = best.graph
    possible = reads_before(graph, CPU) | waits_of(graph, CPU)
    taken: Waits = {}
    for _ in range(_ROUNDS):
        for found in _attempts(_Late(graph, best.placed, possible)):
            joined = _joined(taken, found)
            held = best.with_graph(with_waits(graph, joined))
            if held.peak < best.peak:
                best, taken = held, joined
                break
        else:
            break
    return best


class _Late:
    """What of all that may wait would be read before something runs, where the graph's kernels are placed like this."""

    def __init__(self, graph: Graph, placed: Placement, possible: Waits) -> None:
        self._graph, self._possible = graph, possible
        self._live = placed.allocation.live()
        self._time = {value: step for step, kernel in enumerate(placed.order.order) for value in placed.values(kernel)}
        placed_ones = set(self._time)
        # What is fused with others is computed where the last of these is.
        for eqn in reversed(graph.equations):
            after = max([self._time[value] for value in eqn.results if value in self._time], default=-1)
            for value in eqn.operands:
                if value not in placed_ones:
                    self._time[value] = max(self._time.get(value, -1), after)

    @functools.cached_property
    def at_peak(self) -> Waits:
        """What would be read before the peak."""
        return self._above(max(self._live, default=0) - 1)

    def at_peaks(self) -> Waits:
        """And before all others that would be the peak if that one were lower by what waits there: alike layers have
        one each.
        """
        results = [value for then in self.at_peak for value in self._graph.equations[then].results]
        return self._above(max(self._live, default=0) - sum(value.type.bytes for value in results))

    def largest(self) -> list[Waits]:
        """One after the other what would be read before the peak, what takes most memory first."""
        late = self.at_peak
        return [{then: late[then]} for then in sorted(late, key=lambda then: -self._possible[then][0].type.bytes)]

    def _above(self, level: int) -> Waits:
        """What would be read before some step in which more is live."""
        before = [0, *itertools.accumulate(live > level for live in self._live)]
        late: Waits = {}
        for then, (operand, readers) in self._possible.items():
            begins = [self._time[value] for value in self._graph.equations[then].results if value in self._time]
            first = before[min(begins)] if begins else before[-1]
            found = [value for value in readers if before[max(0, self._time.get(value, -1))] > first]
            if found:
                late[then] = (operand, found)
        return late


def _attempts(late: _Late) -> Iterator[Waits]:
    """All that is late at once, at all peaks and at the highest one, and then what is largest alone."""
    everywhere, here = late.at_peaks(), late.at_peak
    if everywhere != here:
        yield everywhere
    if here:
        yield here
    if len(here) > 1:
        yield from late.largest()[:_ALONE]


def _joined(waits: Waits, others: Waits) -> Waits:
    joined = {then: (operand, list(readers)) for then, (operand, readers) in waits.items()}
    for then, (operand, readers) in others.items():
        known = joined.setdefault(then, (operand, []))[1]
        known += [value for value in readers if value not in known]
    return joined
