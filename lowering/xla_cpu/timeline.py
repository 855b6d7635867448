"""The memory of a program over the schedule that it is predicted to have, with what each buffer holds.

Before:  %0 = dot_general %x, %w   %1 = tanh %0   %2 = dot_general %1, %w   return %2
After:   step 0 dot_general, forward; step 1 tanh, forward, over %0; %0, 4 MiB, [0..1], read by step 1

It is the same placement that the predicted bytes are the peak of (`rematc.lowering.xla_cpu.prediction`).
"""

from __future__ import annotations

from collections.abc import Sequence

from rematc.ir.core import Graph
from rematc.lowering.target import Target
from rematc.lowering.xla_cpu.buffers import Placement
from rematc.lowering.xla_cpu.instructions import Instruction
from rematc.lowering.xla_cpu.prediction import placement
from rematc.lowering.xla_cpu.schedule import owner_of
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
from rematc.passes.planning.shards import WHOLE, Shards
from rematc.passes.recomputation import recomputed_equations


def predicted_timeline(
    graph: Graph, target: Target, shards: Shards = WHOLE, *, is_differentiated: bool
) -> MemoryTimeline:
    """The memory of a graph after the passes on one device; without a derivative all of it is forward."""
    placed, _ = placement(graph, target, (), shards)
    order = placed.order
    again = {id(eqn) for eqn in recomputed_equations(placed.program.graph)}
    repeats = [_is_in(kernel, again) for kernel in order.order]
    backward = _backward(placed, repeats) if is_differentiated else len(order.order)
    steps = [
        Step(_name(kernel), _phase(at, is_again, backward), kernel.eqn.loc if kernel.eqn else None, inside)
        for at, (kernel, is_again, inside) in enumerate(zip(order.order, repeats, placed.inside, strict=True))
    ]
    readers = _readers(placed)
    buffers = []
    for buffer, live in placed.temporary:
        owner, phase = buffer.owner, steps[buffer.begin].phase
        role = role_of(live.begin, live.end, phase, backward)
        read = tuple(sorted(readers.get(owner, ())))
        loc = owner.eqn.loc if owner.eqn else None
        buffers.append(LiveBuffer(_name(owner), str(owner.type), buffer.size, live.begin, live.end, role, read, loc))
    arguments = sum(shards.bytes(value) for value in graph.params if not value.type.on_host)
    results = sum(shards.bytes(value) for value in graph.results if not value.type.on_host)
    return MemoryTimeline(tuple(steps), tuple(buffers), backward, arguments, results, placed.peak)


def _name(instruction: Instruction) -> str:
    """The op, also of what is one of its several results."""
    if instruction.name == "part" and instruction.eqn is not None:
        return instruction.eqn.op.name
    return instruction.name


def _is_in(instruction: Instruction, equations: set[int]) -> bool:
    return instruction.eqn is not None and id(instruction.eqn) in equations


def _phase(at: int, is_again: bool, backward: int) -> str:
    if is_again:
        return RECOMPUTED
    return FORWARD if at < backward else BACKWARD


def _backward(placed: Placement, repeats: Sequence[bool]) -> int:
    order = placed.order
    losses = sorted(
        order.time[result] for result in placed.program.results if not result.type.shape and result in order.time
    )
    buffers = [buffer for buffer, _ in placed.temporary]
    begin = backward_begin(
        [buffer.begin for buffer in buffers],
        [buffer.end for buffer in buffers],
        [buffer.size for buffer in buffers],
        len(order.order),
        losses,
    )
    return min(begin, next((at for at, is_again in enumerate(repeats) if is_again), begin))


def _readers(placed: Placement) -> dict[Instruction, set[int]]:
    """For what owns a buffer the steps that read it, under all its names."""
    order = placed.order
    found: dict[Instruction, set[int]] = {}
    for kernel, readers in order.readers.items():
        found.setdefault(owner_of(kernel), set()).update(order.time[reader] for reader in readers)
    return found
