"""A program's own checkpoints taken apart, so that a plan decides anew what of them is computed again.

Before:  %1 = tanh (dot %x, %w)   %2 = dot %1, %v   ...
         %8 = checkpoint %x, %w, %7 {is_differentiated, body: %1 = tanh (dot %x, %w) again   ... dot %7, %1}
After:   %1 = tanh (dot %x, %w)   %2 = dot %1, %v   ...   %8 = dot %7, %1

In a module of another frontend barriers stand for these regions: they are left out if what is behind them is merged.

Whoever wraps layers in `jax.checkpoint` says that there is too little memory; a budget says how much there is. What the
region computes again is merged with the forward evaluation, so that nothing of it is decided any more; in loops that
takes stacks (`rematc.passes.planning.restacking`), of which a plan drops what it computes again. Between what it drops
so and what the program stacked there are many steps: there is a graph for either.
"""

from __future__ import annotations

from collections.abc import Sequence

from rematc.ir.core import Equation, Graph, Op
from rematc.ir.ops.regions import Checkpoint
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.ir.splicing import splice
from rematc.ir.traversal import all_equations
from rematc.ir.values import Value
from rematc.passes.dce import DeadCode
from rematc.passes.manager import PassManager, parse_pipeline
from rematc.passes.planning.constraints import Form
from rematc.passes.planning.restacking import restacked
from rematc.passes.regions import RegionRewriter

_CLEANING = "simplify,cse,dce,narrow,unpad,fold_transposes,own_repeats,readers_first"


def opened(graph: Graph) -> dict[Form, Graph]:
    """The graph without its own checkpoints, by how they are taken apart; nothing where there are none of them."""
    ops = {type(eqn.op) for eqn in all_equations(graph) if _is_plannable(eqn.op)}
    if not ops:
        return {}
    merged = PassManager(parse_pipeline(_CLEANING)).run(_Opening().graph(graph)).graph
    stacked = restacked(merged)
    if Checkpoint not in ops and stacked is merged and _flops(merged) == _flops(graph):
        return {}  # its barriers keep nothing apart that is the same
    if stacked is merged:
        return {Form.MERGED: merged}
    return {Form.MERGED: merged, Form.STACKED: PassManager([DeadCode()]).run(stacked).graph}


def _is_plannable(op: Op) -> bool:
    return isinstance(op, Checkpoint | OptimizationBarrier) and op.is_plannable


def _flops(graph: Graph) -> int:
    return sum(eqn.flops for eqn in graph.equations)


class _Opening:
    """Graphs and their regions without what is plannable."""

    def __init__(self) -> None:
        self._regions = RegionRewriter(self.graph)

    def graph(self, graph: Graph) -> Graph:
        """The graph with the bodies of checkpoints, and the operands of barriers, in the place of these."""
        env: dict[Value, Value] = {}
        equations: list[Equation] = []
        for eqn in graph.equations:
            operands = tuple([env.get(value, value) for value in eqn.operands])
            if not _is_plannable(eqn.op):
                equations.append(Equation(self._regions.op(eqn.op), operands, eqn.results, eqn.loc))
                continue
            given: Sequence[Value] = operands
            if isinstance(eqn.op, Checkpoint):
                given = splice(self._regions.graph(eqn.op.body), operands, equations, eqn.loc)
            env.update(zip(eqn.results, given, strict=True))
        results = tuple([env.get(value, value) for value in graph.results])
        return Graph(graph.name, graph.params, tuple(equations), results)
