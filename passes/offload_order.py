"""Copies to the host's memory are done before what comes next, so that the device's memory is free for it.

Before:  %1 = dot_general %x, %w   ...   %5 = dot_general %4, %w   %6 = to_memory %1 {on_host=true}
         %7 = to_memory %5 {on_host=true}   ...
After:   %1 = dot_general %x, %w   %6 = to_memory %1 {on_host=true}   ...   %5 = dot_general %4, %w
         %8, %9 = optimization_barrier %5, %6   %7 = to_memory %8 {on_host=true}   ...

Nothing in a program waits for a copy but what reads it, in the backward pass: a scheduler that starts it there holds
the value until then, and the copy has saved nothing. Each copy stands behind what it copies, and what reads the next
value that is copied waits for it: a copy is under way while that one is computed, and no more than two wait for theirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rematc.ir.core import Equation, Graph
from rematc.ir.ops.structural import ToMemory
from rematc.ir.values import Value
from rematc.passes.barriers import barrier_behind
from rematc.passes.manager import Pass, register_pass


@register_pass
@dataclass(frozen=True, slots=True)
class OffloadOrder(Pass):
    """Copy each value to the host's memory as soon as it is there, one after another; not in loops, step by step."""

    name: ClassVar[str] = "offload_order"

    def run(self, graph: Graph) -> Graph:
        copies = {eqn.operands[0]: eqn for eqn in graph.equations if _is_offload(eqn)}
        if not copies:
            return graph
        moved = set(copies.values())
        equations: list[Equation] = []
        names: dict[Value, Value] = {}
        before: Value | None = None
        for eqn in graph.equations:
            if eqn in moved and eqn.operands[0] not in graph.params:
                continue
            equations.append(_renamed(eqn, names))
            for value in eqn.results:
                if value not in copies:
                    continue
                if before is not None:
                    equations.append(barrier_behind((value, before), names, None))
                equations.append(_renamed(copies[value], names))
                (before,) = copies[value].results
        results = tuple([names.get(value, value) for value in graph.results])
        return Graph(graph.name, graph.params, tuple(equations), results)


def _is_offload(eqn: Equation) -> bool:
    return isinstance(eqn.op, ToMemory) and eqn.op.on_host and not eqn.operands[0].type.on_host


def _renamed(eqn: Equation, names: dict[Value, Value]) -> Equation:
    if names.keys().isdisjoint(eqn.operands):
        return eqn
    return Equation(eqn.op, tuple([names.get(value, value) for value in eqn.operands]), eqn.results, eqn.loc)
