"""What is in memory while a program runs: buffers, each with its role, over the steps of a schedule.

A plan's timeline is simulated (`rematc.lowering.xla_cpu.timeline`); XLA's is read from its buffer assignment
(`rematc.lowering.hlo.assignment`). Both are the same data, so that they stand side by side.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rematc.ir.locations import Location

Integers = np.ndarray[tuple[int], np.dtype[np.int64]]

#: What a buffer is there for.
KEPT, FORWARD, RECOMPUTED, BACKWARD = "kept", "forward", "recomputed", "backward"
#: What a temporary buffer may be there for, in the order in which they are stacked.
ROLES = (KEPT, FORWARD, RECOMPUTED, BACKWARD)
#: Where the loss is computed, no less than so much of the most is held that is held anywhere.
_NEARLY = 0.9


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a schedule: a kernel.

    Attributes:
        name: its name: that of the op, or of XLA's instruction.
        phase: `FORWARD`, `RECOMPUTED` or `BACKWARD`.
        loc: the user's line; None where it is not known.
        workspace: bytes that it takes only while it runs.
    """

    name: str
    phase: str
    loc: Location | None
    workspace: int = 0


@dataclass(frozen=True, slots=True)
class LiveBuffer:
    """What lies in memory, from the step that writes it to the last one that needs it.

    Attributes:
        name: what it holds: the op's name, or that of XLA's instruction.
        type: element type and shape, as text.
        size: bytes.
        begin: the step that writes it.
        end: the last step that reads it.
        role: one of `ROLES`.
        readers: the steps that read it.
        loc: the user's line; None where it is not known.
    """

    name: str
    type: str
    size: int
    begin: int
    end: int
    role: str
    readers: tuple[int, ...]
    loc: Location | None


@dataclass(frozen=True)
class MemoryTimeline:
    """The memory that a program takes while it runs.

    Attributes:
        steps: in the order in which they run.
        buffers: temporary buffers; those that lie in a result's are none.
        backward: the step with which the backward pass begins; the number of steps where there is none.
        arguments: bytes of the arguments and constants, which are there throughout.
        results: bytes of the results, for which there is room throughout.
        block: bytes of temporary memory that are allocated for all of this; None where only the sum is known.
    """

    steps: tuple[Step, ...]
    buffers: tuple[LiveBuffer, ...]
    backward: int
    arguments: int
    results: int
    block: int | None = None

    @functools.cached_property
    def live(self) -> Integers:
        """[steps] bytes of temporary memory that are live at each step."""
        count = len(self.steps)
        change = np.zeros(count + 1, np.int64)
        for buffer in self.buffers:
            change[buffer.begin] += buffer.size
            change[buffer.end + 1] -= buffer.size
        return np.cumsum(change)[:count] + np.array([step.workspace for step in self.steps], np.int64)

    @property
    def peak(self) -> int:
        """The most bytes that are live at once."""
        return int(self.live.max(initial=0))

    @property
    def at(self) -> int:
        """The step at which they are; 0 where nothing runs."""
        return int(self.live.argmax()) if len(self.live) else 0

    def standing(self, step: int) -> list[LiveBuffer]:
        """The buffers that are live at a step, largest first."""
        found = [buffer for buffer in self.buffers if buffer.begin <= step <= buffer.end]
        return sorted(found, key=lambda buffer: -buffer.size)

    def highest(self, columns: int) -> list[int]:
        """The most bytes that are live in each of so many stretches of the schedule, or fewer."""
        parts = np.array_split(self.live, min(columns, len(self.live))) if len(self.live) else []
        return [int(part.max()) for part in parts]


def backward_begin(
    begins: Sequence[int], ends: Sequence[int], sizes: Sequence[int], count: int, losses: Sequence[int]
) -> int:
    """The step with which the backward pass begins, for a schedule that does not say.

    That is taken to be where most is held for longest, by bytes times steps, which for residuals is where all of them
    are held; and of the steps around it the one behind the loss.

    Args:
        begins: for each buffer the step that writes it.
        ends: the last step that reads it.
        sizes: its bytes.
        count: how many steps there are.
        losses: the steps that write scalar results.
    """
    held = np.zeros(count + 1, np.int64)
    first, last, size = np.asarray(begins, np.int64), np.asarray(ends, np.int64), np.asarray(sizes, np.int64)
    amounts = size * (last - first)
    np.add.at(held, first + 1, amounts)
    np.subtract.at(held, np.minimum(last + 1, count), amounts)
    held = np.cumsum(held)
    begin = int(held.argmax())
    # A loss reads what the backward pass reads, too: as much is held before it as behind it.
    latest = int(np.flatnonzero(held == held[begin])[-1])
    behind = [loss + 1 for loss in losses if loss <= latest]
    return behind[-1] if behind and held[behind[-1]] >= _NEARLY * held[begin] else begin


def role_of(begin: int, end: int, phase: str, backward: int) -> str:
    """What a buffer is there for that a step of a phase writes."""
    if phase == RECOMPUTED or begin >= backward:
        return RECOMPUTED if phase == RECOMPUTED else BACKWARD
    return KEPT if end >= backward else FORWARD
