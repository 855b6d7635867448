"""The memory of a program over the schedule in which it stands, by the model of a device that plans are made with.

Before:  %0 = dot_general %x, %w   %1 = tanh %0   %2 = dot_general %1, %w   return %2
After:   step 0 dot_general, forward, step 1 tanh, forward; %0, 4 MiB, [0..1], read by step 1
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rematc.ir.core import Graph
from rematc.ir.facts import Storage
from rematc.ir.values import Value
from rematc.passes.memory_timeline import (
    BACKWARD,
    FORWARD,
    RECOMPUTED,
    LiveBuffer,
    MemoryTimeline,
    Step,
    backward_begin,
    role_of,
)
from rematc.passes.planning.shards import Machine
from rematc.passes.planning.translation import Translation, translate_passed
from rematc.passes.recomputation import recomputed_equations


@dataclass(frozen=True, slots=True)
class Simulated:
    """What a program takes.

    Attributes:
        peak: bytes of temporary memory.
        time: nanoseconds.
    """

    peak: int
    time: int


@dataclass(frozen=True)
class _Lives:
    """When values are in memory.

    Attributes:
        translation: the program.
        begins: for each value the node that writes it.
        ends: for each value the last node that reads it; one less where that writes over it.
        lent: the values that lie in the memory of results.
    """

    translation: Translation
    begins: Sequence[int]
    ends: Sequence[int]
    lent: frozenset[int]

    @staticmethod
    def of(graph: Graph, machine: Machine, aliased: Sequence[tuple[int, int]]) -> _Lives:
        """Of a graph after the passes; `aliased` are pairs of a parameter and the result that lies in its memory."""
        translation = translate_passed(graph, machine)
        problem = translation.problem
        begins: list[int] = problem.producer.tolist()
        ends = list(begins)
        for node, row in enumerate(problem.reads):
            for value in row:
                ends[value] = node
        for value, old in enumerate(problem.replaces.tolist()):
            if old >= 0 and ends[old] == begins[value] and problem.size[old] == problem.size[value]:
                ends[old] -= 1
        rooms = _rooms(translation, begins, aliased)
        return _Lives(translation, begins, ends, _lent(problem.size.tolist(), begins, ends, rooms))

    def peak(self) -> int:
        """Bytes that are live at once at most, in memory that is no result's."""
        problem = self.translation.problem
        change = np.zeros(len(problem.cost) + 1, np.int64)
        for value, (begin, end) in enumerate(zip(self.begins, self.ends, strict=True)):
            if value not in self.lent and end >= begin:
                change[begin] += problem.size[value]
                change[end + 1] -= problem.size[value]
        return int((np.cumsum(change)[:-1] + problem.workspace).max(initial=0))


def simulated(graph: Graph, machine: Machine, aliased: Sequence[tuple[int, int]] = ()) -> Simulated:
    """What a graph after the passes takes, on one of the devices that it runs on.

    `aliased` are pairs of a parameter and the result that lies in its memory, by their numbers.
    """
    lives = _Lives.of(graph, machine, aliased)
    return Simulated(lives.peak(), int(lives.translation.problem.cost.sum()))


