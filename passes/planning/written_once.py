"""Values that a plan counts on being written once, in the place of another, for several readers.

    %1 = exponential %0   %2 = multiply %1, %s   %3 = dot_general %2, %w   %4 = dot_general %x, %2

The multiplication takes the memory of %1, and both products read %2. A compiler that computes it once for each of them,
fused into the copy that a product makes of its operand, holds %1, %2 and the copy at once: three times as much, which
of logits is all the memory there is. Behind a barrier %2 is written, and read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection

from rematc.passes.planning.problem import Problem, Stages
from rematc.passes.planning.timeline import Timeline


def written_once(problem: Problem, stages: Stages, fuses: Collection[int] = ()) -> tuple[frozenset[int], ...]:
    """For each stage the values of which a plan's peak would be exceeded if what they are written over lived as long.

    Args:
        problem: the program.
        stages: the plan; what stands before its first stage comes first.
        fuses: the nodes that take what they read into their own kernels: where all readers do, there is no copy.
    """
    timeline = Timeline(problem, stages)
    peak, runs = timeline.peak, timeline.runs
    found: list[set[int]] = [set() for _ in range(len(stages.begins) + 1)]
    for value, (old, producer) in enumerate(zip(problem.replaces.tolist(), timeline.producer, strict=True)):
        for key in runs[producer] if old >= 0 else ():
            if _is_exceeding(timeline, value, old, key, peak, fuses):
                found[bisect_right(stages.begins, timeline.gap(key))].add(value)
    return tuple(frozenset(values) for values in found)


def _is_exceeding(timeline: Timeline, value: int, old: int, key: int, peak: int, fuses: Collection[int]) -> bool:
    """Whether the copy that is written there has several readers, dies too late for the other to live on beside it."""
    reads = [read for read in timeline.reads[value] if key < read < timeline.following(value, key)]
    if len(reads) < 2 or timeline.end(old, timeline.begin(old, key)) != key:
        return False
    if all(timeline.node(read) in fuses for read in reads):
        return False
    # Readers behind the next run of what writes the other one have that copy.
    before = bisect_left(reads, timeline.following(old, key))
    if not before:
        return False
    at, size = bisect_left(timeline.keys, key), timeline.size[old]
    after = timeline.live[at + 1 : bisect_right(timeline.keys, reads[before - 1])]
    return bool(max(timeline.live[at] + min(size, timeline.size[value]), after.max(initial=0) + size) > peak)
