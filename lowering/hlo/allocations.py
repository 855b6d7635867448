"""XLA's buffer assignment as data: each allocation, and what lies in it from when to when.

XLA says of each value in which allocation it lies, and where; the text of the scheduled module says which instruction
writes it, which ones read it, and in which order they run. What lies at one place at one time is one buffer: a bitcast,
or a loop's state. Loops and branches run where they stand, the instructions of their bodies before they end.

Reference: xla/service/hlo.proto (BufferAssignmentProto, HloModuleProto), as jaxlib 0.10 and 0.12 serialize them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rematc.lowering.hlo.module import HloModule, Instruction, called_computations
from rematc.lowering.hlo.protobuf import integers, messages, packed, text

#: What an allocation is for.
ARGUMENT, RESULT, CONSTANT, TEMPORARY, THREAD = "argument", "result", "constant", "temporary", "thread"
_FLOW = ("while", "conditional", "call")
#: What computes nothing: no step of the schedule.
_NO_STEP = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id", "replica-id")


@dataclass(frozen=True, slots=True)
class Assignment:
    """XLA's buffer assignment, serialized: that, and the module whose instructions it names by their numbers."""

    buffers: bytes
    module: bytes


@dataclass(frozen=True, slots=True)
class Stored:
    """A value in an allocation.

    Attributes:
        writer: the instruction that writes it.
        index: which part of the instruction's tuple it is; () for all.
        offset: where it lies.
        size: bytes.
    """

    writer: str
    index: tuple[int, ...]
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Allocation:
    """A block of memory.

    Attributes:
        index: its number.
        size: bytes.
        kind: `ARGUMENT`, `RESULT`, `CONSTANT`, `TEMPORARY`, or `THREAD` for what each thread has of its own.
        parameter: the number of the program's parameter; None of what is none.
        is_returned: whether results lie in it: of an argument, that it is donated.
        values: what lies in it.
    """

    index: int
    size: int
    kind: str
    parameter: int | None
    is_returned: bool
    values: tuple[Stored, ...]


def allocations_of(assignment: Assignment) -> list[Allocation]:
    """The allocations in XLA's order. Raises ValueError for what is no buffer assignment."""
    names = {}
    for computation in messages(assignment.module, 3):
        for instruction in messages(computation, 2):
            names[integers(instruction).get(35, 0)] = text(instruction, 1)
    writers = {}
    for value in messages(assignment.buffers, 1):
        location = next(messages(value, 3), b"")
        writer = text(location, 2) or names.get(integers(location).get(4, 0), "")
        writers[integers(value).get(1, 0)] = writer, tuple(packed(location, 3))
    return [_allocation(message, writers) for message in messages(assignment.buffers, 3)]


def _allocation(message: bytes, writers: Mapping[int, tuple[str, tuple[int, ...]]]) -> Allocation:
    facts = integers(message)
    values = []
    for assigned in map(integers, messages(message, 9)):
        writer, index = writers.get(assigned.get(1, 0), ("", ()))
        values.append(Stored(writer, index, assigned.get(2, 0), assigned.get(3, 0)))
    parameter = facts.get(6, 0) if facts.get(5) else None
    return Allocation(facts.get(1, 0), facts.get(2, 0), _kind(facts), parameter, bool(facts.get(7)), tuple(values))


def _kind(facts: Mapping[int, int]) -> str:
    for number, kind in ((3, THREAD), (5, ARGUMENT), (12, CONSTANT), (7, RESULT)):
        if facts.get(number):
            return kind
    return TEMPORARY


# -- over the schedule -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Schedule:
    """The instructions of a module as they run.

    Attributes:
        order: all of them, those of loops and branches included.
        steps: those that do something.
        time: the step of each; what is no step happens at the next one.
        reads: for each the steps that read it; a tuple, and what is taken out of one, is read when they are.
    """

    order: tuple[Instruction, ...]
    steps: tuple[Instruction, ...]
    time: Mapping[str, int]
    reads: Mapping[str, set[int]]

    @staticmethod
    def of(module: HloModule) -> Schedule:
        """That of a scheduled module's entry."""
        order = tuple(_scheduled(module, module.entry))
        time = _times(order)
        steps = tuple([instruction for instruction in order if instruction.opcode not in _NO_STEP])
        return Schedule(order, steps, time, _reads(order, time))


def _scheduled(module: HloModule, name: str | None) -> Iterator[Instruction]:
    """The instructions of a computation as they run, with those of loops and branches before them."""
    computation = module.computations.get(name or "")
    for instruction in computation.instructions.values() if computation else ():
        if instruction.opcode in _FLOW:
            for inner in dict.fromkeys(one for names in called_computations(instruction).values() for one in names):
                yield from _scheduled(module, inner)
        yield instruction


def _times(order: Sequence[Instruction]) -> dict[str, int]:
    time: dict[str, int] = {}
    count = 0
    for instruction in order:
        time[instruction.name] = count
        count += instruction.opcode not in _NO_STEP
    return {name: min(at, max(count - 1, 0)) for name, at in time.items()}


def _reads(order: Sequence[Instruction], time: Mapping[str, int]) -> dict[str, set[int]]:
    reads: dict[str, set[int]] = {}
    for instruction in reversed(order):
        is_name = instruction.opcode in ("tuple", "get-tuple-element", "bitcast")
        at = reads.get(instruction.name, set()) if is_name else {time[instruction.name]}
        for operand in instruction.operands:
            reads.setdefault(operand, set()).update(at)
    return reads


@dataclass(frozen=True, slots=True)
class Live:
    """A buffer: what is stored there first, from when to when, and the steps that read it."""

    stored: Stored
    begin: int
    end: int
    reads: tuple[int, ...]


def live_buffers(values: Sequence[Stored], schedule: Schedule) -> list[Live]:
    """What is stored at one place of an allocation at one time as one buffer, by the steps that write it."""
    time = schedule.time
    places: dict[int, list[Live]] = {}
    for one in sorted((one for one in values if one.writer in time), key=lambda one: time[one.writer]):
        begin, read = time[one.writer], schedule.reads.get(one.writer, set())
        end = max([begin, *read])
        here = places.setdefault(one.offset, [])
        if here and (here[-1].end > begin or (here[-1].begin, here[-1].end) == (begin, end)):
            last = here[-1]
            merged = tuple(sorted({*last.reads, *read}))
            larger = max(last.stored, one, key=lambda each: each.size)
            kept = replace(last.stored, size=larger.size)
            here[-1] = Live(kept, last.begin, max(last.end, end), merged)
        else:
            here.append(Live(one, begin, end, tuple(sorted(read))))
    found = [_without_overlap(here) for here in places.values()]
    return sorted((one for here in found for one in here), key=lambda one: (one.begin, one.stored.offset))


def _without_overlap(here: Sequence[Live]) -> Iterator[Live]:
    """Of what is written over the last operand of its step, that one counts until then."""
    last = -1
    for one in here:
        begin = min(max(one.begin, last + 1), one.end)
        yield Live(one.stored, begin, one.end, one.reads) if begin != one.begin else one
        last = one.end
