"""Inlining: an op with a region becomes the equations of the region.

Before:  %0: f32[4] = call %x {body=graph @f(%a: f32[4]) -> (f32[4]) { %0: f32[4] = sine %a ... }}
After:   %0: f32[4] = sine %x

Why: cse and simplify see nothing across a call, and a policy is asked about the equations inside it. Equations keep
the locations they have in the function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rematc.ir.core import Equation, Graph, Op
from rematc.ir.ops.custom_derivatives import CustomDerivative
from rematc.ir.ops.custom_jvp import CustomJvp
from rematc.ir.ops.regions import Call, Checkpoint
from rematc.ir.splicing import splice
from rematc.ir.values import Value
from rematc.passes.manager import Pass, register_pass
from rematc.passes.regions import RegionRewriter


@register_pass
@dataclass(frozen=True, slots=True)
class Inline(Pass):
    """Replace every `call` by its body, in regions too; and functions with rules of the user's, which have served."""

    name = "inline"

    def run(self, graph: Graph) -> Graph:
        return Inliner(_bodies_of(_is_function)).graph(graph)


@register_pass
@dataclass(frozen=True, slots=True)
class InlineTransparent(Pass):
    """Replace what differentiation looks through by its body: see `inline_for_differentiation`."""

    name = "inline_transparent"

    def run(self, graph: Graph) -> Graph:
        return inline_for_differentiation(graph)


def inline_for_differentiation(graph: Graph) -> Graph:
    """Inline what differentiation looks through: calls, and checkpoints whose policy saves everything.

    So `everything_saveable` is exactly no checkpoint.
    """
    return Inliner(_bodies_of(_is_transparent)).graph(graph)


def inline_recognized(graph: Graph) -> Graph:
    """Inline what a pass has recognised for a derivative, and no tangent has come to."""
    return Inliner(_bodies_of(lambda op: isinstance(op, CustomJvp) and op.is_recognized)).graph(graph)


def _is_function(op: Op) -> bool:
    return isinstance(op, CustomDerivative) or (isinstance(op, Call) and op.is_inlineable)


def _is_transparent(op: Op) -> bool:
    if isinstance(op, Checkpoint):
        return op.policy is not None and op.policy.is_everything
    return isinstance(op, Call)


def _bodies_of(is_inlined: Callable[[Op], bool]) -> Callable[[Op], Graph | None]:
    """The bodies of some of the ops that have one."""

    def body_of(op: Op) -> Graph | None:
        return op.body if isinstance(op, (Call, Checkpoint, CustomDerivative)) and is_inlined(op) else None

    return body_of


class Inliner:
    """Replaces ops by the equations of graphs, in regions too."""

    def __init__(self, body_of: Callable[[Op], Graph | None]) -> None:
        """`body_of` gives a graph of what an op computes, or None where the op stays."""
        self._body_of = body_of
        self._regions = RegionRewriter(self.graph)

    def graph(self, graph: Graph) -> Graph:
        """The graph without what is inlined; the graph itself if there is none of it.

        Equations of a body without a location get that of the op.
        """
        if not graph.with_regions:
            return graph
        env: dict[Value, Value] = {}
        equations: list[Equation] = []
        has_changed = False
        for eqn in graph.equations:
            operands = tuple([env.get(value, value) for value in eqn.operands])
            body = self._body_of(eqn.op)
            if body is not None:
                # The body is inlined before it is copied: a function is gone through once, however often it is called.
                results = splice(self._regions.graph(body), operands, equations, eqn.loc)
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
