"""Rewriting the regions inside ops, for passes that treat every graph alike."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from rematc.ir.core import Graph, Op


class RegionRewriter:
    """Applies one rewrite to all regions, and to each graph only once however many ops share it.

    Functions that call functions share bodies; without the memory a rewrite would take exponential time, and bodies
    that were one object would no longer be.
    """

    def __init__(self, rewrite: Callable[[Graph], Graph]) -> None:
        self._rewrite = rewrite
        # By identity. The graph is held so that no other one gets its id.
        self._done: dict[int, tuple[Graph, Graph]] = {}

    def graph(self, graph: Graph) -> Graph:
        """The rewritten graph, of the same parameter and result types."""
        done = self._done.get(id(graph))
        if done is None:
            done = self._done[id(graph)] = (graph, self._rewrite(graph))
        return done[1]

    def op(self, op: Op) -> Op:
        """The op with rewritten regions; itself if none changes."""
        if not op.regions():
            return op
        changed = {}
        for field in dataclasses.fields(op):  # type: ignore[arg-type]  # every op is a dataclass
            value = getattr(op, field.name)
            new = self._value(value)
            if new is not value:
                changed[field.name] = new
        return dataclasses.replace(op, **changed) if changed else op  # type: ignore[type-var]  # as above

    def _value(self, value: object) -> object:
        if isinstance(value, Graph):
            return self.graph(value)
        if isinstance(value, tuple) and any(isinstance(item, Graph) for item in value):
            new = tuple([self._value(item) for item in value])
            return value if all(a is b for a, b in zip(new, value, strict=True)) else new
        return value
