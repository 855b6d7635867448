"""The primitive `rematc_graph`: one application of a graph inside a jaxpr, whose StableHLO is our own.

JAX sees the graph as a whole. Its derivatives, adjoints and batches are again graphs, which passes make; they are given
as functions, so that this layer knows none of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.ir.ops.placement import has_placements, meshes_of
from rematc.lowering.jax_internals.calls import device_count, effects_of, lower_calls, platforms_of
from rematc.lowering.jax_internals.shardings import on_meshes, varying_axes_of, with_varying_axes
from rematc.lowering.jax_internals.types import abstract_value
from rematc.lowering.program import Program
from rematc.lowering.target import Target


@dataclass(frozen=True, slots=True)
class GraphRules:
    """The passes that the primitive's rules are made of.

    Attributes:
        program: (graph, target) to the program that is called.
        linearize: (graph, which parameters have tangents) to (graph to results and residuals, linear graph of residuals
            and tangents, which results have tangents).
        transpose: (graph, in which parameters it is linear, which results have cotangents) to (its adjoint of known
            values and present cotangents, which linear parameters get one).
        apply: (graph, operands, one for each parameter) to its results. What derivatives and adjoints consist of is
            applied by it, which need not be by this primitive.
        vmap: (graph, which parameters are batched, size, name of the axis) to (graph of the batch, which results are
            batched).
    """

    program: Callable[[Graph, Target], Program]
    linearize: Callable[[Graph, Sequence[bool]], tuple[Graph, Graph, tuple[bool, ...]]]
    transpose: Callable[[Graph, Sequence[bool], Sequence[bool]], tuple[Graph, tuple[bool, ...]]]
    apply: Callable[[Graph, Sequence[Any]], Sequence[Any]]
    vmap: Callable[[Graph, Sequence[bool], int, str | None], tuple[Graph, tuple[bool, ...]]]


#: What the primitive is called in a jaxpr.
NAME = "rematc_graph"
# Any: JAX types neither its primitives nor what their rules are given.
_graph_p: Any = Primitive(NAME)
_graph_p.multiple_results = True


def call_graph(graph: Graph, operands: Sequence[Any], rules: GraphRules) -> list[Any]:
    """Apply a graph to JAX's values, one for each parameter, as one equation."""
    meshes = on_meshes(meshes_of(graph))
    results: list[Any] = _graph_p.bind(*operands, graph=graph, rules=rules, **meshes)
    return results


def _abstract_evaluate(
    *operands: Any, graph: Graph, rules: GraphRules, placed: Any = None
) -> tuple[list[Any], frozenset[Any]]:
    avals = [abstract_value(type) for type in graph.result_types]
    varying = [operand for operand in operands if varying_axes_of(operand)]
    if varying:
        # Inside shard_map callers let all operands differ alike, and so do the results.
        avals = [with_varying_axes(aval, varying[0]) for aval in avals]
    return avals, effects_of(graph.effect)


def _evaluate(*operands: Any, graph: Graph, rules: GraphRules, placed: Any = None) -> list[Any]:
    with jax.disable_jit(False):
        results: list[Any] = _jitted(graph, rules)(*operands)
    return results


@functools.lru_cache(maxsize=256)
def _jitted(graph: Graph, rules: GraphRules, placed: Any = None) -> Any:
    def run(*operands: Any) -> list[Any]:
        return call_graph(graph, operands, rules)

    run.__name__ = graph.name
    return jax.jit(run)


def _lower(
    ctx: mlir.LoweringRuleContext, *operands: Any, graph: Graph, rules: GraphRules, placed: Any = None
) -> Sequence[Any]:
    devices = device_count(ctx)
    programs = {
        platform: rules.program(graph, replace(Target.of(platform), devices=devices)) for platform in platforms_of(ctx)
    }
    return lower_calls(ctx, operands, programs)


def _jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, graph: Graph, rules: GraphRules, placed: Any = None
) -> Any:
    present = [
        not isinstance(tangent, ad.Zero) and value.type.dtype.is_inexact
        for tangent, value in zip(tangents, graph.params, strict=True)
    ]
    given = [tangent for tangent, is_set in zip(tangents, present, strict=True) if is_set]
    forward, linear, has_tangent = rules.linearize(graph, present)
    results = list(rules.apply(forward, primals))
    count = len(graph.results)
    outgoing = iter(rules.apply(linear, (*results[count:], *given)))
    return results[:count], [
        next(outgoing) if is_set else ad.Zero(jax.typeof(value).to_tangent_aval())
        for is_set, value in zip(has_tangent, results[:count], strict=True)
    ]


def _transpose(cts: Sequence[Any], *operands: Any, graph: Graph, rules: GraphRules, placed: Any = None) -> list[Any]:
    is_linear = [isinstance(operand, ad.UndefinedPrimal) for operand in operands]
    has_ct = [not isinstance(ct, ad.Zero) for ct in cts]
    adjoint, gets_ct = rules.transpose(graph, is_linear, has_ct)
    known = [operand for operand, is_set in zip(operands, is_linear, strict=True) if not is_set]
    given = [ct for ct, is_set in zip(cts, has_ct, strict=True) if is_set]
    outgoing, wanted = iter(rules.apply(adjoint, (*known, *given))), iter(gets_ct)
    found: list[Any] = []
    for operand, is_set in zip(operands, is_linear, strict=True):
        if not is_set:
            found.append(None)
        else:
            found.append(next(outgoing) if next(wanted) else ad.Zero(operand.aval))
    return found


def _batch(
    axis: Any,
    operands: Sequence[Any],
    dimensions: Sequence[Any],
    *,
    graph: Graph,
    rules: GraphRules,
    placed: Any = None,
) -> Any:
    is_batched = [dimension is not None for dimension in dimensions]
    moved = [
        jax.numpy.moveaxis(operand, dimension, 0) if is_set else operand
        for operand, dimension, is_set in zip(operands, dimensions, is_batched, strict=True)
    ]
    name = axis.name if isinstance(axis.name, str) else None
    if axis.spmd_name is not None and has_placements(graph):
        raise CompileError(
            f"jax.vmap with spmd_axis_name={axis.spmd_name!r} cannot batch '{graph.name}', which has sharding "
            "constraints inside that JAX does not see; leave out spmd_axis_name"
        )
    batched, results_batched = rules.vmap(graph, is_batched, axis.size, name)
    results = call_graph(batched, moved, rules)
    return results, [0 if is_set else None for is_set in results_batched]


_graph_p.def_effectful_abstract_eval(_abstract_evaluate)
_graph_p.def_impl(_evaluate)
mlir.register_lowering(_graph_p, _lower, inline=False)
ad.primitive_jvps[_graph_p] = _jvp
ad.primitive_transposes[_graph_p] = _transpose
batching.fancy_primitive_batchers[_graph_p] = _batch
