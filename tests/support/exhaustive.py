"""The least time of any way to run a problem within a budget: Dijkstra over what has run, and what is live."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from itertools import combinations

from rematc.passes.planning.problem import GIVEN, Problem


def least_time(problem: Problem, budget: int, *, is_staged: bool = True) -> int | None:
    """Nanoseconds of the fastest way within so many bytes; None where there is none. Freeing costs nothing.

    Between two nodes that run for the first time others run again in any order; `is_staged`: in their own, each once.
    """
    count = len(problem.cost)
    reads = [_mask(row) for row in problem.reads]
    writes = [_mask(row) for row in problem.writes]
    results = _mask([value for value, is_result in enumerate(problem.is_result) if is_result])
    is_read = _mask([value for row in problem.reads for value in row]) | results
    start = _mask([value for value, node in enumerate(problem.producer) if node == GIVEN]) & is_read
    # A state is how many nodes have run for the first time, the one that ran again last, and the values that are live.
    best = {(0, -1, start): 0}
    heap = [(0, 0, -1, start)]
    while heap:
        time, done, latest, live = heapq.heappop(heap)
        if time > best[done, latest, live]:
            continue
        if done == count:
            return time
        following = [(time, done, latest, live & ~(1 << value)) for value in _bits(live)]
        for node in range(latest + 1 if is_staged else 0, done + 1):
            if reads[node] & ~live or (node < done and not problem.is_repeatable[node]):
                continue
            after = live | writes[node]
            for given_up, saved in _in_place(problem, node):
                if _bytes(problem, after) - saved + int(problem.workspace[node]) <= budget:
                    cost = time + int(problem.cost[node])
                    again = node if is_staged and node < done else -1
                    following.append((cost, max(done, node + 1), again, after & ~given_up))
        for state in following:
            if state[1] == count and results & ~state[3]:
                continue
            if state[0] < best.get(state[1:], state[0] + 1):
                best[state[1:]] = state[0]
                heapq.heappush(heap, state)
    return None


def _in_place(problem: Problem, node: int) -> list[tuple[int, int]]:
    """The sets of values that the node's results can take the place of, and the bytes that this saves."""
    pairs = [(int(problem.replaces[value]), value) for value in problem.writes[node] if problem.replaces[value] >= 0]
    return [
        (_mask([old for old, _ in some]), sum(min(int(problem.size[old]), int(problem.size[new])) for old, new in some))
        for number in range(len(pairs) + 1)
        for some in combinations(pairs, number)
    ]


def _bytes(problem: Problem, live: int) -> int:
    return sum(int(problem.size[value]) for value in _bits(live))


def _mask(values: Iterable[int]) -> int:
    return sum(1 << value for value in set(values))


def _bits(mask: int) -> list[int]:
    return [value for value in range(mask.bit_length()) if mask >> value & 1]
