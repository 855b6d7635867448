"""Analysis: the temporary memory that a program needs, predicted from its graph.

Before:  %0 = dot_general %x, %w   %1 = tanh %0   %2 = dot_general %1, %w   return %2
After:   bytes at the peak: %0 and %1, of which the second takes the place of the first

Three questions, each answered as XLA on the CPU does: what is written to memory (`fusion`), when kernels run
(`schedule`), and which buffers lie in one place (`buffers`). What this leaves out: the gaps between buffers of
different sizes, what kernels take for themselves, and much of how XLA rewrites a program before it fuses it.

XLA has two schedulers, and a program is compiled with the one that is predicted to hold less, depth first where that is
open. One that recomputes, in which barriers or functions say when that may begin, always runs breadth first: depth
first, what they let through would be held for longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rematc.ir.core import Equation, Graph
from rematc.ir.ops.regions import Call
from rematc.ir.ops.scan.op import Scan
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.lowering.xla_cpu.buffers import peak
from rematc.lowering.xla_cpu.fusion import fuse
from rematc.lowering.xla_cpu.instructions import Program
from rematc.lowering.xla_cpu.orders import Scheduler, breadth_first, depth_first
from rematc.lowering.xla_cpu.schedule import kernels_of, schedule

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


def predicted_peak(graph: Graph) -> int:
    """The peak of temporary memory in bytes, of a graph after the passes."""
    return predict(graph).peak


def predict(graph: Graph) -> Prediction:
    """The temporary memory of a graph after the passes, and by which scheduler."""
    if has_recomputation(graph):
        return Prediction(_peaks(graph, None, [breadth_first])[0], False)
    usual, other = _peaks(graph, None, [breadth_first, depth_first])
    is_depth_first = other <= usual and usual >= _LEAST
    return Prediction(other if is_depth_first else usual, is_depth_first)


def has_recomputation(graph: Graph) -> bool:
    """Whether there are barriers, or functions that XLA must not inline, in a graph or its regions."""
    graphs = [graph]
    while graphs:
        for eqn in graphs.pop().equations:
            if isinstance(eqn.op, OptimizationBarrier) or (isinstance(eqn.op, Call) and not eqn.op.is_inlineable):
                return True
            graphs.extend(eqn.op.regions())
    return False


def _peaks(graph: Graph, loop: Scan | None, schedulers: Sequence[Scheduler]) -> list[int]:
    """The peak by each of the schedulers, which order the same kernels."""

    def inside(eqn: Equation) -> list[int]:
        """What the regions of an equation take while it runs: one of them at a time."""
        inner = eqn.op if isinstance(eqn.op, Scan) else None
        found = [_peaks(region, inner, schedulers) for region in eqn.op.regions()]
        return [max(taken) for taken in zip(*found, strict=True)]

    program = Program(graph, loop, inside)
    fuse(program)
    kernels = kernels_of(program)
    return [peak(program, schedule(kernels, scheduler), index) for index, scheduler in enumerate(schedulers)]
