"""Analysis: the order in which XLA on the CPU runs kernels, and when what is in memory is read last.

Before:  kernels a(x), b(x), c(b), d(a, c) and what they read
After:   a, b, c, d by one scheduler, b, c, a, d by the other; x is read last at the end of either a or b

XLA has two schedulers (`orders`); a compile option chooses one for the whole program. Both start from the users of each
kernel and from what each reads. Users stand at first in the order of a walk from the results over the operands, depth
first; then each kernel, the last one first, takes its parts and becomes a user of what they read, and where a user is
taken out because all kernels have it, the last one takes its place.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from rematc.lowering.xla_cpu.fusion import takes
from rematc.lowering.xla_cpu.instructions import Instruction, Kind, Program
from rematc.lowering.xla_cpu.orders import Kernels, Scheduler

#: How many instructions of one kernel are looked at for what it reads.
_LARGEST_KERNEL = 1000


@dataclass(frozen=True, slots=True)
class Schedule:
    """Kernels in the order they run.

    Attributes:
        order: kernels, each by the instruction whose result it writes, and what needs none.
        time: the place of each in `order`.
        last_read: for what is in memory the last time that its buffer is read, under all its names.
        replaceable: for each kernel what it reads only where it writes: it may write its result over that.
        readers: the kernels that read what each writes, under this name.
    """

    order: list[Instruction]
    time: dict[Instruction, int]
    last_read: dict[Instruction, int]
    replaceable: dict[Instruction, list[Instruction]]
    readers: dict[Instruction, list[Instruction]]


def kernels_of(program: Program) -> Kernels:
    """The kernels of a program whose fusion is decided, in the order that both schedulers start from."""
    kernels = [
        instruction
        for instruction in program.instructions
        if (instruction.is_written or instruction.kind is Kind.SOURCE) and instruction.name != "constant"
    ]
    rank = {instruction: place for place, instruction in enumerate(program.in_postorder())}
    users = {x: _Users(sorted(x.users, key=lambda u: rank.get(u, len(rank)))) for x in program.instructions}
    replaceable: dict[Instruction, list[Instruction]] = {}
    operands: dict[Instruction, list[Instruction]] = {}
    # Libraries take theirs first, and what is computed last comes first.
    for kernel in sorted(kernels, key=lambda kernel: (kernel.group is None, -rank.get(kernel, -1))):
        read = _take_parts(kernel, users, rank)
        operands[kernel] = list(read)
        replaceable[kernel] = [source for source, is_direct in read.items() if is_direct and kernel.is_elementwise]
    readers = {kernel: [user for user in users[kernel].order if user in operands] for kernel in kernels}
    keeps_barriers = not program.target.shares_behind_barriers
    return Kernels(kernels, operands, readers, replaceable, program.is_body, keeps_barriers)


def schedule(given: Kernels, scheduler: Scheduler) -> Schedule:
    """Order the kernels of a program by one of XLA's schedulers."""
    order = scheduler(given)
    time = {kernel: index for index, kernel in enumerate(order)}
    last_read: dict[Instruction, int] = {}
    for kernel in given.kernels:
        last = max([time[kernel], *(time[reader] for reader in given.readers[kernel])])
        owner = owner_of(kernel)
        last_read[owner] = max(last_read.get(owner, 0), last)
    return Schedule(order, time, last_read, given.replaceable, given.readers)


def owner_of(instruction: Instruction) -> Instruction:
    """The instruction in whose buffer a result lies."""
    while instruction.buffer is not None:
        instruction = instruction.buffer
    return instruction


class _Users:
    """The users of an instruction in XLA's order: where one is taken out, the last one takes its place."""

    __slots__ = ("_places", "order")

    def __init__(self, order: list[Instruction]) -> None:
        self.order = list(order)
        self._places = {user: place for place, user in enumerate(order)}

    def add(self, user: Instruction) -> None:
        if user not in self._places:
            self._places[user] = len(self.order)
            self.order.append(user)

    def remove(self, user: Instruction) -> None:
        if user in self._places:
            place, last = self._places.pop(user), self.order.pop()
            if last is not user:
                self.order[place] = last
                self._places[last] = place


def _take_parts(
    kernel: Instruction, users: dict[Instruction, _Users], rank: dict[Instruction, int]
) -> dict[Instruction, bool]:
    """What a kernel reads from memory, and whether only at the place that it writes.

    The kernel takes its parts, the last one first; it becomes a user of what they read, and they are users no more when
    all kernels have them.
    """
    found: dict[Instruction, bool] = {}
    inside = {kernel}
    parts: list[tuple[int, int, Instruction]] = []

    def read(user: Instruction) -> None:
        for operand in dict.fromkeys(user.operands):
            if operand.name == "constant":
                continue
            if not _is_part(operand, user, kernel):
                found[operand] = found.get(operand, True) and (user is kernel or user.is_direct)
            elif operand not in inside and len(inside) < _LARGEST_KERNEL:
                inside.add(operand)
                heapq.heappush(parts, (-rank.get(operand, -1), operand.index, operand))

    read(kernel)
    while parts:
        part = heapq.heappop(parts)[-1]
        operands = dict.fromkeys(part.operands)
        for operand in operands:
            users[operand].add(kernel)
        users[part].remove(kernel)
        if not users[part].order:
            for operand in operands:
                users[operand].remove(part)
        read(part)
    return found


def _is_part(operand: Instruction, user: Instruction, kernel: Instruction) -> bool:
    if kernel.group is not None:
        return operand.group is kernel.group
    return operand.is_fused and operand.group is None and takes(user)
