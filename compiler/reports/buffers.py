"""XLA's buffer assignment for people: each allocation, and what lies in it, largest first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rematc.ir.locations import Location
from rematc.ir.tables import Table, plain_text
from rematc.ir.units import counted, format_bytes
from rematc.lowering.hlo.allocations import (
    ARGUMENT,
    CONSTANT,
    RESULT,
    TEMPORARY,
    THREAD,
    Allocation,
    Assignment,
    Live,
    Schedule,
    allocations_of,
    live_buffers,
)
from rematc.lowering.hlo.module import HloModule, Instruction, Shape, op_name
from rematc.lowering.hlo.origins import Origin, location_of, origin_in, sources_of

_KINDS = (TEMPORARY, ARGUMENT, RESULT, CONSTANT, THREAD)
_COLUMNS = ("bytes", "offset", "steps", "part", "value", "type", "XLA's instruction", "from")
_NARROW = ("bytes", "steps", "part", "value", "type", "from")
_RIGHT = (True, True, True, False, False, False, False, False)


@dataclass(frozen=True, slots=True)
class Buffer:
    """What lies in an allocation.

    Attributes:
        instruction: XLA's instruction that writes it.
        type: element type and shape, as XLA has them.
        size: bytes.
        offset: where in the allocation it begins.
        begin: the step of the schedule that writes it; None where it is there throughout, or runs outside of it.
        end: the last step that reads it; None likewise.
        origin: the phase and the equation that it comes from; None where they are not known.
        loc: the user's line; None where it is not known.
    """

    instruction: str
    type: str
    size: int
    offset: int
    begin: int | None
    end: int | None
    origin: Origin | None
    loc: Location | None

    @property
    def part(self) -> str:
        """`forward`, `recompute/2` or `backward`; "" where it is not known."""
        return "" if self.origin is None else self.origin.part

    @property
    def value(self) -> str:
        """The value by its name in the text of the graph after the passes: `%12`; "" where it is not known."""
        return "" if self.origin is None else self.origin.value


@dataclass(frozen=True, slots=True)
class Block:
    """An allocation: a block of memory.

    Attributes:
        index: its number.
        size: bytes.
        kind: `temporary`, `argument`, `result`, `constant`, or `thread` for what each thread has of its own.
        name: of the argument, or "".
        is_returned: whether results lie in it: of an argument, that it is donated.
        buffers: what lies in it, largest first.
    """

    index: int
    size: int
    kind: str
    name: str
    is_returned: bool
    buffers: tuple[Buffer, ...]

    @property
    def title(self) -> str:
        """`allocation 3: temporary, 16.0 KiB`."""
        what = " ".join(filter(None, [self.kind, self.name]))
        return f"allocation {self.index}: {what}, {format_bytes(self.size)}"


@dataclass(frozen=True, slots=True)
class Buffers:
    """Where in memory XLA puts each value of a program, and from when to when. `print` shows it.

    Attributes:
        function: the program's name.
        steps: how many steps the schedule has.
        blocks: the allocations, largest first.
    """

    function: str
    steps: int
    blocks: tuple[Block, ...]

    def size(self, kind: str) -> int:
        """The bytes of all allocations of a kind."""
        return sum(block.size for block in self.blocks if block.kind == kind)

    def __str__(self) -> str:
        return plain_text(self.tables())

    def tables(self) -> list[Table]:
        """The sums, a table for each allocation in which several values may lie, and one of the others by kind."""
        return self._tables(range(len(_COLUMNS)))

    def narrow_tables(self) -> list[Table]:
        """The same for a terminal: without places in allocations, and XLA's names."""
        return self._tables([_COLUMNS.index(name) for name in _NARROW])

    def _tables(self, columns: Sequence[int]) -> list[Table]:
        own = [_table(block, columns) for block in self.blocks if block.kind in (TEMPORARY, RESULT)]
        others = []
        for kind in (ARGUMENT, CONSTANT, THREAD):
            blocks = [block for block in self.blocks if block.kind == kind]
            others += [_table_of_all(kind, blocks)] if blocks else []
        return [self._sums(), *own, *others]

    def _sums(self) -> Table:
        counts = Counter(block.kind for block in self.blocks)
        rows = [(kind, str(counts[kind]), format_bytes(self.size(kind))) for kind in _KINDS if counts[kind]]
        title = f"XLA's buffer assignment of '{self.function}', over {counted(self.steps, 'step')}"
        return Table(title, ("allocations", "number", "size"), (False, True, True), tuple(rows))


