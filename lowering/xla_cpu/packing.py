"""Analysis: how large the block is in which XLA on the CPU lays all temporary buffers.

Before:  a 5 bytes [0..2]   b 4 bytes [1..4]   c 4 bytes [4..6]   d 5 bytes [6..7]
After:   13 bytes: a and d at 0, b at 5, and c, which meets both b and d, at 9; no more than 9 bytes live at once

XLA places one buffer after the other and moves none again: where several would fit, in the smallest gap between what is
placed already and lives at the same time. It does so twice, the largest first and the longest-lived first, and takes
what is smaller (`GlobalDecreasingSizeBestFitHeap` and `ChooseBestHeapAlgorithm` in XLA's heap simulator).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rematc.passes.liveness import LiveRange

#: Every buffer begins at a multiple of so many bytes.
_ALIGNMENT = 64
_EVERYWHERE = 2**62

_Steps = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
_Order = Callable[[LiveRange], tuple[int, int]]


def packed(ranges: Sequence[LiveRange]) -> int:
    """The bytes of the block.

    Args:
        ranges: what lies in one place from the first step to the last one, its bytes the largest of what lies there.
    """
    orders: tuple[_Order, ...] = (
        lambda one: (-one.size, one.begin - one.end),
        lambda one: (one.begin - one.end, -one.size),
    )
    return min(_packed(sorted(ranges, key=order)) for order in orders)


def _packed(ranges: Sequence[LiveRange]) -> int:
    """The bytes of the block in which they are placed in this order."""
    begins, ends, offsets, tops = (np.empty(len(ranges), np.int64) for _ in range(4))
    for index, one in enumerate(ranges):
        meets = (begins[:index] <= one.end) & (ends[:index] >= one.begin)
        offset = _gap(offsets[:index][meets], tops[:index][meets], one.size)
        begins[index], ends[index], offsets[index] = one.begin, one.end, offset
        tops[index] = offset + -(-one.size // _ALIGNMENT) * _ALIGNMENT
    return int(tops.max(initial=0))


def _gap(offsets: _Steps, tops: _Steps, size: int) -> int:
    """Where the smallest gap of so many bytes begins between what is placed; the first of equal ones."""
    order = np.argsort(offsets, kind="stable")
    gaps_begin = np.concatenate(([0], np.maximum.accumulate(tops[order])))
    gaps = np.append(offsets[order], _EVERYWHERE) - gaps_begin
    fitting = np.flatnonzero(gaps >= size)
    return int(gaps_begin[fitting[np.argmin(gaps[fitting])]])
