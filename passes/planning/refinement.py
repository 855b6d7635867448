"""Less time and fewer stages, at no more memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

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


def merge(timeline: Timeline) -> None:
    """Let stages begin together, earlier, where the peak is no higher for it."""
    peak = timeline.peak
    stages: dict[int, list[int]] = {}
    for key in timeline.again():
        stages.setdefault(timeline.gap(key), []).append(key % timeline.stride)
    begins = sorted(stages)
    left = 8 * TRIALS
    for begin, later in zip(reversed(begins[:-1]), reversed(begins), strict=False):
        if stages[later][-1] >= begin:
            continue
        if _least_peak(timeline, begin, later, stages) > peak:
            continue
        left -= len(stages[later])
        if left < 0:
            return
        new = [timeline.key(begin, node) for node in stages[later] if node not in stages[begin]]
        old = [timeline.key(later, node) for node in stages[later]]
        _exchange(timeline, old, new)
        if timeline.peak > peak:
            _exchange(timeline, new, old)
            continue
        stages[begin] = sorted({*stages[begin], *stages.pop(later)})


def _least_peak(timeline: Timeline, begin: int, later: int, stages: dict[int, list[int]]) -> int:
    """What the peak between two stages is at least when what runs in the later one runs in the earlier one."""
    keys = [timeline.key(later, node) for node in stages[later]]
    first, last = bisect_left(timeline.keys, timeline.key(begin + 1, 0)), bisect_left(timeline.keys, keys[0])
    peak = int(timeline.live[first:last].max(initial=0))
    written = [value for node in stages[later] for value in timeline.problem.writes[node]]
    moved = [value for node in set(stages[later]) - set(stages[begin]) for value in timeline.problem.writes[node]]
    read = {value for node in stages[later] for value in timeline.problem.reads[node]} - set(written)
    after = keys[-1] + 1
    peak += sum(timeline.size[v] for v in moved if timeline.end(v, timeline.begin(v, after)) >= after)
    return peak - sum(timeline.size[v] for v in read if timeline.end(v, timeline.begin(v, keys[0])) < after)


def _exchange(timeline: Timeline, old: Iterable[int], new: Iterable[int]) -> None:
    for key in old:
        timeline.remove(key)
    for key in new:
        timeline.insert(key)


def _is_idle(timeline: Timeline, key: int) -> bool:
    """Whether a node runs again there and nothing reads what it writes."""
    if key == BEFORE or key % timeline.stride == timeline.stride - 1:
        return False
    return all(timeline.end(value, key) == key for value in timeline.problem.writes[key % timeline.stride])
