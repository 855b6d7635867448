"""The buffers of a scheduled program, as XLA's `BufferAssigner` places them.

Before:  %0 [0..3] 4 MiB   %1 [2..5] 4 MiB   %2 [6..end] 8 MiB, a result
After:   4 MiB: %0 lies in the result's buffer, which is written only at 6; %1 lives at the same time as %0

The buffers of results are there from the beginning. A temporary buffer, the largest first, goes into the smallest
result's in which it fits and that is free as long as it lives; all others share one block (`packing`). An elementwise
kernel writes its result over an operand of its shape that nothing reads after it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rematc.ir.values import Value
from rematc.lowering.xla_cpu.instructions import Instruction, Kind, Program
from rematc.lowering.xla_cpu.packing import packed
from rematc.lowering.xla_cpu.schedule import Schedule, owner_of
from rematc.passes.liveness import Allocation, LiveRange

#: How many results' buffers of one size are tried for a temporary one, those first that are written soonest.
_TRIED = 256


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """What lies in memory, from when it is written to when it is last read.

    Attributes:
        owner: the instruction that writes it.
        size: its bytes.
        begin: when it is written.
        end: when it is last read.
    """

    owner: Instruction
    size: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """A scheduled program with its buffers.

    Attributes:
        program: the program.
        order: its schedule.
        temporary: what lies in no result's buffer, each with the steps in which it counts.
        inside: for each step the bytes that it takes only while it runs.
        peak: the bytes of the block that they share, what is taken inside of steps among them.
        origins: for what is computed in another shape than the graph has it in, the graph's value.
    """

    program: Program
    order: Schedule
    temporary: Sequence[tuple[Buffer, LiveRange]]
    inside: Sequence[int]
    peak: int
    origins: Mapping[Value, Value] = field(default_factory=dict)

    def values(self, instruction: Instruction) -> Sequence[Value]:
        """What an instruction computes, as the graph has it; empty for what comes from no equation."""
        results = () if instruction.eqn is None else instruction.eqn.results
        return [self.origins.get(value, value) for value in results]

    @property
    def allocation(self) -> Allocation:
        """The same without what the buffers hold."""
        return Allocation([live for _, live in self.temporary], self.inside)


def place(program: Program, order: Schedule, scheduler: int) -> Placement:
    """Place the temporary buffers; `scheduler` says by which one loops run inside."""
    elsewhere = _in_carries(program, order)
    late, copies = _written_late(program, order)
    results = {owner_of(result) for result in program.results} - late.keys()
    buffers = [_buffer(owner, order) for owner in program.instructions if _is_buffer(owner) and owner not in elsewhere]
    buffers = [late.get(buffer.owner, buffer) for buffer in buffers]
    over = _may_be_written_over(program, buffers, order)
    outer = [buffer for buffer in buffers if buffer.owner in results]
    read = {owner_of(result): _donated(parameter, order) for result, parameter in program.aliased.items()}
    temporary = _beside_results(outer, [buffer for buffer in buffers if buffer.owner not in results], over, order, read)
    ranges: list[tuple[Buffer, LiveRange]] = []
    before: dict[Buffer, Buffer] = {}
    taken: set[Buffer] = set()
    for buffer in temporary:
        last = next((last for last in over[buffer] if last in temporary and last not in taken), None)
        if last is not None:
            taken.add(last)
            before[buffer] = last
        ranges.append((buffer, LiveRange(buffer.size, buffer.begin + (last is not None), buffer.end)))
    ranges += [(copy, LiveRange(copy.size, copy.begin, copy.end)) for copy in copies]
    inside = [kernel.inside[scheduler] if kernel.inside else 0 for kernel in order.order]
    places = [[LiveRange(one.size, one.begin, one.end) for one in place] for place in _places(temporary, before)]
    # What a loop takes inside is many buffers, which lie in gaps.
    held = Allocation([live for _, live in ranges], inside).peak()
    peak = max(held, packed([*places, *[[live] for _, live in ranges[len(temporary) :]]], held))
    return Placement(program, order, ranges, inside, peak)


def _places(buffers: Iterable[Buffer], before: Mapping[Buffer, Buffer]) -> Iterator[list[Buffer]]:
    """What is in one place, one after the other; `before` are the buffers whose place others take."""
    followers = {last: buffer for buffer, last in before.items()}
    for first in buffers:
        if first not in before:
            place = [first]
            while place[-1] in followers:
                place.append(followers[place[-1]])
            yield place


def _donated(parameter: Instruction, order: Schedule) -> list[tuple[int, int, Buffer]]:
    """When a donated parameter takes the place of the result that lies there."""
    last = order.last_read.get(parameter, -1)
    return [(-1, last, Buffer(parameter, parameter.type.bytes, -1, last))] if last >= 0 else []


def _is_buffer(instruction: Instruction) -> bool:
    return instruction.is_written and instruction.size > 0 and instruction.buffer is None


def _buffer(owner: Instruction, order: Schedule) -> Buffer:
    writer = owner.operands[0] if owner.name == "part" else owner
    return Buffer(owner, owner.size, order.time[writer], order.last_read[owner])


def _in_carries(program: Program, order: Schedule) -> set[Instruction]:
    """What a loop's body writes where the carry before lay, which nothing else reads then, or any more."""
    found: set[Instruction] = set()
    for before, after in program.carried:
        owner = owner_of(after.operands[0])
        written, last = order.time.get(owner, 0), order.last_read[before]
        over = _replaceable(program, order, owner) if owner.replaces is None else [owner_of(owner.replaces)]
        if not after.operands[0].is_fused and (last < written or (last == written and before in over)):
            found.add(owner)
    return found


