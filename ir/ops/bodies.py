"""What the rules of loops and branches write into graphs: rules of regions have no builder for the inside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np

from rematc.ir.core import Equation, Graph, Op, Value
from rematc.ir.ops.arithmetic import Add
from rematc.ir.ops.shape import BroadcastInDim
from rematc.ir.ops.structural import Constant
from rematc.ir.types import TensorType

T = TypeVar("T")


class Equations:
    """Equations in the making.

    Attributes:
        all: in order.
    """

    def __init__(self, equations: Iterable[Equation] = ()) -> None:
        self.all = list(equations)

    def emit(self, op: Op, *operands: Value) -> tuple[Value, ...]:
        """Apply `op`; its results."""
        results = tuple([Value(type) for type in op.infer([value.type for value in operands])])
        self.all.append(Equation(op, operands, results))
        return results

    def zeros(self, type: TensorType) -> Value:
        """An array of zeros."""
        (scalar,) = self.emit(Constant.of(np.zeros((), type.dtype.numpy)))
        return self.emit(BroadcastInDim(type.shape, ()), scalar)[0] if type.shape else scalar

    def add(self, x: Value, y: Value) -> Value:
        return self.emit(Add(), x, y)[0]

    def copy(self, eqn: Equation, env: dict[Value, Value]) -> None:
        """Append an equation with its operands renamed by `env`, which learns the new results."""
        results = tuple([Value(value.type, value.name) for value in eqn.results])
        self.all.append(Equation(eqn.op, tuple([env[value] for value in eqn.operands]), results, eqn.loc))
        env.update(zip(eqn.results, results, strict=True))


def chosen(values: Sequence[T], flags: Sequence[bool]) -> tuple[T, ...]:
    """The values whose flag is set."""
    return tuple([value for value, is_set in zip(values, flags, strict=True) if is_set])


def others(values: Sequence[T], flags: Sequence[bool]) -> tuple[T, ...]:
    """The values whose flag is not set."""
    return tuple([value for value, is_set in zip(values, flags, strict=True) if not is_set])


def spread(values: Iterable[T], flags: Iterable[bool]) -> tuple[T | None, ...]:
    """The values one after another where the flag is set, None elsewhere."""
    given = iter(values)
    return tuple([next(given) if is_set else None for is_set in flags])


@runtime_checkable
class Prunable(Protocol):
    """An op that can do with fewer operands and results."""

    def without_unused(self, used: Sequence[bool]) -> tuple[Op, tuple[int, ...], tuple[int, ...]]:
        """The op with only the used results: (op, indices of the operands it still takes, of the results it gives)."""


def without_unused(eqn: Equation, used: Sequence[bool]) -> Equation:
    """The equation with only the used results, where its op can do with fewer; itself where all are needed."""
    if not isinstance(eqn.op, Prunable):
        return eqn
    op, operands, results = eqn.op.without_unused(used)
    if len(operands) == len(eqn.operands) and len(results) == len(eqn.results):
        return eqn
    kept = tuple([eqn.operands[index] for index in operands])
    return Equation(op, kept, tuple([eqn.results[index] for index in results]), eqn.loc)


def live_equations(graph: Graph, live: set[Value]) -> tuple[Equation, ...]:
    """The equations that the values in `live` need, and those with effects; `live` gains what these read.

    Of a loop in the graph that is what its used results need: carries that only unused ones need are not live.
    """
    kept = []
    for eqn in reversed(graph.equations):
        used = [value in live for value in eqn.results]
        if any(used) or eqn.op.effect:
            needed = eqn if all(used) else without_unused(eqn, used)
            live.update(needed.operands)
            kept.append(needed)
    kept.reverse()
    return tuple(kept)


def types_text(types: Iterable[TensorType]) -> str:
    """`(f32[4], i32[])`."""
    return f"({', '.join(map(str, types))})"


def with_tangents(
    body: Graph, count: int, has_tangent: tuple[bool, ...], carries: Sequence[bool]
) -> tuple[Graph, tuple[bool, ...]]:
    """The body with zeros for the tangents of carries that a step does not give."""
    missing = [is_set and not has for is_set, has in zip(carries, has_tangent, strict=False)]
    if not any(missing):
        return body, has_tangent
    inside = Equations(body.equations)
    tangents = list(spread(body.results[count:], has_tangent))
    for index, is_missing in enumerate(missing):
        if is_missing:
            tangents[index] = inside.zeros(body.results[index].type)
    present = [tangent for tangent in tangents if tangent is not None]
    graph = Graph(body.name, body.params, tuple(inside.all), (*body.results[:count], *present))
    return graph, tuple([tangent is not None for tangent in tangents])