def buffers_of(name: str, module: HloModule, assignment: Assignment) -> Buffers:
    """The buffers of a compiled program. Raises ValueError for what is no buffer assignment of XLA's."""
    schedule = Schedule.of(module)
    found = _Reading(module, schedule)
    blocks = [found.block(allocation) for allocation in allocations_of(assignment)]
    return Buffers(name, len(schedule.steps), tuple(sorted(blocks, key=lambda block: (-block.size, block.index))))


class _Reading:
    """Reads what lies in allocations."""

    def __init__(self, module: HloModule, schedule: Schedule) -> None:
        self._module, self._schedule = module, schedule
        self._sources: Mapping[str, Instruction] = sources_of(module)
        self._of: dict[str, Instruction] = {
            instruction.name: instruction
            for computation in module.computations.values()
            for instruction in computation.instructions.values()
        }

    def block(self, allocation: Allocation) -> Block:
        """An allocation."""
        live = live_buffers(allocation.values, self._schedule)
        known = {one.stored.writer for one in live} | set(self._schedule.time)
        others = [one for one in allocation.values if one.writer not in known]
        buffers = [self._buffer(one, allocation.kind) for one in live]
        buffers += [self._buffer(Live(one, -1, -1, ()), THREAD) for one in others]
        buffers.sort(key=lambda one: (-one.size, one.offset, one.begin or 0, one.instruction))
        name = self._name(buffers) if allocation.kind == ARGUMENT else ""
        return Block(allocation.index, allocation.size, allocation.kind, name, allocation.is_returned, tuple(buffers))

    def _name(self, buffers: Sequence[Buffer]) -> str:
        parameters = [self._of[one.instruction] for one in buffers if one.instruction in self._of]
        names = [op_name(one) for one in parameters if one.opcode == "parameter"]
        return next(filter(None, names), "")

    def _buffer(self, live: Live, kind: str) -> Buffer:
        stored, instruction = live.stored, self._of.get(live.stored.writer)
        is_scheduled = kind in (TEMPORARY, RESULT)
        source = self._sources.get(stored.writer) if kind not in (ARGUMENT, CONSTANT) else None
        origin = None if source is None else origin_in(op_name(source))
        return Buffer(
            stored.writer,
            "" if instruction is None else _type(instruction.shape, stored.index),
            stored.size,
            stored.offset,
            live.begin if is_scheduled else None,
            live.end if is_scheduled else None,
            origin,
            None if source is None else location_of(source, self._module),
        )


def _type(shape: str, index: tuple[int, ...]) -> str:
    """Element type and shape; `tuple` for the pointers of one."""
    part = Shape.part(shape, index).strip()
    return "tuple" if part.startswith("(") else str(Shape.of(part))


def _table_of_all(kind: str, blocks: Sequence[Block]) -> Table:
    """Allocations that hold one value each."""
    rows = tuple(
        [
            (format_bytes(block.size), str(block.index), block.name, buffer.type, buffer.instruction)
            for block in blocks
            for buffer in block.buffers[:1]
        ]
    )
    columns = ("size", "allocation", "name" if any(row[2] for row in rows) else "", "type", "XLA's instruction")
    title = f"{kind}s: {counted(len(blocks), 'allocation')}"
    return Table(title, columns, (True, True, False, False, False), rows)


def _table(block: Block, columns: Sequence[int]) -> Table:
    rows = [
        (
            str(one.size),
            str(one.offset),
            "" if one.begin is None else f"{one.begin}-{one.end}",
            one.part,
            one.value,
            one.type,
            one.instruction,
            "" if one.loc is None else one.loc.from_here().describe(),
        )
        for one in block.buffers
    ]
    shown = [index for index in columns if index < 2 or any(row[index] for row in rows)]
    return Table(
        block.title,
        tuple([_COLUMNS[index] for index in shown]),
        tuple([_RIGHT[index] for index in shown]),
        tuple([tuple([row[index] for index in shown]) for row in rows]),
    )
