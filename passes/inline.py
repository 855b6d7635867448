"""Inlining: a call becomes the equations of its function, in regions too.

Before:  %0: f32[4] = call %x {body=graph @f(%a: f32[4]) -> (f32[4]) { %0: f32[4] = sine %a ... }}
After:   %0: f32[4] = sine %x

Why: cse and simplify see nothing across a call. Equations keep the locations they have in the function.
"""

from __future__ import annotations

from dataclasses import dataclass

from rematc.ir.core import Equation, Graph, Value
from rematc.ir.ops.regions import Call
from rematc.passes.flatten import copy_equations
from rematc.passes.manager import Pass, register_pass
from rematc.passes.regions import RegionRewriter


@register_pass
@dataclass(frozen=True, slots=True)
class Inline(Pass):
    """Replace every `call` by its body."""

    name = "inline"

    def run(self, graph: Graph) -> Graph:
        return _Inline().graph(graph)


class _Inline:
    def __init__(self) -> None:
        self._regions = RegionRewriter(self.graph)

    def graph(self, graph: Graph) -> Graph:
        """The graph without calls; the graph itself if there is none."""
        env: dict[Value, Value] = {}
        equations: list[Equation] = []
        has_changed = False
        for eqn in graph.equations:
            operands = tuple([env.get(value, value) for value in eqn.operands])
            if isinstance(eqn.op, Call):
                # The body is inlined before it is copied: a function is gone through once, however often it is called.
                results = copy_equations(self._regions.graph(eqn.op.body), operands, equations)
                env.update(zip(eqn.results, results, strict=True))
                has_changed = True
                continue
            op = self._regions.op(eqn.op)
            has_changed = has_changed or op is not eqn.op
            is_same = op is eqn.op and operands == eqn.operands
            equations.append(eqn if is_same else Equation(op, operands, eqn.results, eqn.loc))
        if not has_changed:
            return graph
        results = tuple([env.get(value, value) for value in graph.results])
        return Graph(graph.name, graph.params, tuple(equations), results)
