"""What a plan keeps from the forward to the backward pass, what it computes again, and how much work that is.

A planned program is flat and does not say where its backward pass begins
(`rematc.passes.memory_timeline.backward_begin`): without recomputation, where most is held for longest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rematc.passes import memory_timeline
from rematc.passes.planning.planned_loops import PlannedLoop
from rematc.passes.planning.planned_program import PlannedProgram, described
from rematc.passes.planning.problem import Stages
from rematc.passes.planning.timeline import AFTER, Timeline


@dataclass(frozen=True, slots=True)
class PlannedValue:
    """What a plan keeps, or computes again.

    Attributes:
        what: `output of tanh` or `named 'h'`.
        type: element type and shape, as text.
        size: bytes; of a value of a loop's step those of all steps.
        where: file and line in the user's code; "" where they are not known.
        times: how many stages compute it again; 0 for what is kept.
        steps: how many steps the loop has that computes it again; 0 for what is in no loop.
        how: how that loop does, in words.
        flops: floating-point operations of all stages' evaluations; 0 where they are not known, in loops.
    """

    what: str
    type: str
    size: int
    where: str
    times: int = 0
    steps: int = 0
    how: str = ""
    flops: int = 0

    def __str__(self) -> str:
        text = f"{self.what} from {self.where}" if self.where else self.what
        if self.steps:
            return f"{text}, {self.how}, {self.steps} steps" if self.steps > 1 else f"{text}, {self.how}"
        return f"{text}, {self.times} times" if self.times > 1 else text


@dataclass(frozen=True, slots=True)
class KernelWork:
    """An amount of work.

    Attributes:
        kernels: how many run; a loop is one.
        flops: their floating-point operations.
    """

    kernels: int
    flops: int

    def __add__(self, other: KernelWork) -> KernelWork:
        return KernelWork(self.kernels + other.kernels, self.flops + other.flops)


@dataclass(frozen=True, slots=True)
class PlannedWork:
    """The work of a program that runs as planned.

    Attributes:
        forward: before the place where the backward pass begins.
        again: what is computed again, in stages and in steps of loops.
        backward: the rest.
        products: how many products stages compute again.
        looped: how many steps of loops do, all together, and branches.
    """

    forward: KernelWork
    again: KernelWork
    backward: KernelWork
    products: int
    looped: int

    @property
    def total(self) -> KernelWork:
        """All that runs."""
        return self.forward + self.again + self.backward


def backward_begin(program: PlannedProgram) -> int:
    """The kernel with which the backward pass begins."""
    problem, count = program.problem, len(program.kernels)
    ends = list(program.producers)
    for place in range(count):
        for value in problem.reads[place]:
            ends[value] = place
    losses = [
        program.producers[value]
        for value, stored in enumerate(program.values)
        if stored.is_result and stored.type.endswith("[]")
    ]
    sizes = [stored.size for stored in program.values]
    return memory_timeline.backward_begin(program.producers, ends, sizes, count, losses)


def kept(program: PlannedProgram, stages: Stages, begin: int) -> tuple[PlannedValue, ...]:
    """What is written before a kernel, held until then or later, and not computed again, largest first."""
    timeline = Timeline(program.problem, stages)
    # After the kernel before it has run.
    now = begin * timeline.stride - 1
    found = []
    for value, stored in enumerate(program.values):
        place = program.producers[value]
        if place >= begin or not stored.size:
            continue
        written = timeline.begin(value, now + 1)
        if timeline.end(value, written) > now and timeline.following(value, written) == AFTER:
            kernel = program.kernels[place]
            what, where = described(kernel.op, kernel.names), kernel.where
            if stored.origin:
                what, where = stored.origin, ""
            found.append(PlannedValue(what, stored.type, stored.size, where))
    return tuple(sorted(found, key=lambda one: -one.size))


def computed_again(program: PlannedProgram, stages: Stages, loops: Sequence[PlannedLoop]) -> tuple[PlannedValue, ...]:
    """What stages, and the steps of loops, compute again, largest first."""
    times = Counter(place for row in stages.again for place in row)
    found = []
    for place in sorted(times):
        kernel = program.kernels[place]
        what = described(kernel.op, kernel.names)
        flops = kernel.flops * times[place]
        found.append(PlannedValue(what, kernel.type, kernel.size, kernel.where, times[place], flops=flops))
    found += [
        PlannedValue(described(one.op, one.names), one.type, one.size, one.where, 1, loop.length, loop.how)
        for loop in loops
        for one in loop.stacks
    ]
    return tuple(sorted(found, key=lambda one: -one.size))


def work(
    program: PlannedProgram,
    stages: Stages,
    loops: Sequence[PlannedLoop],
    begin: int,
    flops: int,
    extra_flops: int,
    in_branches: int,
) -> PlannedWork:
    """The work of a program of so many floating-point operations, and so many that are computed again.

    So many products are computed again `in_branches` of the backward pass.
    """
    kernels = program.kernels
    again = [kernels[place] for row in stages.again for place in row]
    forward = KernelWork(begin, sum(kernel.flops for kernel in kernels[:begin]))
    # The kernels of backward loops have what their steps compute again in them.
    backward = KernelWork(len(kernels) - begin, flops - forward.flops)
    products = sum(kernel.is_product for kernel in again)
    looped = sum(loop.products for loop in loops) + sum(kernel.inside for kernel in again) + in_branches
    return PlannedWork(forward, KernelWork(len(again), extra_flops), backward, products, looped)
