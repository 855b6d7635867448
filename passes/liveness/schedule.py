"""Analysis: the order in which XLA on the CPU runs kernels.

Before:  kernels a(x), b(x), c(b), d(a, c) and what they read
After:   a, b, c, d: each in turn makes those ready whose last operand it is, and they run first come, first served

XLA does not wait with what is ready (`BFScheduler`: so that kernels run at the same time). What becomes ready together
runs in the order of a depth-first walk from the results over the operands.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from rematc.passes.liveness.fusion import takes
from rematc.passes.liveness.instructions import Instruction, Kind, Program

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
    """

    order: list[Instruction]
    time: dict[Instruction, int]
    last_read: dict[Instruction, int]
    replaceable: dict[Instruction, list[Instruction]]


def schedule(program: Program) -> Schedule:
    """Order the kernels of a program whose fusion is decided."""
    kernels = [
        instruction
        for instruction in program.instructions
        if (instruction.is_written or instruction.kind is Kind.SOURCE) and instruction.name != "constant"
    ]
    replaceable: dict[Instruction, list[Instruction]] = {}
    waiting: dict[Instruction, int] = {}
    readers: dict[Instruction, list[Instruction]] = {kernel: [] for kernel in kernels}
    for kernel in kernels:
        read = _read(kernel)
        waiting[kernel] = len(read)
        replaceable[kernel] = [source for source, is_direct in read.items() if is_direct and kernel.is_elementwise]
        for source in read:
            readers[source].append(kernel)
    rank = _depth_first(program)
    for found in readers.values():
        found.sort(key=lambda kernel: rank.get(kernel, len(rank)))
    order = _by_readiness(kernels, readers, waiting)
    time = {kernel: index for index, kernel in enumerate(order)}
    last_read: dict[Instruction, int] = {}
    for kernel in kernels:
        last = max([time[kernel], *(time[reader] for reader in readers[kernel])])
        owner = owner_of(kernel)
        last_read[owner] = max(last_read.get(owner, 0), last)
    return Schedule(order, time, last_read, replaceable)


def owner_of(instruction: Instruction) -> Instruction:
    """The instruction in whose buffer a result lies."""
    while instruction.buffer is not None:
        instruction = instruction.buffer
    return instruction


def _read(kernel: Instruction) -> dict[Instruction, bool]:
    """What a kernel reads from memory, and whether only at the place that it writes."""
    found: dict[Instruction, bool] = {}
    inside = {kernel}
    ways = [(operand, kernel) for operand in reversed(kernel.operands)]
    while ways:
        operand, user = ways.pop()
        if operand.name == "constant":
            continue
        if not _is_part(operand, user, kernel):
            found[operand] = found.get(operand, True) and (user is kernel or user.is_direct)
        elif operand not in inside and len(inside) < _LARGEST_KERNEL:
            inside.add(operand)
            ways.extend((further, operand) for further in reversed(operand.operands))
    return found


def _is_part(operand: Instruction, user: Instruction, kernel: Instruction) -> bool:
    if kernel.group is not None:
        return operand.group is kernel.group
    return operand.is_fused and operand.group is None and takes(user)


def _depth_first(program: Program) -> dict[Instruction, int]:
    """The rank of each instruction that a result depends on: after its operands, the first of them first."""
    rank: dict[Instruction, int] = {}
    seen = {program.end}
    walk: list[tuple[Instruction, Iterator[Instruction]]] = [(program.end, iter(program.end.operands))]
    while walk:
        instruction, operands = walk[-1]
        following = next((operand for operand in operands if operand not in seen), None)
        if following is None:
            rank[instruction] = len(rank)
            walk.pop()
        else:
            seen.add(following)
            walk.append((following, iter(following.operands)))
    return rank


def _by_readiness(
    kernels: list[Instruction], readers: dict[Instruction, list[Instruction]], waiting: dict[Instruction, int]
) -> list[Instruction]:
    order: list[Instruction] = []
    ready = deque(kernel for kernel in kernels if not waiting[kernel])
    while ready:
        kernel = ready.popleft()
        order.append(kernel)
        for reader in readers[kernel]:
            waiting[reader] -= 1
            if not waiting[reader]:
                ready.append(reader)
    return order
