"""Splicing: the equations of a graph among others, its parameters replaced by values there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rematc.ir.core import Equation, Graph
from rematc.ir.locations import Location
from rematc.ir.values import Value


def splice(
    graph: Graph, operands: Sequence[Value], into: list[Equation], loc: Location | None = None
) -> tuple[Value, ...]:
    """Append fresh copies of the graph's equations, its parameters replaced by `operands`; its results.

    Equations without a location get `loc`.
    """
    env: dict[Value, Value] = dict(zip(graph.params, operands, strict=True))
    for eqn in graph.equations:
        results = tuple([Value(value.type, value.name) for value in eqn.results])
        into.append(Equation(eqn.op, tuple([env[value] for value in eqn.operands]), results, eqn.loc or loc))
        env.update(zip(eqn.results, results, strict=True))
    return tuple([env[value] for value in graph.results])


def reading(eqn: Equation, instead: Mapping[Value, Value]) -> Equation:
    """The equation, which reads other values in the place of some."""
    return replace(eqn, operands=tuple([instead.get(value, value) for value in eqn.operands]))
