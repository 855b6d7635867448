"""Products that barriers hold, in the shape in which GPUs write them.

Before:  %0: f32[8,64,512] = dot_general %x, %w   %1: f32[8,64,512], %2: f32[8,64] = optimization_barrier %0, %y
After:   %0: f32[8,64,512] = dot_general %x, %w   %3: f32[512,512] = reshape %0
         %4: f32[512,512], %2: f32[8,64] = optimization_barrier %3, %y   %1: f32[8,64,512] = reshape %4

XLA for GPUs multiplies matrices, or batches of matrices, and gives the result another shape where it is read. Behind a
barrier that stands apart from the kernel that reads it, and a kernel does not write over what is in another shape
there: of logits that is a second array. A shape that is given behind the barrier is a part of the kernel.
"""

from __future__ import annotations

import math

from rematc.ir.core import Equation, Graph
from rematc.ir.facts import Storage
from rematc.ir.ops.conversion import ReducePrecision
from rematc.ir.ops.dot import DotGeneral
from rematc.ir.ops.shape import Reshape
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.ir.values import Value
from rematc.passes.regions import RegionRewriter

Shape = tuple[int, ...]


class MatrixShapes:
    """Rewrites graphs, and their regions."""

    def __init__(self) -> None:
        self._regions = RegionRewriter(self.graph)

    def graph(self, graph: Graph) -> Graph:
        """The graph with products in matrix shape in barriers; the graph itself where no barrier holds any."""
        written: dict[Value, Shape] = {}
        equations: list[Equation] = []
        for eqn in graph.equations:
            op = self._regions.op(eqn.op)
            own = eqn if op is eqn.op else Equation(op, eqn.operands, eqn.results, eqn.loc)
            if isinstance(op, DotGeneral):
                written[eqn.results[0]] = _matrices(op, eqn)
            elif isinstance(op, OptimizationBarrier):
                written.update({r: written[x] for x, r in zip(eqn.operands, eqn.results, strict=True) if x in written})
                equations += _held(own, written)
                continue
            elif eqn.operands[:1] and eqn.operands[0] in written and _is_written_alike(op):
                written[eqn.results[0]] = written[eqn.operands[0]]
            equations.append(own)
        is_changed = len(equations) != len(graph.equations) or any(
            one is not other for one, other in zip(equations, graph.equations, strict=False)
        )
        return Graph(graph.name, graph.params, tuple(equations), graph.results) if is_changed else graph


def _is_written_alike(op: object) -> bool:
    """Whether a result is written as the operand is; rounding 16 bits to themselves is no work to XLA."""
    return isinstance(op, ReducePrecision) or getattr(op, "storage", None) is Storage.ALIAS


def _matrices(op: DotGeneral, eqn: Equation) -> Shape:
    """The shape in which a product is written: batch, rows, columns, as far as there are any of these."""
    x, y = [value.type for value in eqn.operands]
    rows = x.rank - len(op.batch[0]) - len(op.contract[0])
    shape = eqn.results[0].type.shape
    first, second = len(op.batch[0]), len(op.batch[0]) + rows
    assert second + y.rank - len(op.batch[1]) - len(op.contract[1]) == len(shape), "the result has no other dimensions"
    parts = [shape[:first], shape[first:second], shape[second:]]
    return tuple([math.prod(part) for part in parts if part])


def _held(barrier: Equation, written: dict[Value, Shape]) -> list[Equation]:
    """A barrier, with reshapes around it of products that are written in another shape."""
    before, behind = [], []
    operands, results = list(barrier.operands), list(barrier.results)
    for index, (value, result) in enumerate(zip(barrier.operands, barrier.results, strict=True)):
        shape = written.get(value)
        if shape is None or shape == value.type.shape:
            continue
        given, held = (Value(value.type.with_shape(shape)) for _ in range(2))
        before.append(Equation(Reshape(shape), (value,), (given,), barrier.loc))
        behind.append(Equation(Reshape(value.type.shape), (held,), (result,), barrier.loc))
        operands[index], results[index] = given, held
    if not before:
        return [barrier]
    return [*before, Equation(barrier.op, tuple(operands), tuple(results), barrier.loc), *behind]
