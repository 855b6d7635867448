"""Analysis: the temporary memory that a program needs, predicted from its graph.

Before:  %0 = dot_general %x, %w   %1 = tanh %0   %2 = dot_general %1, %w   return %2
After:   bytes at the peak: %0 and %1, of which the second takes the place of the first

Three questions, each answered as XLA on the CPU does: what is written to memory (`fusion`), when kernels run
(`schedule`), and which buffers lie in one place (`buffers`). What this leaves out: the gaps between buffers of
different sizes, what kernels take for themselves, and much of how XLA rewrites a program before it fuses it.

A program that recomputes, in which barriers or functions say when it may begin, is compiled for kernels that run at the
same time, and any other for memory (`rematc.lowering.platforms`): kernels are ordered breadth first or depth first.
"""

from __future__ import annotations

from rematc.ir.core import Equation, Graph
from rematc.ir.ops.loops import Scan
from rematc.ir.ops.regions import Call
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.passes.liveness.buffers import peak
from rematc.passes.liveness.fusion import fuse
from rematc.passes.liveness.instructions import Program
from rematc.passes.liveness.orders import Scheduler, breadth_first, depth_first
from rematc.passes.liveness.schedule import schedule


def predicted_peak(graph: Graph) -> int:
    """The peak of temporary memory in bytes, of a graph after the passes."""
    return _peak(graph, None, breadth_first if has_recomputation(graph) else depth_first)


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
