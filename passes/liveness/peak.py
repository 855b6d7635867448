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

from dataclasses import dataclass

from rematc.ir.core import Equation, Graph
from rematc.ir.ops.loops import Scan
from rematc.ir.ops.regions import Call
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.passes.liveness.buffers import peak
from rematc.passes.liveness.fusion import fuse
from rematc.passes.liveness.instructions import Program
from rematc.passes.liveness.orders import Scheduler, breadth_first, depth_first
from rematc.passes.liveness.schedule import schedule

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
    usual = Prediction(_peak(graph, None, breadth_first), False)
    if usual.peak < _LEAST or has_recomputation(graph):
        return usual
    other = Prediction(_peak(graph, None, depth_first), True)
    return other if other.peak <= usual.peak else usual


def has_recomputation(graph: Graph) -> bool:
    """Whether there are barriers, or functions that XLA must not inline, in a graph or its regions."""
    graphs = [graph]
    while graphs:
        for eqn in graphs.pop().equations:
            if isinstance(eqn.op, OptimizationBarrier) or (isinstance(eqn.op, Call) and not eqn.op.is_inlineable):
                return True
            graphs.extend(eqn.op.regions())
    return False


def _peak(graph: Graph, loop: Scan | None, scheduler: Scheduler) -> int:
    def inside(eqn: Equation) -> int:
        """What the regions of an equation take while it runs: one of them at a time."""
        inner = eqn.op if isinstance(eqn.op, Scan) else None
        return max((_peak(region, inner, scheduler) for region in eqn.op.regions()), default=0)

    program = Program(graph, loop, inside)
    fuse(program)
    return peak(program, schedule(program, scheduler))
