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
        steps: the nodes in the order they run, those that are run again at their stages' beginnings.
        live: [steps] bytes that are live at each.
    """

    peak: int
    at: int
    time: int
    steps: Sequence[int]
    live: Integers


def simulate(problem: Problem, stages: Stages = AS_IT_STANDS) -> Run:
    """Run a problem in stages: outputs are allocated, then inputs that nothing reads any more are freed."""
    steps = _steps(len(problem.cost), stages)
    begin: dict[int, int] = {}
    last: dict[int, int] = {}
    ended: list[tuple[int, int, int]] = []
    for step, node in enumerate(steps):
        for value in problem.reads[node]:
            last[value] = step
        for value in problem.writes[node]:
            if value in begin:
                ended.append((value, begin[value], last[value]))
            begin[value] = last[value] = step
    count = len(steps)
    for value, at in last.items():
        end = count - 1 if problem.is_result[value] else at
        ended.append((value, begin.get(value, 0), end))
    live = _live(problem, steps, ended) + problem.workspace[np.asarray(steps, np.int64)] if count else np.zeros(0, int)
    at = int(np.argmax(live)) if count else 0
    return Run(int(live[at]) if count else 0, at, int(problem.cost[np.asarray(steps, np.int64)].sum()), steps, live)


def _steps(count: int, stages: Stages) -> list[int]:
    steps: list[int] = []
    start = 0
    for begin, again in zip(stages.begins, stages.again, strict=True):
        steps.extend(range(start, begin))
        steps.extend(again)
        start = begin
    steps.extend(range(start, count))
    return steps


def _live(problem: Problem, steps: Sequence[int], ended: Sequence[tuple[int, int, int]]) -> Integers:
    change = np.zeros(len(steps) + 1, np.int64)
    dying = {(value, end) for value, _, end in ended}
    for value, begin, end in ended:
        size = int(problem.size[value])
        change[begin] += size
        change[end + 1] -= size
        replaced = int(problem.replaces[value])
        if replaced >= 0 and (replaced, begin) in dying:
            # The operand is counted until then.
            change[begin] -= min(size, int(problem.size[replaced]))
            change[begin + 1] += min(size, int(problem.size[replaced])) if end > begin else 0
            change[end + 1] += min(size, int(problem.size[replaced])) if end == begin else 0
    return np.cumsum(change)[:-1]
