"""Less time and fewer stages, at no more memory."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from rematc.passes.planning.problem import Integers, Simulator, Stages
from rematc.passes.planning.timeline import BEFORE, Timeline

#: How many changes are tried at most.
TRIALS = 5_000


def drop(timeline: Timeline, budget: int) -> None:
    """Do not run again what can be held instead within the budget, the dearest first."""
    dearest = sorted(timeline.again(), key=lambda key: (-timeline.cost[key % timeline.stride], key))
    for key in dearest[:TRIALS]:
        if key not in timeline.runs[key % timeline.stride]:
            continue
        removed = without(timeline, key)
        if timeline.peak > budget:
            for other in reversed(removed):
                timeline.insert(other)


def without(timeline: Timeline, key: int) -> list[int]:
    """Do not run a node again, and nothing that ran for it alone; the keys of what does not, as they were removed."""
    removed = []
    work = [key]
    while work:
        key = work.pop()
        node = key % timeline.stride
        values = timeline.problem.reads[node]
        begins = [timeline.begin(value, key) for value in values]
        timeline.remove(key)
        removed.append(key)
        work += sorted({begin for begin in begins if _is_idle(timeline, begin)} - set(work))
    return removed


def merged(simulator: Simulator, stages: Stages) -> Stages:
    """Let stages begin together with the one before, where the peak is no higher for it.

    Neighbours are paired, all at once. What has to live longer does so between the two: pairs around steps that take
    too much are parted again, and not tried another time.
    """
    peak = simulator.run(stages).peak
    again = {begin: set(nodes) for begin, nodes in zip(stages.begins, stages.again, strict=True)}
    parted: set[tuple[int, int]] = set()
    while pairs := _pairs(again, parted):
        together = _joined(again, pairs)
        run = simulator.run(together)
        over = _gaps(simulator, together)[run.live > peak]
        apart = [pair for pair in pairs if np.any((over >= pair[0]) & (over <= pair[1]))]
        parted.update(apart if apart or not len(over) else pairs)
        if not len(over):
            again = {begin: set(nodes) for begin, nodes in zip(together.begins, together.again, strict=True)}
    return _joined(again, [])


def _pairs(again: dict[int, set[int]], parted: set[tuple[int, int]]) -> list[tuple[int, int]]:
    """Neighbouring stages, none in two pairs, that can begin together, the last ones first."""
    begins = sorted(again)
    pairs: list[tuple[int, int]] = []
    for pair in reversed(list(pairwise(begins))):
        is_free = not pairs or pairs[-1][0] != pair[1]
        if is_free and pair not in parted and max(again[pair[1]]) < pair[0]:
            pairs.append(pair)
    return pairs


def _joined(again: dict[int, set[int]], pairs: list[tuple[int, int]]) -> Stages:
    into = {later: begin for begin, later in pairs}
    joined: dict[int, set[int]] = {}
    for begin, nodes in again.items():
        joined[into.get(begin, begin)] = joined.get(into.get(begin, begin), set()) | nodes
    begins = tuple(sorted(joined))
    return Stages(begins, tuple(tuple(sorted(joined[begin])) for begin in begins))


def _gaps(simulator: Simulator, stages: Stages) -> Integers:
    """[steps] the node as which, or at whose stage's beginning, each step runs."""
    places = np.concatenate([np.arange(len(simulator.problem.cost)), *map(_repeated, stages.begins, stages.again)])
    places.sort()
    return places


def _repeated(begin: int, nodes: tuple[int, ...]) -> Integers:
    return np.full(len(nodes), begin, np.int64)


def _is_idle(timeline: Timeline, key: int) -> bool:
    """Whether a node runs again there and nothing reads what it writes."""
    if key == BEFORE or key % timeline.stride == timeline.stride - 1:
        return False
    return all(timeline.end(value, key) == key for value in timeline.problem.writes[key % timeline.stride])
