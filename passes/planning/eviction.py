"""Less memory, one value at a time: what is live over steps that take too much is run again before it is read.

Before:  %a is written at step 2, read at 3 and at 40; steps 10 to 30 take more than the budget
After:   %a is live until step 3, and its node runs again before step 40, in a stage that begins there; so do the nodes
         whose values it reads and that are no longer live, or these stay live until then, whichever costs less
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from rematc.passes.planning.problem import GIVEN
from rematc.passes.planning.timeline import Timeline

#: What part of the steps that take too much is left when moves are weighed anew.
FEW = 0.5
#: How many nodes a move runs again at most.
MOST = 60


@dataclass(slots=True)
class _Move:
    """Runs to insert and to remove; what they cost in time, and what they add and take in bytes times steps.

    Attributes:
        rate: bytes times steps that a nanosecond is worth.
        limit: what the move may cost, in bytes times steps, before nothing more is looked for.
        nodes: those that run again.
    """

    rate: float
    time: int = 0
    weight: float = 0.0
    limit: float = math.inf
    inserted: list[int] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)
    nodes: set[int] = field(default_factory=set)

    @property
    def cost(self) -> float:
        """In bytes times steps; with more runs it is never less."""
        return self.time * self.rate - self.weight


class Eviction:
    """Makes a plan take less memory than it does.

    A move ends the life of a copy between two of its reads: a hole. Its gain is the bytes times the steps in the hole
    that take too much, less what operands take that have to live longer for it.
    """

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self._is_repeatable: list[bool] = timeline.problem.is_repeatable.tolist()
        self._epsilon = 1 + int(timeline.problem.cost.sum()) // (1000 * max(1, len(timeline.problem.cost)))
        self._keys: list[int] = []
        self._over: list[int] = [0]

    def fit(self, budget: int) -> bool:
        """Evict until nothing is above the budget; whether that was possible."""
        excess = self._excess(budget)
        while excess:
            before = excess
            excess = self._round(budget, excess)
            if excess == before:
                return False
        return True

    def _round(self, budget: int, excess: int) -> int:
        """Make moves, by what was too much at first, until many steps are no more; the excess that is left."""
        timeline = self.timeline
        self._measure(budget)
        few = FEW * self._over[-1]
        heap = [(-self._bound(hole), hole) for hole in self._holes(range(len(timeline.size)))]
        heapq.heapify(heap)
        while heap and excess:
            known, hole = heapq.heappop(heap)
            move = self._move(hole)
            score = move.weight / (move.time + self._epsilon) if move else 0.0
            if move is None or score <= 0:
                continue
            if heap and score < -heap[0][0] * (1 - 1e-9) and score < -known:
                heapq.heappush(heap, (-score, hole))
                continue
            values = self.apply(move)
            after = self._excess(budget)
            if after >= excess:
                self.undo(move)
                continue
            excess = after
            if np.count_nonzero(timeline.live > budget) < few:
                break
            for new in self._holes(values):
                heapq.heappush(heap, (-self._bound(new), new))
        return excess

    def apply(self, move: _Move) -> list[int]:
        """Make a move; the values whose holes have changed."""
        problem = self.timeline.problem
        for key in move.removed:
            self.timeline.remove(key)
        for key in move.inserted:
            self.timeline.insert(key)
        nodes = {self.timeline.node(key) for key in move.inserted + move.removed}
        return sorted({value for node in nodes for value in (*problem.reads[node], *problem.writes[node])})

    def undo(self, move: _Move) -> None:
        """Take a move back."""
        for key in move.inserted:
            self.timeline.remove(key)
        for key in move.removed:
            self.timeline.insert(key)

    def _excess(self, budget: int) -> int:
        return int(np.maximum(self.timeline.live - budget, 0).sum())

    def _measure(self, budget: int) -> None:
        """Count the steps that take too much, from the first one on."""
        self._keys = self.timeline.keys.copy()
        self._over = [0, *np.cumsum(self.timeline.live > budget).tolist()]

    def _steps_over(self, low: int, high: int) -> int:
        """How many steps between two keys, without these, took too much."""
        first, last = bisect_right(self._keys, low), bisect_left(self._keys, high)
        return self._over[last] - self._over[first] if last > first else 0

    def _bound(self, hole: tuple[int, int, int]) -> float:
        value, low, high = hole
        producer = self.timeline.producer[value]
        over = self._steps_over(low, high)
        return self.timeline.size[value] * over / (self.timeline.cost[producer] + self._epsilon)

    def _holes(self, values: range | list[int]) -> list[tuple[int, int, int]]:
        """For each value the pairs of neighbouring reads, or write and read, between which a copy is held."""
        found = []
        timeline = self.timeline
        for value in values:
            producer = timeline.producer[value]
            if producer == GIVEN or not timeline.size[value] or not self._is_repeatable[producer]:
                continue
            events = sorted([*timeline.runs[producer], *timeline.reads[value]])
            writes = set(timeline.runs[producer])
            for low, high in pairwise(events):
                if high not in writes and self._steps_over(low, high):
                    found.append((value, low, high))
        return found

    def _move(self, hole: tuple[int, int, int]) -> _Move | None:
        """How to have the value anew at the end of the hole; None where the hole is no longer there."""
        value, low, high = hole
        timeline = self.timeline
        producer = timeline.producer[value]
        reads = timeline.reads[value]
        place = bisect_left(reads, high)
        if place >= len(reads) or reads[place] != high:
            return None
        begin = timeline.begin(value, high)
        if begin > low or (reads[place - 1] if place and reads[place - 1] > begin else begin) != low:
            return None
        over = self._steps_over(low, high)
        if not over:
            return None
        gap = timeline.gap(high)
        if timeline.key(gap, producer) <= low:
            return None
        best, rate = None, 0.0
        for _ in range(4):
            move = _Move(rate, weight=float(timeline.size[value] * over))
            self._run(producer, gap, move, set())
            score = move.weight / (move.time + self._epsilon)
            if best is not None and score <= rate:
                break
            best, rate = move, score
            if rate <= 0:
                break
        return best

    def _run(self, node: int, gap: int, move: _Move, held_values: set[int]) -> None:
        """Run a node at a stage's beginning, with what it needs there."""
        timeline = self.timeline
        key = timeline.key(gap, node)
        move.nodes.add(node)
        move.inserted.append(key)
        runs = timeline.runs[node]
        place = bisect_right(runs, key)
        if place < len(runs) and place > 0:
            later = runs[place]
            # It would run later: it runs now instead, where this does not take too much.
            move.removed.append(later)
            for value in timeline.problem.writes[node]:
                move.weight -= timeline.size[value] * self._steps_over(key, later)
        else:
            move.time += timeline.cost[node]
        for value in timeline.problem.reads[node]:
            if move.cost >= move.limit:
                return
            self._need(value, key, move, held_values)

    def _need(self, value: int, key: int, move: _Move, held_values: set[int]) -> None:
        """Have an operand there: it is live, stays live, or is run again."""
        timeline = self.timeline
        producer = timeline.producer[value]
        if value in held_values or producer in move.nodes or (not timeline.size[value] and producer == GIVEN):
            return
        begin, end = timeline.copy(value, key)
        if end >= key or (producer != GIVEN and begin == timeline.key(timeline.gap(key), producer)):
            return
        held_values.add(value)
        held = timeline.size[value] * self._steps_over(end, key)
        if not held:
            return
        if producer == GIVEN or not self._is_repeatable[producer] or len(move.nodes) >= MOST:
            move.weight -= held
            return
        # Running it again is a part of this move, and is taken back where it costs no less than holding.
        time, weight, limit, most = move.time, move.weight, move.limit, move.cost + held
        inserted, removed = len(move.inserted), len(move.removed)
        move.limit = min(most, limit)
        self._run(producer, timeline.gap(key), move, held_values)
        move.limit = limit
        if move.cost >= most:
            move.nodes.difference_update([run % timeline.stride for run in move.inserted[inserted:]])
            del move.inserted[inserted:], move.removed[removed:]
            move.time, move.weight = time, weight - held
