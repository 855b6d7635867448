"""What is planned, as arrays: nodes that run in order, the values between them, and what it takes to run one again.

Before:  0: %a = dot %x   1: %b = dot %a   2: %c = dot %b, %a     with %a, %b, %c of 4 MiB
After:   run as they stand: 12 MiB at node 2. With a stage that begins at node 2 and runs node 0 again: %a dies at
         node 1 and comes back; 12 MiB at node 2 all the same

A program is cut into stages: intervals of its nodes. At the beginning of a stage some nodes before it are run again, in
their order; from there on, what they write is read from these copies, in this stage and in later ones, until a stage
runs them once more. A value, or a copy of it, is live from the node that writes it to the last one that reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Integers = np.ndarray[tuple[int], np.dtype[np.int64]]
Booleans = np.ndarray[tuple[int], np.dtype[np.bool_]]

#: The producer of what is there before the first node.
GIVEN = -1


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Work that can be done again.

    Attributes:
        cost: [nodes] nanoseconds of running it once.
        reads: for each node the values that it reads, each once.
        writes: for each node the values that it writes.
        workspace: [nodes] bytes that it takes only while it runs.
        is_repeatable: [nodes] whether it may be run again.
        size: [values] bytes that it takes while it is live; 0 for what lies where the program's memory is not counted.
        producer: [values] the node that writes it; GIVEN for what is there from the beginning.
        is_result: [values] whether it is live until the end.
        replaces: [values] a value whose memory it takes where nothing reads that one after the producer; -1 for none.
    """

    cost: Integers
    reads: Sequence[Sequence[int]]
    writes: Sequence[Sequence[int]]
    workspace: Integers
    is_repeatable: Booleans
    size: Integers
    producer: Integers
    is_result: Booleans
    replaces: Integers


def problem_of(
    *,
    cost: Sequence[int],
    reads: Sequence[Sequence[int]],
    size: Sequence[int],
    producer: Sequence[int],
    results: Sequence[int],
    workspace: Sequence[int] | None = None,
    is_repeatable: Sequence[bool] | None = None,
    replaces: Sequence[int] | None = None,
) -> Problem:
    """A problem from lists; without workspaces, all nodes repeatable, nothing in place, unless these are given."""
    writes: list[list[int]] = [[] for _ in cost]
    for value, node in enumerate(producer):
        if node != GIVEN:
            writes[node].append(value)
    is_result = np.zeros(len(size), np.bool_)
    is_result[list(results)] = True
    return Problem(
        np.array(cost, np.int64),
        reads,
        writes,
        np.array([0] * len(cost) if workspace is None else workspace, np.int64),
        np.array([True] * len(cost) if is_repeatable is None else is_repeatable, np.bool_),
        np.array(size, np.int64),
        np.array(producer, np.int64),
        is_result,
        np.array([-1] * len(size) if replaces is None else replaces, np.int64),
    )


@dataclass(frozen=True, slots=True)
class Stages:
    """A way to run a problem.

    Attributes:
        begins: the nodes at which stages begin, ascending; what stands before the first one is run as it is.
        again: for each stage the nodes, all before its begin, that are run again at its beginning, ascending.
    """

    begins: tuple[int, ...] = ()
    again: tuple[tuple[int, ...], ...] = ()


#: Everything is kept.
AS_IT_STANDS = Stages()


@dataclass(frozen=True, slots=True)
class Run:
    """What running a problem in stages takes.

    Attributes:
        peak: the most bytes that are live at once.
        at: the step, in `steps`, at which they are.
        time: nanoseconds, with what is run again.
        steps: [steps] the nodes in the order they run, those that are run again at their stages' beginnings.
        live: [steps] bytes that are live at each.
    """

    peak: int
    at: int
    time: int
    steps: Integers
    live: Integers


def simulate(problem: Problem, stages: Stages = AS_IT_STANDS) -> Run:
    """Run a problem in stages: outputs are allocated, then inputs that nothing reads any more are freed.

    A value that replaces another counts for what it takes beyond it at the step that writes it, where the other one is
    read for the last time.
    """
    return Simulator(problem).run(stages)


