"""A program's own checkpoints taken apart, so that a plan decides anew what of them is computed again.

Before:  %1 = tanh (dot %x, %w)   %2 = dot %1, %v   ...
         %8 = checkpoint %x, %w, %7 {is_differentiated, body: %1 = tanh (dot %x, %w) again   ... dot %7, %1}
After:   %1 = tanh (dot %x, %w)   %2 = dot %1, %v   ...   %8 = dot %7, %1

Whoever wraps layers in `jax.checkpoint` says that there is too little memory; a budget says how much there is. What the
region computes again is merged with the forward evaluation: nothing of it is decided any more.
"""

from __future__ import annotations

from rematc.ir.core import Graph, Op
from rematc.ir.ops.regions import Checkpoint
from rematc.ir.traversal import all_equations
from rematc.passes.inline import Inliner
from rematc.passes.manager import PassManager, parse_pipeline

_CLEANING = "simplify,cse,dce,narrow,unpad,fold_transposes,readers_first"


def has_plannable(graph: Graph) -> bool:
    """Whether there are checkpoints, in a graph or its regions, that a plan may take apart."""
    return any(_body_of(eqn.op) is not None for eqn in all_equations(graph))


def opened(graph: Graph) -> Graph:
    """The graph without its own checkpoints, in which what they compute again is there once."""
    return PassManager(parse_pipeline(_CLEANING)).run(Inliner(_body_of).graph(graph)).graph


def _body_of(op: Op) -> Graph | None:
    return op.body if isinstance(op, Checkpoint) and op.is_plannable else None
