"""All equations of a graph, with those of the graphs inside of its ops."""

from __future__ import annotations

from collections.abc import Iterator

from rematc.ir.core import Equation, Graph


def all_equations(graph: Graph) -> Iterator[Equation]:
    """The equations of a graph and of its regions, those of a graph that stands in many places once."""
    waiting, seen = [graph], set[int]()
    while waiting:
        current = waiting.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield from current.equations
        waiting.extend(region for eqn in current.with_regions for region in eqn.op.regions())
