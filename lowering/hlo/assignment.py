"""The memory of a program over the schedule that XLA gave it, from its buffer assignment.

XLA says of each value in which allocation it lies, and where; the text of the scheduled module says which instruction
writes it, which ones read it, and in which order they run. What lies at one place at one time is one buffer: a bitcast,
or a loop's state. Loops and branches run where they stand, the instructions of their bodies before they end.

Reference: xla/service/hlo.proto (BufferAssignmentProto, HloModuleProto), as jaxlib 0.10 and 0.12 serialize them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from rematc.ir.locations import Location
from rematc.lowering.hlo.module import (
    HloModule,
    Instruction,
    Shape,
    SourceLine,
    called_computations,
    provenance,
    source_line,
)
from rematc.lowering.hlo.protobuf import integers, messages, text
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

_FLOW = ("while", "conditional", "call")
#: What computes nothing: no step of the schedule.
_NO_STEP = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id", "replica-id")
#: Which part of a tuple is taken; the number that the writer gives a product (`rematc.lowering.writer.Writer.product`).
_PART = re.compile(r"\bindex=(\d+)")
_NUMBERED = re.compile(r"#(\d+)$")


@dataclass(frozen=True, slots=True)
class Assignment:
    """XLA's buffer assignment, serialized: that, and the module whose instructions it names by their numbers."""

    buffers: bytes
    module: bytes


@dataclass(frozen=True, slots=True)
class _Stored:
    """A value in an allocation: the instruction that writes it, the allocation and place in it, bytes."""

    writer: str
    place: tuple[int, int]
    size: int


@dataclass(frozen=True, slots=True)
class _Allocations:
    """Sums of bytes, by what allocations are for, and what lies in the temporary ones."""

    arguments: int
    results: int
    temporary: int
    stored: tuple[_Stored, ...]


def assigned_timeline(
    module: HloModule,
    assignment: Assignment,
    phases: Mapping[int, str],
    *,
    is_differentiated: bool,
    again: Set[SourceLine],
) -> MemoryTimeline | None:
    """The memory of a compiled program; None where its parts are written in a way that is not known here.

    Args:
        module: the optimized module.
        assignment: its buffer assignment.
        phases: of the products in the program that XLA was given, by their numbers.
        is_differentiated: whether it has a backward pass.
        again: the lines of which that computes something again.
    """
    order = list(_scheduled(module, module.entry))
    steps = [instruction for instruction in order if instruction.opcode not in _NO_STEP]
    try:
        allocations = _allocations(assignment)
    except ValueError:
        return None
    if not steps or not allocations.stored:
        return None
    time = _times(order)
    live = _buffers(allocations.stored, _last_reads(order, time), time)
    found = _Phases(module, order, steps, phases, again)
    backward = found.backward(live, time, len(steps)) if is_differentiated else len(steps)
    return MemoryTimeline(
        tuple([Step(step.name, found.of(step, at, backward), found.loc(step)) for at, step in enumerate(steps)]),
        tuple([found.described(one, backward) for one in live]),
        backward,
        allocations.arguments,
        allocations.results,
        allocations.temporary,
    )


def _scheduled(module: HloModule, name: str | None) -> Iterator[Instruction]:
    """The instructions of a computation as they run, with those of loops and branches before them."""
    computation = module.computations.get(name or "")
    for instruction in computation.instructions.values() if computation else ():
        if instruction.opcode in _FLOW:
            for inner in dict.fromkeys(one for names in called_computations(instruction).values() for one in names):
                yield from _scheduled(module, inner)
        yield instruction


def _times(order: Sequence[Instruction]) -> dict[str, int]:
    """The step of each instruction; what is no step happens at the next one."""
    time: dict[str, int] = {}
    count = 0
    for instruction in order:
        time[instruction.name] = count
        count += instruction.opcode not in _NO_STEP
    return {name: min(at, max(count - 1, 0)) for name, at in time.items()}


# -- from the messages -------------------------------------------------------------------------------------------------


def _allocations(assignment: Assignment) -> _Allocations:
    names = {}
    for computation in messages(assignment.module, 3):
        for instruction in messages(computation, 2):
            names[integers(instruction).get(35, 0)] = text(instruction, 1)
    writers = {}
    for value in messages(assignment.buffers, 1):
        location = next(messages(value, 3), b"")
        writers[integers(value).get(1, 0)] = text(location, 2) or names.get(integers(location).get(4, 0), "")
    arguments = results = temporary = 0
    stored: list[_Stored] = []
    for allocation in messages(assignment.buffers, 3):
        facts = integers(allocation)
        size = facts.get(2, 0)
        if facts.get(3):  # of a thread
            continue
        if facts.get(5) or facts.get(12):  # of a parameter; a constant
            arguments += size
        elif facts.get(7):  # of what is returned
            results += size
        else:
            temporary += size
            for assigned in map(integers, messages(allocation, 9)):
                place = facts.get(1, 0), assigned.get(2, 0)
                stored.append(_Stored(writers.get(assigned.get(1, 0), ""), place, assigned.get(3, 0)))
    return _Allocations(arguments, results, temporary, tuple(stored))


# -- from the schedule -------------------------------------------------------------------------------------------------


