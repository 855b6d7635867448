"""The fastest plan of a small problem: Dijkstra's search over what has run, what runs again, and what is live."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from rematc.passes.planning.problem import GIVEN, Problem, Stages

#: How many nodes and values a problem has at most, and how many states are looked at.
NODES, VALUES, STATES = 16, 24, 20_000

#: How many nodes have run for the first time, the one that ran again last (-1: none since), the bits of what is live.
_State = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Answer:
    """What the search says: the fastest plan, or that there is none."""

    stages: Stages | None


def fastest(problem: Problem, budget: int) -> Answer | None:
    """The fastest plan within a budget, in bytes; None where the problem is too large to tell."""
    count = len(problem.cost)
    if count > NODES or len(problem.size) > VALUES:
        return None
    graph = _Graph(problem, budget)
    start = (0, -1, graph.given)
    best = {start: 0}
    before: dict[_State, _State] = {}
    # By what runs again, then those that are farther.
    heap = [(0, 0, start)]
    for _ in range(STATES):
        if not heap:
            return Answer(None)
        time, _, state = heapq.heappop(heap)
        if time > best[state]:
            continue
        if state[0] == count:
            return Answer(_stages(before, state))
        for cost, following in graph.following(state):
            if time + cost < best.get(following, time + cost + 1):
                best[following] = time + cost
                before[following] = state
                heapq.heappush(heap, (time + cost, -following[0], following))
    return None


class _Graph:
    """The states that follow one another."""

    def __init__(self, problem: Problem, budget: int) -> None:
        self.problem = problem
        self.budget = budget
        self._size: list[int] = problem.size.tolist()
        self._reads = [_mask(row) for row in problem.reads]
        self._writes = [_mask(row) for row in problem.writes]
        self._results = _mask(value for value, is_result in enumerate(problem.is_result) if is_result)
        self._bytes: dict[int, int] = {}
        self._useful = self._uses()
        is_read = _mask(value for row in problem.reads for value in row) | self._results
        self.given = _mask(value for value, node in enumerate(problem.producer) if node == GIVEN) & is_read

    def following(self, state: _State) -> list[tuple[int, _State]]:
        """The states after one more node, with what runs again for it; nothing is freed before room is needed."""
        done, latest, live = state
        found = []
        for node in range(latest + 1, done + 1):
            if self._reads[node] & ~live or (node < done and not self.problem.is_repeatable[node]):
                continue
            cost, again = (int(self.problem.cost[node]), node) if node < done else (0, -1)
            number = max(done, node + 1)
            after = live | self._writes[node]
            need = self._count(after) + int(self.problem.workspace[node]) - self.budget
            for replaced, saved in self._in_place(node):
                for freed in self._room(after & ~self._reads[node] & ~self._writes[node], need - saved):
                    new = after & ~freed & ~replaced & self._useful[number]
                    if number < len(self._reads) or not self._results & ~new:
                        found.append((cost, (number, again, new)))
        return found

    def _room(self, live: int, need: int) -> list[int]:
        """The least sets of values that make room when they are freed."""
        if need <= 0:
            return [0]
        found, partial = [], [(0, 0)]
        for size, value in sorted(((self._size[value], value) for value in _values(live)), reverse=True):
            if not size:
                break
            # With the largest first, only what came last can be too much.
            found += [freed | 1 << value for freed, known in partial if known + size >= need]
            partial += [(freed | 1 << value, known + size) for freed, known in partial if known + size < need]
        return found

    def _in_place(self, node: int) -> list[tuple[int, int]]:
        """What the node's results can take the place of, and the bytes that this saves."""
        found = [(0, 0)]
        for value in self.problem.writes[node]:
            old = int(self.problem.replaces[value])
            if old >= 0:
                saved = min(self._size[old], self._size[value])
                found += [(freed | 1 << old, known + saved) for freed, known in found]
        return found

    def _uses(self) -> list[int]:
        """For each number of nodes that have run, the values that can be read still, by what runs again as well."""
        problem, count = self.problem, len(self._reads)
        last = [count if is_result else -1 for is_result in problem.is_result]
        for node in reversed(range(count)):
            until = max([node, *(last[value] for value in problem.writes[node] if problem.is_repeatable[node])])
            for value in problem.reads[node]:
                last[value] = max(last[value], until)
        return [_mask(value for value, until in enumerate(last) if until >= done) for done in range(count + 1)]

    def _count(self, live: int) -> int:
        if live not in self._bytes:
            self._bytes[live] = sum(size for value, size in enumerate(self._size) if live >> value & 1)
        return self._bytes[live]


def _stages(before: dict[_State, _State], state: _State) -> Stages:
    again: dict[int, list[int]] = {}
    while state in before:
        earlier = before[state]
        if state[1] >= 0 and state[1] != earlier[1]:
            again.setdefault(state[0], []).append(state[1])
        state = earlier
    begins = tuple(sorted(again))
    return Stages(begins, tuple(tuple(reversed(again[begin])) for begin in begins))


def _values(mask: int) -> list[int]:
    return [value for value in range(mask.bit_length()) if mask >> value & 1]


def _mask(values: Iterable[int]) -> int:
    return sum(1 << value for value in set(values))
