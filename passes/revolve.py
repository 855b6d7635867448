"""The binomial schedule: a loop backwards from few snapshots of its carries.

A loop of n steps is reversed with S carries kept at a time, the first one among them: steps are taken again from the
nearest snapshot until the carry before the last open step is there, whose adjoint is taken next. With r the smallest
number for which C(S + r, S) >= n, the schedule takes r n - C(S + r, r - 1) steps beside the n adjoint ones, which is
the fewest that there can be. `rematc.ir.ops.scan.reverse` writes the loop that follows it.

Reference: Griewank & Walther, "Algorithm 799: Revolve", ACM TOMS 26 (2000).
"""

from __future__ import annotations

from functools import lru_cache
from math import comb

from rematc.ir.schedules import Schedule


@lru_cache(maxsize=64)
def schedule(steps: int, snapshots: int) -> Schedule:
    """The schedule with the fewest steps; snapshot 0 is the first carry."""
    none = snapshots
    rows: list[tuple[bool, int, int, int]] = []
    # (first step, step after the last, the snapshot before it, whether that carry is at hand, whether to keep it)
    work = [(0, steps, 0, False, False)] if steps else []
    while work:
        first, end, slot, is_at_hand, is_new = work.pop()
        source, target = none if is_at_hand else slot, slot if is_new else none
        free = snapshots - slot
        if end - first == 1:
            rows.append((True, first, source, target))
            continue
        middle = end - 1 if free == 1 else first + _left(end - first, free)
        for step in range(first, middle):
            rows.append((False, step, source, target))
            source = target = none
        # The later steps first: what is pushed last comes next. Without a free snapshot their carry is not kept.
        work.append((first, middle, slot, False, False))
        work.append((middle, end, slot if free == 1 else slot + 1, True, free > 1))
    columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
    return Schedule(*columns)


def _left(steps: int, snapshots: int) -> int:
    """How many steps to take before the next snapshot."""
    sweeps = 1
    while comb(snapshots + sweeps, snapshots) < steps:
        sweeps += 1
    before = comb(snapshots + sweeps - 2, snapshots) if sweeps > 1 else 1
    return max(before, steps - comb(snapshots - 1 + sweeps, snapshots - 1), 1)
