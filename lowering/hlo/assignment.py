"""The memory of a program over the schedule that XLA gave it, from its buffer assignment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rematc.ir.locations import Location
from rematc.lowering.hlo.allocations import (
    ARGUMENT,
    CONSTANT,
    RESULT,
    TEMPORARY,
    Assignment,
    Live,
    Schedule,
    allocations_of,
    live_buffers,
)
from rematc.lowering.hlo.module import HloModule, Instruction, Shape, op_name
from rematc.lowering.hlo.origins import Origin, location_of, origin_in, sources_of
from rematc.passes.memory_timeline import (
    BACKWARD,
    FORWARD,
    RECOMPUTED,
    LiveBuffer,
    MemoryTimeline,
    Step,
    backward_begin,
    role_of,
)


def assigned_timeline(module: HloModule, assignment: Assignment, *, is_differentiated: bool) -> MemoryTimeline | None:
    """The memory of a compiled program; None where its parts are written in a way that is not known here.

    Args:
        module: the optimized module.
        assignment: its buffer assignment.
        is_differentiated: whether it has a backward pass.
    """
    schedule = Schedule.of(module)
    steps = schedule.steps
    try:
        allocations = allocations_of(assignment)
    except ValueError:
        return None
    temporary = [one for one in allocations if one.kind == TEMPORARY]
    if not steps or not any(one.values for one in temporary):
        return None
    live = [(one.index, buffer) for one in temporary for buffer in live_buffers(one.values, schedule)]
    live.sort(key=lambda row: (row[1].begin, row[0], row[1].stored.offset))
    buffers = [buffer for _, buffer in live]
    found = _Phases(module, schedule.order, steps)
    backward = found.backward(buffers, schedule.time, len(steps)) if is_differentiated else len(steps)
    sums = {kind: sum(one.size for one in allocations if one.kind == kind) for kind in (ARGUMENT, CONSTANT, RESULT)}
    return MemoryTimeline(
        tuple([Step(step.name, found.of(step, at, backward), found.loc(step)) for at, step in enumerate(steps)]),
        tuple([found.described(one, backward) for one in buffers]),
        backward,
        sums[ARGUMENT] + sums[CONSTANT],
        sums[RESULT],
        sum(one.size for one in temporary),
    )


class _Phases:
    """Which steps are of the forward pass, which recompute, which are of the backward pass, by their names.

    Before the place where the backward pass begins all are of the forward pass: what XLA runs early of the backward
    pass, as it makes a constant of it, is none of its work.
    """

    def __init__(self, module: HloModule, order: Sequence[Instruction], steps: Sequence[Instruction]) -> None:
        self._module = module
        self._of = {instruction.name: instruction for instruction in order}
        self._entry = module.computations.get(module.entry or "")
        self._sources = sources_of(module)
        self._steps = steps

    def backward(self, live: Sequence[Live], time: Mapping[str, int], count: int) -> int:
        """The step with which the backward pass begins."""
        root = self._entry.root if self._entry else None
        losses = sorted(
            time[name]
            for name in (root.operands if root is not None and root.opcode == "tuple" else ())
            if name in self._of and not Shape.of(self._of[name].shape).sizes
        )
        rows = [(one.begin, one.end, one.stored.size) for one in live]
        begins, ends, sizes = zip(*rows, strict=True) if rows else ((), (), ())
        begin = backward_begin(begins, ends, sizes, count, losses)
        later = (at for at, step in enumerate(self._steps) if self._is_later_product(step))
        return min(begin, next(later, begin))

    def _is_later_product(self, step: Instruction) -> bool:
        origin = self._origin(step)
        return origin is not None and bool(origin.product) and origin.phase != FORWARD

    def of(self, step: Instruction, at: int, backward: int) -> str:
        """The phase of a step."""
        if at < backward:
            return FORWARD
        origin = self._origin(step)
        return RECOMPUTED if origin is not None and origin.phase == RECOMPUTED else BACKWARD

    def loc(self, step: Instruction) -> Location | None:
        """The user's line."""
        source = self._sources.get(step.name)
        return None if source is None else location_of(source, self._module)

    def _origin(self, step: Instruction) -> Origin | None:
        source = self._sources.get(step.name)
        return None if source is None else origin_in(op_name(source))

    def described(self, live: Live, backward: int) -> LiveBuffer:
        """A buffer in the terms of timelines."""
        writer = self._of[live.stored.writer]
        phase = self.of(writer, live.begin, backward)
        role = role_of(live.begin, live.end, phase, backward)
        shape = str(Shape.of(writer.shape))
        return LiveBuffer(
            writer.name, shape, live.stored.size, live.begin, live.end, role, live.reads, self.loc(writer)
        )
