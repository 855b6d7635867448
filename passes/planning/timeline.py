"""The live set of a plan while it changes: nodes are run again or not, one at a time, in microseconds.

Every run has a key: its place among all that there could be. With n nodes, node i itself stands at i (n + 1) + n, and
node j, run again at the beginning of a stage that begins at node g, at g (n + 1) + j. A key never changes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from itertools import chain

import numpy as np

from rematc.passes.planning.problem import AS_IT_STANDS, GIVEN, Integers, Problem, Simulator, Stages

#: The key before all others, and the one after.
BEFORE, AFTER = -1, 1 << 62


class Timeline:
    """A plan that can be changed, with the bytes that are live at each of its steps.

    Attributes:
        keys: [steps] the keys of what runs, ascending.
        time: nanoseconds of all of them.
        runs: for each node the keys at which it runs, ascending; the first is its own.
        reads: for each value the keys of the runs that read it, ascending.
    """

    def __init__(self, problem: Problem, stages: Stages = AS_IT_STANDS) -> None:
        count = len(problem.cost)
        self.problem = problem
        self.stride = count + 1
        run = Simulator(problem).run(stages)
        gaps = [gap for begin, nodes in zip(stages.begins, stages.again, strict=True) for gap in [begin] * len(nodes)]
        again = [gap * self.stride + node for gap, node in zip(gaps, chain.from_iterable(stages.again), strict=True)]
        self.keys = sorted([node * self.stride + count for node in range(count)] + again)
        self._live: Integers = np.concatenate([run.live, np.zeros(count, np.int64)])
        self.time = run.time
        self.runs: list[list[int]] = [[] for _ in range(count)]
        self.reads: list[list[int]] = [[] for _ in range(len(problem.size))]
        for key, node in zip(self.keys, run.steps.tolist(), strict=True):
            self.runs[node].append(key)
            for value in problem.reads[node]:
                self.reads[value].append(key)
        self.cost: list[int] = problem.cost.tolist()
        self.size: list[int] = problem.size.tolist()
        self.producer: list[int] = problem.producer.tolist()
        self._workspace: list[int] = problem.workspace.tolist()
        self._is_result: list[bool] = problem.is_result.tolist()
        self._replaces: list[int] = problem.replaces.tolist()
        self._is_replacing = [any(self._replaces[value] >= 0 for value in row) for row in problem.writes]
        self._has_replacing = any(self._is_replacing)
        self._replaced: dict[int, int] = {}
        for key in self.keys if self._has_replacing else []:
            if self._is_replacing[self.node(key)]:
                self._replaced[key] = self._bytes_replaced(self.node(key), key)

    @property
    def live(self) -> Integers:
        """[steps] bytes that are live at each step; changes with the plan."""
        return self._live[: len(self.keys)]

    @property
    def peak(self) -> int:
        """The most bytes that are live at once."""
        return int(self.live.max(initial=0))

    def node(self, key: int) -> int:
        """The node that runs there."""
        gap, node = divmod(key, self.stride)
        return gap if node == self.stride - 1 else node

    def gap(self, key: int) -> int:
        """The node before which, or as which, it runs."""
        return key // self.stride

    def key(self, gap: int, node: int) -> int:
        """The key of running a node again where a stage begins at `gap`."""
        return gap * self.stride + node

    def begin(self, value: int, key: int) -> int:
        """The key of the run that writes what is read there; BEFORE where it is given."""
        producer = self.producer[value]
        if producer == GIVEN:
            return BEFORE
        runs = self.runs[producer]
        return runs[bisect_left(runs, key) - 1]

    def following(self, value: int, key: int) -> int:
        """The key of the next run after this one that writes the value; AFTER where there is none."""
        producer = self.producer[value]
        if producer == GIVEN:
            return AFTER
        runs = self.runs[producer]
        place = bisect_right(runs, key)
        return runs[place] if place < len(runs) else AFTER

    def end(self, value: int, begin: int) -> int:
        """The key of the last run that reads the copy which is written there; AFTER for a result's last copy."""
        return self._end(value, begin, self.following(value, begin))

    def copy(self, value: int, key: int) -> tuple[int, int]:
        """`begin` of what is read at a key, and `end` of it: at once, as both are asked for most."""
        producer = self.producer[value]
        begin, following = BEFORE, AFTER
        if producer != GIVEN:
            runs = self.runs[producer]
            place = bisect_left(runs, key)
            begin = runs[place - 1]
            following = runs[place] if place < len(runs) else AFTER
        return begin, self._end(value, begin, following)

    def _end(self, value: int, begin: int, following: int) -> int:
        """`end` of what is written at a key, where the next run that writes it is known."""
        if following == AFTER and self._is_result[value]:
            return AFTER
        reads = self.reads[value]
        place = bisect_left(reads, following) - 1
        return reads[place] if place >= 0 and reads[place] > begin else begin

    def insert(self, key: int) -> None:
        """Run a node again at the key."""
        node = key % self.stride
        place, count = bisect_left(self.keys, key), len(self.keys)
        after = self.keys[place]
        writer = self.node(after)
        through = int(self._live[place]) - self._workspace[writer] + self._replaced.get(after, 0)
        through -= sum(self.size[value] for value in self.problem.writes[writer])
        if count == len(self._live):
            self._live = np.concatenate([self._live, np.zeros(count, np.int64)])
        self.keys.insert(place, key)
        self._live[place + 1 : count + 1] = self._live[place:count]
        self._live[place] = through + self._workspace[node]
        self.time += self.cost[node]
        touched = [key]
        for value in self.problem.reads[node]:
            touched.append(self._read(value, key, 1))
            insort(self.reads[value], key)
        for value in self.problem.writes[node]:
            touched.append(self._write(value, key, place, 1))
        insort(self.runs[node], key)
        self._mend(touched)

    def remove(self, key: int) -> None:
        """Do not run a node again at the key."""
        node = key % self.stride
        place, count = bisect_left(self.keys, key), len(self.keys)
        self.time -= self.cost[node]
        self.runs[node].remove(key)
        touched = [self._write(value, key, place, -1) for value in self.problem.writes[node]]
        for value in self.problem.reads[node]:
            self.reads[value].remove(key)
            touched.append(self._read(value, key, -1))
        self._replaced.pop(key, None)
        del self.keys[place]
        self._live[place : count - 1] = self._live[place + 1 : count]
        self._mend(touched)

    def held(self, step: int) -> tuple[int, ...]:
        """The values that are live at a step and take memory."""
        key = self.keys[step]
        found = []
        for value, size in enumerate(self.size):
            if size and (self.producer[value] == GIVEN or self.runs[self.producer[value]][0] <= key):
                is_there = self.end(value, self.begin(value, key + 1)) >= key
                if is_there and (self.reads[value] or self.producer[value] != GIVEN or self._is_result[value]):
                    found.append(value)
        return tuple(found)

    def again(self) -> list[int]:
        """The keys of what runs again, ascending."""
        own = self.stride - 1
        return [key for key in self.keys if key % self.stride != own]

    def stages(self) -> Stages:
        """The plan as it is now."""
        again: dict[int, list[int]] = {}
        for key in self.again():
            again.setdefault(key // self.stride, []).append(key % self.stride)
        return Stages(tuple(again), tuple(map(tuple, again.values())))

    def _read(self, value: int, key: int, sign: int) -> int:
        """Let a copy live until a read that is not in `reads`, or no longer; the key at which it ends without it."""
        begin = self.begin(value, key)
        reads = self.reads[value]
        place = bisect_left(reads, key)
        previous = reads[place - 1] if place and reads[place - 1] > begin else begin
        if self.end(value, begin) < key:
            self._add(previous, key + 1, sign * self.size[value])
        return previous

    def _write(self, value: int, key: int, place: int, sign: int) -> int:
        """Let a copy begin at a run that is not in `runs`, or no longer; the key at which the one before ends then."""
        begin = self.begin(value, key)
        reads = self.reads[value]
        earlier = bisect_left(reads, key)
        previous = reads[earlier - 1] if earlier and reads[earlier - 1] > begin else begin
        if self.end(value, begin) > key:
            self._add(previous, key, -sign * self.size[value])
        else:
            self._live[place] += sign * self.size[value]
        return previous

    def _add(self, low: int, high: int, size: int) -> None:
        """Count bytes at the keys between two, without these."""
        self._live[bisect_right(self.keys, low) : bisect_left(self.keys, high)] += size

    def _mend(self, keys: list[int]) -> None:
        """Count again what takes the memory of another value, where one's end has changed."""
        if not self._has_replacing:
            return
        for key in keys:
            if key == BEFORE or not self._is_replacing[self.node(key)]:
                continue
            size, known = self._bytes_replaced(self.node(key), key), self._replaced.get(key, 0)
            if size != known:
                self._replaced[key] = size
                self._live[bisect_left(self.keys, key)] -= size - known

    def _bytes_replaced(self, node: int, key: int) -> int:
        size = 0
        for value in self.problem.writes[node]:
            old = self._replaces[value]
            if old >= 0 and self.end(old, self.begin(old, key)) == key:
                size += min(self.size[old], self.size[value])
        return size
