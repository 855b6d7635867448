"""Graphs out, as JAX functions: what callers use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rematc.ir.core import Graph
from rematc.lowering.jax_export import (  # noqa: F401  # rules enter the registry
    collectives,
    custom_calls,
    elementwise,
    indexing,
    linear_algebra,
    products,
    random_bits,
    reductions,
    regions,
    shaping,
    structural,
)
from rematc.lowering.jax_export.evaluating import evaluate
from rematc.lowering.jax_export.opaque import call_graph


def apply_graph(graph: Graph, operands: Sequence[Any]) -> list[Any]:
    """Apply a graph to JAX's arrays or tracers, one for each parameter; its results.

    Raises MissingRuleError at the equation's line for an op without a rule.
    """
    return evaluate(graph, operands)


def jax_function(graph: Graph) -> Callable[..., Sequence[Any]]:
    """The graph as a JAX function of its parameters, which gives a tuple of its results.

    Raises MissingRuleError, when it is called, for an op without a rule.
    """

    def run(*operands: Any) -> tuple[Any, ...]:
        return tuple(evaluate(graph, operands))

    run.__name__ = run.__qualname__ = graph.name
    return run


def opaque_function(graph: Graph) -> Callable[..., Sequence[Any]]:
    """The graph as a JAX function that is one equation, `rematc_graph`: its StableHLO is a function in JAX's module.

    JAX traces and lowers it in no time, however large it is; what it computes, JAX does not see.
    """

    def run(*operands: Any) -> tuple[Any, ...]:
        return tuple(call_graph(graph, operands))

    run.__name__ = run.__qualname__ = graph.name
    return run