def _written_late(program: Program, order: Schedule) -> tuple[dict[Instruction, Buffer], list[Buffer]]:
    """The temporary buffers of results that are computed before what they are written over is read for the last time.

    XLA copies them to where they belong. With them, the copies of donated parameters that are read after that.
    """
    late: dict[Instruction, Buffer] = {}
    copies = []
    for result, parameter in program.aliased.items():
        owner, last = owner_of(result), order.last_read.get(parameter, -1)
        buffer = _buffer(owner, order) if _is_buffer(owner) else None
        if buffer is not None and buffer.begin < last:
            late[owner] = buffer
            if order.time.get(result, 0) < last:
                copies.append(Buffer(parameter, parameter.type.bytes, 0, last))
    ends = {owner: buffer.begin for owner, buffer in late.items()}
    for kernel, readers in order.readers.items() if late else ():
        owner = owner_of(kernel)
        if owner in ends:
            ends[owner] = max([ends[owner], *[order.time[reader] for reader in readers if reader is not program.end]])
    return {owner: replace(late[owner], end=end) for owner, end in ends.items()}, copies


def _may_be_written_over(program: Program, buffers: list[Buffer], order: Schedule) -> dict[Buffer, list[Buffer]]:
    """For each buffer those of operands whose place it may take, which have its size and shape.

    What an op writes over in place is one buffer with its result, to which XLA gives no operand's place and from which
    no elementwise kernel takes it.
    """
    of = {buffer.owner: buffer for buffer in buffers}
    in_place: dict[Buffer, Buffer] = {}
    for buffer in buffers:
        last = None if buffer.owner.replaces is None else of.get(owner_of(buffer.owner.replaces))
        if last is not None and last.owner.name != "part" and (last.end, last.size) == (buffer.begin, buffer.size):
            in_place[buffer] = last
    aliased = {*in_place, *in_place.values()}
    found: dict[Buffer, list[Buffer]] = {}
    for buffer in buffers:
        if buffer in aliased:
            found[buffer] = [in_place[buffer]] if buffer in in_place else []
            continue
        read = _replaceable(program, order, buffer.owner)
        lasts = [of[last] for last in read if last in of and last.name != "part"]
        found[buffer] = [last for last in lasts if last not in aliased and _ends_for(last, buffer)]
    return found


def _replaceable(program: Program, order: Schedule, owner: Instruction) -> Sequence[Instruction]:
    """What a kernel may write its result over.

    XLA does not see through reshapes here: only what wrote a buffer hands it on, and a barrier where it is gone.
    """
    read = order.replaceable.get(owner, [])
    return [_before_barriers(last) for last in read] if program.target.shares_behind_barriers else read


def _before_barriers(instruction: Instruction) -> Instruction:
    """What a barrier gives on, if anything."""
    while instruction.name == "after" and instruction.buffer is not None:
        instruction = instruction.buffer
    return instruction


def _ends_for(last: Buffer, buffer: Buffer) -> bool:
    """Whether a buffer is read last by what writes another one like it."""
    return last.end == buffer.begin and _is_alike(last.owner, buffer.owner)


def _is_alike(first: Instruction, second: Instruction) -> bool:
    return first.size == second.size and _shape(first) == _shape(second)


def _shape(instruction: Instruction) -> tuple[int, ...]:
    """The shape in which a result lies: the library converts products as it computes them, before they are reshaped."""
    if instruction.name == "convert" and instruction.operands[0].name == "bitcast":
        (source,) = instruction.operands[0].operands
        if source.kind is Kind.PRODUCT and source.is_joined:
            return source.type.shape
    return instruction.type.shape


def _beside_results(
    outer: list[Buffer],
    temporary: list[Buffer],
    over: dict[Buffer, list[Buffer]],
    order: Schedule,
    read: Mapping[Instruction, Sequence[tuple[int, int, Buffer]]],
) -> dict[Buffer, None]:
    """The temporary buffers that find no place in the buffer of a result, of which `read` says when it is taken by a
    donated parameter.
    """
    classes: dict[int, list[Buffer]] = {}
    for buffer in sorted(outer, key=lambda buffer: (buffer.size, buffer.begin)):
        classes.setdefault(buffer.size, []).append(buffer)
    begins = {size: [buffer.begin for buffer in alike] for size, alike in classes.items()}
    held = {buffer: [*read.get(buffer.owner, ()), (buffer.begin, len(order.order), buffer)] for buffer in outer}

    def places(buffer: Buffer) -> Iterator[Buffer]:
        for size, alike in classes.items():
            if size >= buffer.size:
                first = bisect_left(begins[size], buffer.end)
                yield from alike[first : first + _TRIED]

    rest: dict[Buffer, None] = {}
    for buffer in sorted(temporary, key=lambda buffer: -buffer.size):
        if not any(_placed(buffer, held[result], over) for result in places(buffer)):
            rest[buffer] = None
    return rest


def _placed(buffer: Buffer, intervals: list[tuple[int, int, Buffer]], over: dict[Buffer, list[Buffer]]) -> bool:
    """Put a buffer between those that lie in one place, if it lives between them."""
    at = bisect_left(intervals, (buffer.begin,))
    if at > 0:
        _, end, before = intervals[at - 1]
        if end > buffer.begin or (end == buffer.begin and before not in over[buffer]):
            return False
    if at < len(intervals):
        begin, _, after = intervals[at]
        if begin < buffer.end or (begin == buffer.end and buffer not in over[after]):
            return False
    intervals.insert(at, (buffer.begin, buffer.end, buffer))
    return True
