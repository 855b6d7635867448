"""Analysis: how large the block is in which XLA on the CPU lays all temporary buffers.

Before:  a 5 bytes [0..2]   b 4 bytes [1..4]   c 4 bytes [4..6]   d 5 bytes [6..7]
After:   13 bytes: a and d at 0, b at 5, and c, which meets both b and d, at 9; no more than 9 bytes live at once

XLA places one buffer after the other and moves none again: where several would fit, in the smallest gap between what is
placed already and lives at the same time. It does so twice, the largest first and the longest-lived first, and takes
what is smaller (`GlobalDecreasingSizeBestFitHeap` and `ChooseBestHeapAlgorithm` in XLA's heap simulator). Its time
advances with each buffer that is written, handed on, or given back: in a step first all that are written, then all that
end. Of equally large places it takes that one first whose first buffer lives longest, whatever follows it there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rematc.passes.liveness import LiveRange

#: Every buffer begins at a multiple of so many bytes.
_ALIGNMENT = 64
_EVERYWHERE = 2**62

_Steps = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class _Place:
    """What is to get bytes of its own, in XLA's time.

    Attributes:
        size: its bytes, those of the largest buffer.
        begin: when its first buffer is written.
        first_end: when that one is given back, or handed on.
        end: when the last one is given back.
    """

    size: int
    begin: int
    first_end: int
    end: int


_Order = Callable[[_Place], tuple[int, int]]


def packed(places: Sequence[Sequence[LiveRange]]) -> int:
    """The bytes of the block.

    Args:
        places: of each place the buffers that lie there, one after the other; each but the first is written in the step
            in which the one before it is read last.
    """
    orders: tuple[_Order, ...] = (
        lambda one: (-one.size, one.begin - one.first_end),
        lambda one: (one.begin - one.end, -one.size),
    )
    timed = _timed(places)
    return min(_packed(sorted(timed, key=order)) for order in orders)


def _timed(places: Sequence[Sequence[LiveRange]]) -> list[_Place]:
    """The places in XLA's time."""
    written = [
        (one.begin, 0, one.end, place, index) for place, held in enumerate(places) for index, one in enumerate(held)
    ]
    given_back = [(held[-1].end, 1, held[-1].begin, place, len(held) - 1) for place, held in enumerate(places)]
    begins: dict[tuple[int, int], int] = {}
    ends: dict[tuple[int, int], int] = {}
    time = 0
    for _, is_end, _, place, index in sorted([*written, *given_back]):
        if index and not is_end:
            ends[place, index - 1] = time
            time += 1
        (ends if is_end else begins)[place, index] = time
        time += 1
    return [
        _Place(max(one.size for one in held), begins[place, 0], ends[place, 0], ends[place, len(held) - 1])
        for place, held in enumerate(places)
    ]


def _packed(places: Sequence[_Place]) -> int:
    """The bytes of the block in which they are placed in this order."""
    begins, ends, offsets, tops = (np.empty(len(places), np.int64) for _ in range(4))
    for index, one in enumerate(places):
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
