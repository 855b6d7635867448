"""Graphs without their effects: what recomputation repeats. An effect belongs to the forward evaluation alone."""

from __future__ import annotations

import dataclasses

from rematc.ir.core import Equation, Graph, Op


def without_effects(graph: Graph) -> Graph:
    """The graph without equations that are there for their effect, in regions too; the graph itself if it has none."""
    if not graph.effect:
        return graph
    kept = [silent_equation(eqn) for eqn in graph.equations if eqn.results or not eqn.op.effect]
    return Graph(graph.name, graph.params, tuple(kept), graph.results)


def silent_equation(eqn: Equation) -> Equation:
    """An equation that has results, its regions without effects."""
    if not eqn.op.effect:
        return eqn
    return Equation(_silent_op(eqn.op), eqn.operands, eqn.results, eqn.loc)


def _silent_op(op: Op) -> Op:
    changed: dict[str, object] = {}
    for field in dataclasses.fields(op):  # type: ignore[arg-type]  # every op is a dataclass
        value = getattr(op, field.name)
        if isinstance(value, Graph):
            changed[field.name] = without_effects(value)
        elif isinstance(value, tuple) and any(isinstance(item, Graph) for item in value):
            changed[field.name] = tuple([without_effects(item) if isinstance(item, Graph) else item for item in value])
    return dataclasses.replace(op, **changed)  # type: ignore[type-var]  # as above
