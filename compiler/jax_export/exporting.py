"""Graphs out, as JAX functions: what callers use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rematc.compiler.jax_export import (  # noqa: F401  # rules enter the registry
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
from rematc.compiler.jax_export.evaluating import evaluate
from rematc.ir.core import Graph


def jax_function(graph: Graph) -> Callable[..., Sequence[Any]]:
    """The graph as a JAX function of its parameters, which gives a tuple of its results.

    Raises MissingRuleError, when it is called, for an op without a rule.
    """

    def run(*operands: Any) -> tuple[Any, ...]:
        return tuple(evaluate(graph, operands))

    run.__name__ = run.__qualname__ = graph.name
    return run