def simulated_timeline(
    graph: Graph, machine: Machine, aliased: Sequence[tuple[int, int]] = (), *, is_differentiated: bool
) -> MemoryTimeline:
    """The memory of a graph after the passes; without a derivative all of it is forward."""
    again = {value for eqn in recomputed_equations(graph) for value in eqn.results}
    lives = _Lives.of(graph, machine, aliased)
    translation = lives.translation
    problem, begins, ends = translation.problem, lives.begins, lives.ends
    sizes: list[int] = problem.size.tolist()
    own = [translation.own(node) for node in range(len(problem.cost))]
    repeats = [not again.isdisjoint(eqn.results) for eqn in own]
    held = [v for v, size in enumerate(sizes) if size and ends[v] >= begins[v] and v not in lives.lent]
    backward = len(own)
    if is_differentiated:
        losses = [node for node, eqn in enumerate(own) if any(not each.type.shape for each in eqn.results)]
        first, last, bytes_of = ([of[value] for value in held] for of in (begins, ends, sizes))
        backward = backward_begin(first, last, bytes_of, len(own), losses)
        backward = min(backward, next((node for node, is_again in enumerate(repeats) if is_again), backward))
    steps = []
    for node, (eqn, is_again) in enumerate(zip(own, repeats, strict=True)):
        phase = RECOMPUTED if is_again else FORWARD if node < backward else BACKWARD
        steps.append(Step(eqn.op.name, phase, eqn.loc, int(problem.workspace[node])))
    reads = _readers(translation)
    buffers = []
    for value in held:
        begin, end = begins[value], ends[value]
        eqn, type = own[begin], str(translation.values[value].type)
        role = role_of(begin, end, steps[begin].phase, backward)
        buffers.append(LiveBuffer(eqn.op.name, type, sizes[value], begin, end, role, tuple(reads[value]), eqn.loc))
    arguments = sum(value.type.bytes for value in graph.params if not value.type.on_host)
    results = sum(value.type.bytes for value in graph.results if not value.type.on_host)
    return MemoryTimeline(tuple(steps), tuple(buffers), backward, arguments, results)


def _readers(translation: Translation) -> Sequence[list[int]]:
    """For each value the nodes that read it."""
    found: list[list[int]] = [[] for _ in translation.values]
    for node, row in enumerate(translation.problem.reads):
        for value in row:
            found[value].append(node)
    return found


@dataclass(slots=True)
class _Room:
    """The memory of a result: its bytes, and between which nodes it is taken, ascending."""

    size: int
    taken: list[tuple[int, int]]

    def take(self, begin: int, end: int) -> bool:
        """Take it between two nodes, with these, if nothing else does."""
        at = bisect_left(self.taken, (begin, end))
        is_free = (not at or self.taken[at - 1][1] < begin) and (at == len(self.taken) or self.taken[at][0] > end)
        if is_free:
            self.taken.insert(at, (begin, end))
        return is_free


def _rooms(translation: Translation, begins: Sequence[int], aliased: Sequence[tuple[int, int]]) -> list[_Room]:
    """The memory of the results, the smallest first, taken from when they are written."""
    graph, count = translation.graph, len(translation.problem.cost)
    written = dict(zip(translation.values, begins, strict=True))
    roots: dict[Value, Value] = {}
    for eqn in graph.equations:
        if eqn.op.storage is Storage.ALIAS or eqn.op.storage is Storage.BITCAST:
            roots[eqn.results[0]] = roots.get(eqn.operands[0], eqn.operands[0])
    read: dict[Value, int] = {}
    for node, cluster in enumerate(translation.clusters):
        read.update((value, node) for eqn in cluster for value in eqn.operands)
    donors = {place: graph.params[index] for index, place in aliased}
    given = set(graph.params)
    found: dict[Value, _Room] = {}
    for place, value in enumerate(graph.results):
        root = roots.get(value, value)
        if root in given or root in found or value.type.on_host:
            continue
        # What is computed of values in memory, and fused, is written last.
        taken = [(written.get(root, count), count)]
        donor = donors.get(place)
        if donor is not None and donor in read:
            taken.insert(0, (-1, min(read[donor], taken[0][0] - 1)))
        found[root] = _Room(value.type.bytes, taken)
    return sorted(found.values(), key=lambda room: room.size)


def _lent(sizes: Sequence[int], begins: Sequence[int], ends: Sequence[int], rooms: Sequence[_Room]) -> frozenset[int]:
    """The values that lie in the memory of results that are not written yet: the largest first, each in the smallest.

    So XLA assigns buffers (`BufferAssigner`). What is a thousandth of the rooms together is not looked for a place.
    """
    least = sum(room.size for room in rooms) // 1000
    found = set()
    for value in sorted(range(len(sizes)), key=lambda value: -sizes[value]):
        size = sizes[value]
        if size <= least:
            break
        fitting = rooms[bisect_left(rooms, size, key=lambda room: room.size) :]
        if ends[value] >= begins[value] and any(room.take(begins[value], ends[value]) for room in fitting):
            found.add(value)
    return frozenset(found)
