"""Make XLA keep recomputation where it is: checkpoint regions become plain equations behind a barrier.

Before:  %3: f32[4] = checkpoint %x, %ct {is_differentiated=true, body=graph @g(%a: f32[4], %c: f32[4]) ... }
After:   %0, %1: f32[4], f32[4] = optimization_barrier %x, %ct
         ... the body of @g over %0 and %1

The barrier holds the residuals and the incoming cotangents: XLA can neither merge the recomputation with the forward
evaluation, nor start it before the cotangent is there. Without the cotangent nothing is saved. A region that is not
differentiated needs no barrier and dissolves. Operands for which `prevent_cse` is not set pass by; in the body of a
loop those too for which nothing is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from rematc.ir.core import Equation, Graph, Value
from rematc.ir.errors import CompileError
from rematc.ir.ops.loops import Scan
from rematc.ir.ops.regions import Call, Checkpoint
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.passes.dce import DeadCode
from rematc.passes.inline import copy_equations
from rematc.passes.manager import Pass, register_pass
from rematc.passes.regions import RegionRewriter

STRATEGIES = ("optimization_barrier", "none")


@register_pass
@dataclass(frozen=True, slots=True)
class Barriers(Pass):
    """Dissolve checkpoint regions, the differentiated ones behind a barrier.

    Attributes:
        strategy: `optimization_barrier`, or `none` to let XLA merge as it likes.
    """

    name: ClassVar[str] = "barriers"
    strategy: str = "optimization_barrier"

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise CompileError(f"unknown barrier strategy '{self.strategy}' (known: {', '.join(STRATEGIES)})")

    def run(self, graph: Graph) -> Graph:
        if not any(eqn.op.regions() for eqn in graph.equations):
            return graph
        # A barrier is live as a whole: what only unused results of a region need must be gone before.
        graph = DeadCode().run(graph)
        return self._dissolved(graph, False)

    def _dissolved(self, graph: Graph, is_in_loop: bool) -> Graph:
        equations: list[Equation] = []
        env: dict[Value, Value] = {}
        self._dissolve(graph.equations, equations, env, is_in_loop)
        results = tuple([env.get(value, value) for value in graph.results])
        return Graph(graph.name, graph.params, tuple(equations), results)

    def _dissolve(
        self, equations: Sequence[Equation], into: list[Equation], env: dict[Value, Value], is_in_loop: bool
    ) -> None:
        for eqn in equations:
            operands = tuple([env.get(value, value) for value in eqn.operands])
            match eqn.op:
                case Checkpoint() as op:
                    pins = op.pinned_in_loop if is_in_loop else op.pinned
                    inputs = self._pin(pins, operands, eqn, into) if op.is_differentiated else operands
                    body: list[Equation] = []
                    results = copy_equations(op.body, inputs, body)
                    self._dissolve(body, into, env, is_in_loop)
                    env.update(zip(eqn.results, [env.get(value, value) for value in results], strict=True))
                case Call() as op:
                    into.append(Equation(Call(self._dissolved(op.body, is_in_loop)), operands, eqn.results, eqn.loc))
                case op if op.regions():
                    # Between the steps of two loops XLA merges nothing: recomputation in a step needs no barrier.
                    is_inside = is_in_loop or not (isinstance(op, Scan) and op.is_unrolled)
                    inside = RegionRewriter(partial(self._dissolved, is_in_loop=is_inside)).op(op)
                    into.append(Equation(inside, operands, eqn.results, eqn.loc))
                case op:
                    into.append(eqn if operands == eqn.operands else Equation(op, operands, eqn.results, eqn.loc))

    def _pin(
        self, pins: Sequence[bool], operands: tuple[Value, ...], eqn: Equation, into: list[Equation]
    ) -> tuple[Value, ...]:
        """The operands as they leave a barrier over those that are pinned, each distinct value once."""
        if self.strategy == "none":
            return operands
        pinned = dict.fromkeys(value for value, is_set in zip(operands, pins, strict=True) if is_set)
        if not pinned:
            return operands
        results = tuple(Value(value.type, value.name) for value in pinned)
        into.append(Equation(OptimizationBarrier(), tuple(pinned), results, eqn.loc))
        renamed = dict(zip(pinned, results, strict=True))
        return tuple([renamed[value] if is_set else value for value, is_set in zip(operands, pins, strict=True)])