def _last_reads(order: Sequence[Instruction], time: Mapping[str, int]) -> dict[str, set[int]]:
    """For each instruction the steps that read it; a tuple, and what is taken out of one, is read when they are."""
    reads: dict[str, set[int]] = {}
    for instruction in reversed(order):
        is_name = instruction.opcode in ("tuple", "get-tuple-element", "bitcast")
        at = reads.get(instruction.name, set()) if is_name else {time[instruction.name]}
        for operand in instruction.operands:
            reads.setdefault(operand, set()).update(at)
    return reads


@dataclass(frozen=True, slots=True)
class _Live:
    """A buffer: what is stored there first, from when to when, and the steps that read it."""

    stored: _Stored
    begin: int
    end: int
    reads: tuple[int, ...]


def _buffers(stored: Sequence[_Stored], reads: Mapping[str, set[int]], time: Mapping[str, int]) -> list[_Live]:
    """What is stored at one place at one time as one buffer, by the steps that write it."""
    places: dict[tuple[int, int], list[_Live]] = {}
    for one in sorted((one for one in stored if one.writer in time), key=lambda one: time[one.writer]):
        begin, read = time[one.writer], reads.get(one.writer, set())
        end = max([begin, *read])
        here = places.setdefault(one.place, [])
        if here and (here[-1].end > begin or (here[-1].begin, here[-1].end) == (begin, end)):
            last = here[-1]
            merged = tuple(sorted({*last.reads, *read}))
            larger = max(last.stored, one, key=lambda each: each.size)
            kept = _Stored(last.stored.writer, larger.place, larger.size)
            here[-1] = _Live(kept, last.begin, max(last.end, end), merged)
        else:
            here.append(_Live(one, begin, end, tuple(sorted(read))))
    found = [_without_overlap(here) for here in places.values()]
    return sorted((one for here in found for one in here), key=lambda one: (one.begin, one.stored.place))


def _without_overlap(here: Sequence[_Live]) -> Iterator[_Live]:
    """Of what is written over the last operand of its step, that one counts until then."""
    last = -1
    for one in here:
        begin = min(max(one.begin, last + 1), one.end)
        yield _Live(one.stored, begin, one.end, one.reads) if begin != one.begin else one
        last = one.end


class _Phases:
    """Which instructions are of the forward pass, which recompute, which are of the backward pass.

    Products say by their numbers. Of the others, behind the place where the backward pass begins, what does not follow
    from a product of the backward pass, and comes from a line of which something is computed again, recomputes. Where
    products do not say, all of it is of the backward pass.
    """

    def __init__(
        self,
        module: HloModule,
        order: Sequence[Instruction],
        steps: Sequence[Instruction],
        phases: Mapping[int, str],
        again: Set[SourceLine],
    ) -> None:
        self._module = module
        self._of = {instruction.name: instruction for instruction in order}
        self._entry = module.computations.get(module.entry or "")
        self._product = {
            step.name: phases[int(found[1])]
            for step in steps
            if (found := _NUMBERED.search(provenance(step))) and int(found[1]) in phases
        }
        self._steps = steps
        self._reached = self._reach(order)
        self._again = again if self._product else set()

    def _reach(self, order: Sequence[Instruction]) -> set[str]:
        """What follows from products of the backward pass; of a tuple, and behind a barrier, each part by itself."""
        parts: dict[str, list[bool]] = {}
        reached: set[str] = set()
        for one in order:
            if one.opcode == "tuple":
                parts[one.name] = [operand in reached for operand in one.operands]
            elif one.opcode == "opt-barrier" and one.operands[0] in parts:
                parts[one.name] = parts[one.operands[0]]
            elif (index := _PART.search(one.attributes)) and one.operands and one.operands[0] in parts:
                if parts[one.operands[0]][int(index[1])]:
                    reached.add(one.name)
                continue
            if self._product.get(one.name) == BACKWARD or any(operand in reached for operand in one.operands):
                reached.add(one.name)
        return reached

    def backward(self, live: Sequence[_Live], time: Mapping[str, int], count: int) -> int:
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
        later = (at for at, step in enumerate(self._steps) if self._product.get(step.name, FORWARD) != FORWARD)
        return min(begin, next(later, begin))

    def of(self, step: Instruction, at: int, backward: int) -> str:
        """The phase of a step."""
        if step.name in self._product:
            return self._product[step.name]
        if at < backward:
            return FORWARD
        is_again = step.name not in self._reached and source_line(step, self._module) in self._again
        return RECOMPUTED if is_again else BACKWARD

    def loc(self, step: Instruction) -> Location | None:
        """The user's line."""
        found: SourceLine | None = source_line(step, self._module)
        function = _NUMBERED.sub("", provenance(step))
        return None if found is None else Location(found.file, found.line, 0, function)

    def described(self, live: _Live, backward: int) -> LiveBuffer:
        """A buffer in the terms of timelines."""
        writer = self._of[live.stored.writer]
        phase = self.of(writer, live.begin, backward)
        role = role_of(live.begin, live.end, phase, backward)
        shape = str(Shape.of(writer.shape))
        return LiveBuffer(
            writer.name, shape, live.stored.size, live.begin, live.end, role, live.reads, self.loc(writer)
        )
