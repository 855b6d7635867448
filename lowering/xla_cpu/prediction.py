"""Analysis: the temporary memory that a program needs, predicted from its graph.

Before:  %0 = dot_general %x, %w   %1 = tanh %0   %2 = dot_general %1, %w   return %2
After:   bytes at the peak: %0 and %1, of which the second takes the place of the first

Three questions, each answered as XLA on the CPU does: what is written to memory (`fusion`), when kernels run
(`schedule`), and which buffers lie in one place (`buffers`, `packing`). What this leaves out: what kernels take for
themselves, and much of how XLA rewrites a program before it fuses it.

XLA has two schedulers, and a program is compiled with the one that is predicted to hold less, depth first where that is
open. One that recomputes, in which barriers or functions say when that may begin, always runs breadth first: depth
first, what they let through would be held for longer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rematc.ir.core import Equation, Graph
from rematc.ir.values import Value
from rematc.lowering.donation import aliased_results
from rematc.lowering.target import Target
from rematc.lowering.targeting import current_target
from rematc.lowering.xla_cpu.buffers import Placement, place
from rematc.lowering.xla_cpu.fusion import fuse
from rematc.lowering.xla_cpu.instructions import Program, Step
from rematc.lowering.xla_cpu.joining import join_sums
from rematc.lowering.xla_cpu.orders import Scheduler, breadth_first, depth_first
from rematc.lowering.xla_cpu.schedule import kernels_of, schedule
from rematc.passes.barriers import has_recomputation
from rematc.passes.cse import CommonSubexpressions
from rematc.passes.hoist import Hoist
from rematc.passes.legalize.legalization import Legalize
from rematc.passes.liveness import Allocation
from rematc.passes.planning.one_device import on_one_device
from rematc.passes.planning.shards import WHOLE, Shards

#: Programs that need less keep the usual scheduler.
_LEAST = 2**16


@dataclass(frozen=True, slots=True)
class Prediction:
    """What is expected of a program.

    Attributes:
        peak: bytes of temporary memory.
        is_depth_first: whether kernels are to run depth first, so that it is no more.
    """

    peak: int
    is_depth_first: bool


def allocation(graph: Graph, target: Target | None = None) -> Allocation:
    """The temporary buffers of a graph after the passes (`rematc.passes.liveness.MemoryModel`)."""
    return placement(graph, target)[0].allocation


def predict(
    graph: Graph, target: Target | None = None, donated: Sequence[int] = (), shards: Shards = WHOLE
) -> Prediction:
    """The temporary memory of a graph after the passes, and by which scheduler; for the current target by default.

    `donated` are the parameters in whose memory results may lie; `shards` is how it is spread over several devices.
    """
    found, is_depth_first = placement(graph, target, donated, shards)
    return Prediction(found.peak, is_depth_first)


def placement(
    graph: Graph, target: Target | None = None, donated: Sequence[int] = (), shards: Shards = WHOLE
) -> tuple[Placement, bool]:
    """The buffers of a graph after the passes on one device, in their schedule; whether that is the one depth first."""
    target = target or current_target()
    aliased = aliased_results(graph, donated)
    legal, origins = _legal(graph, target)
    local, parts = on_one_device(legal, shards)
    found, is_depth_first = _of_better_order(local, target, aliased)
    whole = {part: origins.get(value, value) for part, value in parts.items()}
    return replace(found, origins={**origins, **whole}), is_depth_first


def placement_inside(region: Graph, step: Step | None, target: Target) -> Placement:
    """The buffers of a region of a program that recomputes, on its own, while it runs once.

    Args:
        region: after the passes.
        step: which of its parameters are carries, if it is a loop's body.
        target: for what.
    """
    legal, origins = _legal(region, target)
    return replace(_placements(legal, step, [breadth_first], target)[0], origins=origins)


def _legal(graph: Graph, target: Target) -> tuple[Graph, Mapping[Value, Value]]:
    """A graph as XLA has it, and what its values are in the one given.

    XLA, too, computes once what is the same once compound ops are plain ones: the square in a cube's derivative. And
    once for all steps of a loop what is the same in them.
    """
    shares, keeps = target.shares_behind_barriers, target.keeps_bfloat16
    legal, origins = Legalize("cpu", target.devices, shares, keeps).with_origins(graph)
    return CommonSubexpressions().run(Hoist().run(legal)), origins


def _of_better_order(graph: Graph, target: Target, aliased: Sequence[tuple[int, int]]) -> tuple[Placement, bool]:
    """The buffers in the order in which a graph is compiled; whether that is depth first."""
    if has_recomputation(graph):
        return _placements(graph, None, [breadth_first], target, aliased)[0], False
    usual, other = _placements(graph, None, [breadth_first, depth_first], target, aliased)
    needed = usual.peak
    is_depth_first = needed >= _LEAST and other.peak <= needed
    return (other if is_depth_first else usual), is_depth_first


def _placements(
    graph: Graph,
    step: Step | None,
    schedulers: Sequence[Scheduler],
    target: Target,
    aliased: Sequence[tuple[int, int]] = (),
) -> list[Placement]:
    """The buffers by each of the schedulers, which order the same kernels."""

    def inside(eqn: Equation) -> list[int]:
        """What the regions of an equation take while it runs: one of them at a time."""
        regions = enumerate(eqn.op.regions())
        found = [_placements(region, Step.of(eqn.op, at), schedulers, target) for at, region in regions]
        return [max(one.peak for one in taken) for taken in zip(*found, strict=True)]

    program = Program(graph, step, inside, target, aliased)
    fuse(program)
    join_sums(program)
    kernels = kernels_of(program)
    return [place(program, schedule(kernels, scheduler), index) for index, scheduler in enumerate(schedulers)]
