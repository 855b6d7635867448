"""The graph of a value and its gradient as a JAX function: compiled by itself, or a part of what is traced."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax

from rematc.compiler.driver.budget import plan_part
from rematc.compiler.tracing.options import CompilerOptions
from rematc.ir.core import Graph
from rematc.lowering.jax_compiling import compiled, is_outermost
from rematc.lowering.jax_export.evaluating import differentiable_call, tangents_of
from rematc.lowering.jax_export.exporting import apply_graph
from rematc.lowering.jax_export.whole import apply_whole
from rematc.lowering.pipeline import passed_for_jax, runs_depth_first
from rematc.lowering.planning import Budget, GraphPlanner
from rematc.lowering.propagation import shards_of
from rematc.lowering.target import Target
from rematc.lowering.targeting import targeting
from rematc.passes.linearize import linearize
from rematc.passes.planning.in_slices import InSlices

Graphs = Callable[[int], Graph]

#: Rules of the user's are imported for so many derivatives of the gradient, once one is taken.
_FURTHER = 2


def lasting_call(
    graphs: Graphs,
    passed: Callable[[Target], Graph],
    name: str,
    target: Target,
    donated: Sequence[int],
    options: CompilerOptions,
    lying: Sequence[Any],
) -> Callable[..., Sequence[Any]]:
    """The graph's function: outermost it is compiled by itself; inside of a trace it is part of what is traced.

    `passed` gives the graph after the passes for a target. `lying` are JAX's shardings of its first parameters; None
    for what nobody knows.
    """
    inside = differentiable_graph(graphs, target, functools.partial(passed, target))
    inside.__name__ = inside.__qualname__ = name
    nested = jax.jit(inside)
    outermost: list[Callable[..., Any]] = []

    def run(*operands: Any) -> Sequence[Any]:
        if not is_outermost():
            found: Sequence[Any] = nested(*operands)
            return found
        if not outermost:
            own = replace(target, has_options=True)
            graph = passed(own)
            alone = differentiable_graph(graphs, own, lambda: graph)
            alone.__name__ = alone.__qualname__ = name
            spread = functools.partial(shards_of, graph, own, lying)
            is_depth_first = runs_depth_first(graph, own, shards=spread)
            made = compiled(alone, own, is_depth_first=is_depth_first, donate_argnums=donated, compiler_options=options)
            outermost.append(made)
        results: Sequence[Any] = outermost[0](*operands)
        return results

    return run


def differentiable_graph(graphs: Graphs, target: Target, passed: Callable[[], Graph]) -> Callable[..., Sequence[Any]]:
    """A graph as a JAX function, the derivative of which is that of the graph with rules for further derivatives.

    Derivatives of these are JAX's own. `passed` gives the graph itself, after the passes.
    """

    def function(*operands: Any) -> tuple[Any, ...]:
        with targeting(target):
            return tuple(apply_whole(passed(), operands, target))

    def forward(present: tuple[bool, ...], primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
        graph = graphs(_FURTHER)
        parts = linearize(graph, present)
        count = len(graph.results)
        with targeting(target):
            results = apply_graph(passed_for_jax(parts.forward, target), primals)
            return results[:count], tangents_of(parts, results[count:], tangents)

    differentiable = differentiable_call(function, forward)

    def run(*operands: Any) -> Sequence[Any]:
        return differentiable(*operands)

    return run


def passed_graph(
    graph: Graph, budget: Budget | None, slices: InSlices | None, lying: Sequence[Any], target: Target
) -> Graph:
    """A graph after the passes, planned if there is a budget. Raises CompileError where no plan is predicted to fit.

    `slices` are those that it is in; `lying` is as in `lasting_call`.
    """
    if budget is not None:
        strategy, constraints = target.barrier_strategy, budget.constraints
        planner = GraphPlanner(graph, target, strategy, constraints=constraints, shardings=lying, slices=slices)
        graph = planner.applied(plan_part(planner, budget, graph.name).plan)
    return passed_for_jax(graph, target)
