"""Analysis: the sums over devices that XLA on the CPU joins into one.

Before:  %0 = device_sum %a   %1 = f(%0)   %2 = device_sum %b   %3 = device_sum %c, which is computed from %1
After:   %0, %2 = device_sum %a, %b   %1 = f(%0)   %3 = device_sum %c

It runs after fusion (`CpuAllReduceCombiner`). Sums over the same devices of one element type are taken in the order of
a walk from the results over the operands, as many as a sum may have, up to the first one that is computed from another
one of them; then those that are left. All operands of a joined one are in memory until all of its results are.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from rematc.ir.ops.devices import DeviceExtremum, DeviceSum
from rematc.lowering.xla_cpu.instructions import Instruction, Program

#: How many sums are joined at most.
_MOST = 256


def join_sums(program: Program) -> None:
    """Join the sums of a program whose fusion is decided."""
    if sum(_key(one) is not None for one in program.instructions) < 2:
        return
    order, first = program.in_postorder(), 0
    rest = {one: key for one in order if (key := _key(one)) is not None}
    while len(rest) > 1:
        while order[first] not in rest:
            first += 1
        group = _group(order, first, rest)
        for one in group:
            del rest[one]
        if len(group) > 1:
            program.join(group)
            order = program.in_postorder()  # the same up to the first


def _key(instruction: Instruction) -> Hashable | None:
    """What sums that are joined agree in; None for all else."""
    op = instruction.eqn.op if instruction.eqn is not None else None
    if not isinstance(op, DeviceSum | DeviceExtremum) or instruction.name != op.name:
        return None
    return op.name, isinstance(op, DeviceExtremum) and op.is_max, op.over, instruction.type.dtype


def _group(order: Sequence[Instruction], first: int, rest: dict[Instruction, Hashable]) -> Sequence[Instruction]:
    """The first of those that are left, which has this place, and what is joined with it."""
    group: list[Instruction] = []
    behind: set[Instruction] = set()
    for place in range(first, len(order)):
        instruction = order[place]
        if not behind.isdisjoint(instruction.operands):
            behind.add(instruction)
        if instruction not in rest or rest[instruction] != rest[order[first]]:
            continue
        if instruction in behind or len(group) == _MOST:
            break
        group.append(instruction)
        behind.add(instruction)
    return group
