"""Less time at no more memory."""

from __future__ import annotations

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


def _is_idle(timeline: Timeline, key: int) -> bool:
    """Whether a node runs again there and nothing reads what it writes."""
    if key == BEFORE or key % timeline.stride == timeline.stride - 1:
        return False
    return all(timeline.end(value, key) == key for value in timeline.problem.writes[key % timeline.stride])
