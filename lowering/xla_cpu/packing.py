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


def packed(places: Sequence[Sequence[LiveRange]], enough: int = 0) -> int:
    """The bytes of the block.

    Args:
        places: of each place the buffers that lie there, one after the other; each but the first is written in the step
            in which the one before it is read last.
        enough: of so many bytes and less nobody asks how many.
    """
    orders: tuple[_Order, ...] = (
        lambda one: (-one.size, one.begin - one.first_end),
        lambda one: (one.begin - one.end, -one.size),
    )
    timed, least = _timed(places), _EVERYWHERE
    for order in orders:
        if least > enough:
            least = _packed(sorted(timed, key=order), least)
    return least


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


def _packed(places: Sequence[_Place], most: int) -> int:
    """The bytes of the block in which they are placed in this order; `most` where it is no less."""
    block = _Block(len(places))
    for one in places:
        if block.size >= most:
            return most
        block.place(one)
    return min(block.size, most)


class _Block:
    """What is placed, by where it begins.

    Attributes:
        size: the bytes of all of it.
    """

    def __init__(self, count: int) -> None:
        self.size = 0
        self._count = 0
        #: A row for what each is: when it begins and ends, where it begins and ends.
        self._placed = np.empty((4, count), np.int64)

    def place(self, one: _Place) -> None:
        """Place one more."""
        count, placed = self._count, self._placed
        begins, ends, offsets, tops = placed[:, :count]
        meets = ((begins <= one.end) & (ends >= one.begin)).nonzero()[0]
        offset = _gap(offsets[meets], tops[meets], one.size)
        top = offset + -(-one.size // _ALIGNMENT) * _ALIGNMENT
        at = offsets.searchsorted(offset)
        placed[:, at + 1 : count + 1] = placed[:, at:count]
        placed[:, at] = one.begin, one.end, offset, top
        self._count, self.size = count + 1, max(self.size, top)


def _gap(offsets: _Steps, tops: _Steps, size: int) -> int:
    """Where the smallest gap of so many bytes begins between what is placed from front to back; the first of equal."""
    if not len(offsets):
        return 0
    covered = np.maximum.accumulate(tops)
    gaps = offsets.copy()
    gaps[1:] -= covered[:-1]
    gaps[gaps < size] = _EVERYWHERE
    found = int(gaps.argmin())
    if gaps[found] == _EVERYWHERE:
        return int(covered[-1])
    return int(covered[found - 1]) if found else 0
