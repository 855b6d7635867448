"""Graphs in the place of functions: what `from_stablehlo`, `parse` and `trace` return is transformed and compiled."""

from __future__ import annotations

import inspect
from typing import Any

from rematc.compiler.functions.calls import apply_graph, emit_op1
from rematc.compiler.tracing.arguments import leaf_type
from rematc.compiler.tracing.user_location import user_location
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.ir.ops.conversion import Convert
from rematc.ir.values import Value


def as_function(fun: Any) -> Any:
    """A function of a graph's parameters, which returns its result, or a tuple of its results; other functions as they
    are.

    Raises CompileError for what cannot be called.
    """
    if isinstance(fun, Graph):
        return _function_of(fun)
    if not callable(fun):
        raise CompileError(f"expected a function or a graph, got a {type(fun).__name__}", user_location())
    return fun


def _function_of(graph: Graph) -> Any:
    def function(*operands: object) -> object:
        if len(operands) != len(graph.params):
            raise CompileError(
                f"the graph '{graph.name}' takes {len(graph.params)} arrays, got {len(operands)}", user_location()
            )
        pairs = enumerate(zip(operands, graph.params, strict=True))
        given = [
            _fitting(operand, value, f"the graph '{graph.name}' takes", index) for index, (operand, value) in pairs
        ]
        results = apply_graph(graph, given, (False,) * len(graph.results))
        return results[0] if len(results) == 1 else tuple(results)

    function.__name__ = function.__qualname__ = graph.name
    described: Any = function
    described.__signature__ = inspect.Signature(
        [inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in _names(graph)]
    )
    return function


def _fitting(operand: object, value: Value, what: str, index: int) -> object:
    """An operand for a parameter of a graph: of its type, or a number that takes it."""
    found, is_weak = leaf_type(operand)
    if found == value.type:
        return operand
    if is_weak and found.shape == value.type.shape:
        return emit_op1(Convert(value.type.dtype), operand)
    raise CompileError(f"{what} {value.type} as {value.name or f'array {index}'}, got {found}", user_location())


def _names(graph: Graph) -> list[str]:
    """The parameters' names, where they are names of Python's and no two are alike."""
    given = [value.name for value in graph.params]
    is_fit = all(name and name.isidentifier() for name in given) and len(set(given)) == len(given)
    return [str(name) for name in given] if is_fit else [f"array{index}" for index in range(len(given))]
