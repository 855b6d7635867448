"""The NumPy reference interpreter: it defines what a graph means.

It knows no op: each computes by its own `reference`, so that ops with regions can call `evaluate` in turn.
"""

from __future__ import annotations

from collections.abc import Sequence

from rematc.ir.core import Equation, Graph
from rematc.ir.errors import CompileError, InternalError, TypeMismatchError
from rematc.ir.types import TensorType
from rematc.ir.values import Array, Value


def evaluate(graph: Graph, arguments: Sequence[Array]) -> list[Array]:
    """The graph's results for these arguments, equation by equation.

    Values are let go after their last use, so that the memory needed is that of the live values.

    Raises:
        TypeMismatchError: an argument is not of its parameter's type.
        CompileError: an op cannot be computed; it carries the equation's location.
    """
    _check_arguments(graph, arguments)
    env: dict[Value, Array] = dict(zip(graph.params, arguments, strict=True))
    for eqn, ending in zip(graph.equations, last_uses(graph), strict=True):
        results = _apply(eqn, [env[value] for value in eqn.operands])
        env.update(zip(eqn.results, results, strict=True))
        for value in ending:
            del env[value]
    return [env[value] for value in graph.results]


def last_uses(graph: Graph) -> list[tuple[Value, ...]]:
    """For each equation the values that nothing after it reads, among its operands and results."""
    live = set(graph.results)
    endings: list[tuple[Value, ...]] = []
    for eqn in reversed(graph.equations):
        ending = dict.fromkeys(value for value in (*eqn.results, *eqn.operands) if value not in live)
        live.update(ending)
        endings.append(tuple(ending))
    endings.reverse()
    return endings


def _check_arguments(graph: Graph, arguments: Sequence[Array]) -> None:
    if len(arguments) != len(graph.params):
        raise TypeMismatchError(f"graph '{graph.name}' takes {len(graph.params)} arguments, got {len(arguments)}")
    for index, (param, array) in enumerate(zip(graph.params, arguments, strict=True)):
        if not _fits(array, param.type):
            name = f" ({param.name})" if param.name else ""
            raise TypeMismatchError(
                f"argument {index}{name} of graph '{graph.name}' must be {param.type}, got {_describe(array)}"
            )


def _apply(eqn: Equation, operands: Sequence[Array]) -> tuple[Array, ...]:
    try:
        results = eqn.op.reference(operands)
    except CompileError as error:
        if error.loc is None:
            error.loc = eqn.loc
        raise
    if len(results) != len(eqn.results):
        raise InternalError(
            f"reference of '{eqn.op.name}' gave {len(results)} results, expected {len(eqn.results)} (at {eqn.loc})"
        )
    for value, array in zip(eqn.results, results, strict=True):
        if not _fits(array, value.type):
            raise InternalError(
                f"reference of '{eqn.op.name}' gave {_describe(array)}, expected {value.type} (at {eqn.loc})"
            )
    return results


def _fits(array: Array, type: TensorType) -> bool:
    return array.shape == type.shape and array.dtype == type.dtype.numpy


def _describe(array: Array) -> str:
    return f"{array.dtype}[{','.join(map(str, array.shape))}]"
