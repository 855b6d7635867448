"""A program's own checkpoints taken apart, so that a plan decides anew what of them is computed again.

Before:  %1 = tanh (dot %x, %w)   %2 = dot %1, %v   ...
         %8 = checkpoint %x, %w, %7 {is_differentiated, body: %1 = tanh (dot %x, %w) again   ... dot %7, %1}
After:   %1 = tanh (dot %x, %w)   %2 = dot %1, %v   ...   %8 = dot %7, %1

Whoever wraps layers in `jax.checkpoint` says that there is too little memory; a budget says how much there is. What the
region computes again is merged with the forward evaluation, so that nothing of it is decided any more; in loops that
takes stacks (`rematc.passes.planning.restacking`), of which a plan drops what it computes again. Between what it drops
so and what the program stacked there are many steps: there is a graph for either.
"""

from __future__ import annotations

from rematc.ir.core import Graph, Op
from rematc.ir.ops.regions import Checkpoint
from rematc.ir.traversal import all_equations
from rematc.passes.dce import DeadCode
from rematc.passes.inline import Inliner
from rematc.passes.manager import PassManager, parse_pipeline
from rematc.passes.planning.constraints import Opening
from rematc.passes.planning.restacking import restacked

_CLEANING = "simplify,cse,dce,narrow,unpad,fold_transposes,readers_first"


def opened(graph: Graph) -> dict[Opening, Graph]:
    """The graph without its own checkpoints, by how they are taken apart; nothing where there are none of them."""
    if not any(_body_of(eqn.op) is not None for eqn in all_equations(graph)):
        return {}
    merged = PassManager(parse_pipeline(_CLEANING)).run(Inliner(_body_of).graph(graph)).graph
    stacked = restacked(merged)
    if stacked is merged:
        return {Opening.MERGED: merged}
    return {Opening.MERGED: merged, Opening.STACKED: PassManager([DeadCode()]).run(stacked).graph}


def _body_of(op: Op) -> Graph | None:
    return op.body if isinstance(op, Checkpoint) and op.is_plannable else None
