"""A graph after the passes as one equation of JAX's, which is written for where it runs when JAX lowers it.

What XLA:CPU holds less for (`rematc.passes.legalize.arranging`) joins dimensions, which on several devices may cost
collectives. Where a part of a user's program runs, and on how many devices, JAX says when it lowers the program, and
not when it traces it. Until then the graph is the equation `rematc_whole`; batches of it, and what JAX looks into, are
its own equations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from rematc.ir.core import Graph
from rematc.ir.facts import Effect
from rematc.ir.ops.placement import has_placements, meshes_of
from rematc.lowering.jax_export.evaluating import evaluate, evaluate_labelled, varying_axes
from rematc.lowering.jax_internals.calls import device_count, platforms_of
from rematc.lowering.jax_internals.types import abstract_value
from rematc.lowering.target import Target
from rematc.passes.legalize.arranging import arranged, held_in_parts

#: What the primitive is called in a jaxpr.
NAME = "rematc_whole"
# Any: JAX types neither its primitives nor what their rules are given.
_whole_p: Any = Primitive(NAME)
_whole_p.multiple_results = True


def apply_whole(graph: Graph, operands: Sequence[Any], target: Target) -> list[Any]:
    """Apply a graph after the passes to JAX's arrays or tracers, one for each parameter; its results.

    One equation where a single CPU may run it, and would hold less with its equations in other shapes or another order.
    Raises MissingRuleError at the equation's line for an op without a rule.
    """
    if target.platform != "cpu" or target.devices > 1 or _is_placed(graph, operands):
        return evaluate_labelled(graph, operands)
    own, _ = arranged(held_in_parts(graph))
    if own is graph:
        return evaluate_labelled(graph, operands)
    results: list[Any] = _whole_p.bind(*operands, graph=graph, arranged=own)
    return results


def _is_placed(graph: Graph, operands: Sequence[Any]) -> bool:
    """Whether a graph does, or its operands are, what JAX must see: effects, meshes, values that differ by device."""
    if graph.effect is not Effect.NONE or has_placements(graph) or meshes_of(graph):
        return True
    return not jax.sharding.get_abstract_mesh().empty or bool(varying_axes(operands))


def _abstract_evaluate(*operands: Any, graph: Graph, arranged: Graph) -> list[Any]:
    return [abstract_value(type) for type in graph.result_types]


def _evaluate(*operands: Any, graph: Graph, arranged: Graph) -> list[Any]:
    return evaluate(graph, operands)


def _lower(ctx: mlir.LoweringRuleContext, *operands: Any, graph: Graph, arranged: Graph) -> Sequence[Any]:
    is_single = platforms_of(ctx) == ("cpu",) and device_count(ctx) == 1
    own = arranged if is_single else graph
    written: Any = mlir.lower_fun(lambda *values: evaluate_labelled(own, values), multiple_results=True)
    results: Sequence[Any] = written(ctx, *operands)
    return results


def _batch(
    axis: Any, operands: Sequence[Any], dimensions: Sequence[Any], *, graph: Graph, arranged: Graph
) -> tuple[Sequence[Any], Sequence[int]]:
    batched: Any = jax.vmap(
        lambda *values: evaluate(graph, values),
        in_axes=tuple(dimensions),
        axis_size=axis.size,
        axis_name=axis.name if isinstance(axis.name, str) else None,
        spmd_axis_name=axis.spmd_name,
    )
    results: Sequence[Any] = batched(*operands)
    return results, [0] * len(results)


_whole_p.def_abstract_eval(_abstract_evaluate)
_whole_p.def_impl(_evaluate)
mlir.register_lowering(_whole_p, _lower, inline=False)
batching.fancy_primitive_batchers[_whole_p] = _batch
