"""A graph as one primitive of JAX's: its StableHLO is a function of the caller's module.

JAX sees nothing of the inside. Derivatives and batches are graphs of their own, by our passes, and opaque again.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from rematc.ir.core import Equation, Graph
from rematc.ir.ops.custom_derivatives import CustomDerivative
from rematc.ir.traversal import all_equations
from rematc.lowering import graph_call
from rematc.lowering.jax_export.evaluating import evaluate, graph_of, varied, varying_axes, wide_types
from rematc.lowering.pipeline import default_pipeline, make_program, run_passes
from rematc.lowering.program import Program
from rematc.lowering.target import Target
from rematc.passes.linearize import linearize
from rematc.passes.transpose import transpose
from rematc.passes.vmap import vmap


def opaque(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """The export rule of ops that `jax.lax` lacks: one opaque equation."""
    return call_graph(graph_of(eqn.op, eqn.operand_types), operands)


def call_graph(graph: Graph, operands: Sequence[Any]) -> Sequence[Any]:
    """Apply a graph to JAX's values as one equation `rematc_graph`."""
    with wide_types(graph):
        return graph_call.call_graph(graph, varied(operands, varying_axes(operands)), _RULES)


def _apply(graph: Graph, operands: Sequence[Any]) -> Sequence[Any]:
    """As one equation again, but for functions of which only JAX knows all derivatives."""
    return evaluate(graph, operands) if _has_sources(graph) else call_graph(graph, operands)


def _has_sources(graph: Graph) -> bool:
    ops = (eqn.op for eqn in all_equations(graph))
    return any(isinstance(op, CustomDerivative) and op.source is not None for op in ops)


@functools.lru_cache(maxsize=256)
def _program(graph: Graph, target: Target) -> Program:
    """The program of a graph. JAX compiles it, without options of ours: where barriers need one, functions hold."""
    strategy = "auto" if target.barriers_hold else "call"
    return make_program(run_passes(graph, default_pipeline(strategy), target=target).graph, (), target)


def _jvp(graph: Graph, has_tangent: Sequence[bool]) -> tuple[Graph, Graph, tuple[bool, ...]]:
    parts = linearize(graph, has_tangent)
    return parts.forward, parts.linear, parts.has_tangent


def _transpose(graph: Graph, is_linear: Sequence[bool], has_ct: Sequence[bool]) -> tuple[Graph, tuple[bool, ...]]:
    result = transpose(graph, is_linear, has_ct)
    return result.graph, result.has_ct


def _vmap(graph: Graph, is_batched: Sequence[bool], size: int, axis: str | None) -> tuple[Graph, tuple[bool, ...]]:
    result = vmap(graph, is_batched, size, axis)
    return result.graph, result.is_batched


_RULES = graph_call.GraphRules(_program, _jvp, _transpose, _apply, _vmap)