def least_peak(problem: Problem) -> int:
    """Bytes that every plan takes: what the kernel that needs most by itself reads, writes and works in."""
    found = 0
    for node, reads in enumerate(problem.reads):
        live = int(problem.workspace[node] + problem.size[list(reads)].sum())
        for value in problem.writes[node]:
            old = int(problem.replaces[value])
            live += int(problem.size[value]) - (int(min(problem.size[old], problem.size[value])) if old in reads else 0)
        found = max(found, live)
    return found


class Simulator:
    """Simulates many plans of one problem; a problem of 600 nodes takes some 0.2 ms a plan."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._reads = _Rows(problem.reads)
        self._writes = _Rows(problem.writes)
        is_read = np.zeros(len(problem.size), np.bool_)
        is_read[self._reads.values] = True
        self._given = np.flatnonzero((problem.producer == GIVEN) & (is_read | problem.is_result))

    def run(self, stages: Stages = AS_IT_STANDS) -> Run:
        """What running the problem in these stages takes."""
        steps = order(len(self.problem.cost), stages)
        if not len(steps):
            return Run(0, 0, 0, steps, np.zeros(0, np.int64))
        live = self._live(steps) + self.problem.workspace[steps]
        at = int(np.argmax(live))
        return Run(int(live[at]), at, int(self.problem.cost[steps].sum()), steps, live)

    def _live(self, steps: Integers) -> Integers:
        """Bytes of the copies that are live at each step."""
        problem, count = self.problem, len(steps)
        read_at, read = self._reads.of(steps)
        written_at, written = self._writes.of(steps)
        # Events by value, then step; given values begin one before the first. No node reads what it writes.
        keys = [(read * (count + 1) + read_at + 1) * 2, (written * (count + 1) + written_at + 1) * 2 + 1]
        events = np.sort(np.concatenate([*keys, self._given * (count + 1) * 2 + 1]))
        value, at = np.divmod(events >> 1, count + 1)
        at = np.maximum(at - 1, 0)
        begins = np.flatnonzero(events & 1)
        ends = np.append(begins, len(events))[1:] - 1
        value, begin, end = value[begins], at[begins], at[ends]
        is_lasting = (np.append(value, -1)[1:] != value) & problem.is_result[value]
        end[is_lasting] = count - 1
        change = np.zeros(count + 1, np.int64)
        size = problem.size[value]
        np.add.at(change, begin, size)
        np.subtract.at(change, end + 1, size)
        live: Integers = np.cumsum(change)[:-1]
        np.subtract.at(live, *self._replaced(value, begin, np.where(is_lasting, -1, end), count))
        return live

    def _replaced(self, value: Integers, begin: Integers, end: Integers, count: int) -> tuple[Integers, Integers]:
        """The steps that write into the memory of what they read last, and how many bytes."""
        problem = self.problem
        ways = np.flatnonzero(problem.replaces[value] >= 0)
        old, new = problem.replaces[value[ways]], value[ways]
        is_dying = np.isin(old * count + begin[ways], value * count + end)
        return begin[ways][is_dying], np.minimum(problem.size[old], problem.size[new])[is_dying]


class _Rows:
    """Values of nodes, flat."""

    def __init__(self, rows: Sequence[Sequence[int]]) -> None:
        self.counts = np.fromiter(map(len, rows), np.int64, len(rows))
        self.starts = np.cumsum(self.counts) - self.counts
        self.values = np.fromiter((value for row in rows for value in row), np.int64, int(self.counts.sum()))

    def of(self, nodes: Integers) -> tuple[Integers, Integers]:
        """The values of these nodes one after another, each with its node's place among them."""
        counts = self.counts[nodes]
        place = np.repeat(np.arange(len(nodes)), counts)
        within = np.arange(len(place)) - np.repeat(np.cumsum(counts) - counts, counts)
        return place, self.values[self.starts[nodes][place] + within]


def order(count: int, stages: Stages) -> Integers:
    """The nodes in the order they run, those that are run again at their stages' beginnings."""
    pieces: list[Sequence[int]] = []
    start = 0
    for begin, again in zip(stages.begins, stages.again, strict=True):
        pieces += [range(start, begin), again]
        start = begin
    pieces.append(range(start, count))
    return np.concatenate([np.asarray(piece, np.int64) for piece in pieces])
