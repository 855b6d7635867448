"""Analysis: the temporary memory that a program takes, from when each buffer is written and when it is last read.

Before:  4 MiB in steps [0..3]   4 MiB in [2..5]   step 4 takes 1 MiB while it runs
After:   8 MiB, in steps 2 and 3

Which values are buffers at all, in which order kernels run and what lies in one place differ from backend to backend:
whoever asks for memory is handed a `MemoryModel`, as `rematc.lowering.xla_cpu` has one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from rematc.ir.core import Graph


@dataclass(frozen=True, slots=True)
class LiveRange:
    """The bytes of a buffer, from the step that writes it to the last one that reads it.

    A buffer that takes the place of one that its step reads begins a step later: until then that one is counted.
    """

    size: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Allocation:
    """What a backend says of the memory of a graph.

    Attributes:
        ranges: the temporary buffers, but for those that lie in a result's buffer.
        inside: for each step the bytes that it takes only while it runs: what its regions need.
    """

    ranges: Sequence[LiveRange]
    inside: Sequence[int]

    def peak(self) -> int:
        """The largest number of bytes taken at once."""
        return max(self.live(), default=0)

    def live(self) -> list[int]:
        """For each step the bytes that are taken while it runs."""
        change = [0] * (len(self.inside) + 2)
        for one in self.ranges:
            change[one.begin] += one.size
            change[one.end + 1] -= one.size
        return [live + taken for live, taken in zip(accumulate(change), self.inside, strict=False)]


#: What a backend makes of a graph after the passes.
MemoryModel = Callable[[Graph], Allocation]
