"""Inline what differentiation looks through: calls, and checkpoints under a policy that saves everything.

Before:  %1: f32[4] = call %x {body=graph @g(%a: f32[4]) -> (f32[4]) { %0: f32[4] = sine %a ... }}
After:   %1: f32[4] = sine %x

A policy then sees the equations inside a call, and `everything_saveable` is exactly no checkpoint.
"""

from __future__ import annotations

from rematc.ir.core import Equation, Graph, Op, Value
from rematc.ir.ops.regions import Call, Checkpoint, Region


def flatten_for_differentiation(graph: Graph) -> Graph:
    """`graph` without calls and without checkpoints that save everything; the graph itself if it has none."""
    if not any(is_transparent(eqn.op) for eqn in graph.equations):
        return graph
    env: dict[Value, Value] = {}
    equations: list[Equation] = []
    for eqn in graph.equations:
        operands = tuple([env.get(value, value) for value in eqn.operands])
        if is_transparent(eqn.op):
            assert isinstance(eqn.op, Region)
            body = flatten_for_differentiation(eqn.op.body)
            env.update(zip(eqn.results, copy_equations(body, operands, equations), strict=True))
        else:
            equations.append(eqn if operands == eqn.operands else Equation(eqn.op, operands, eqn.results, eqn.loc))
    return Graph(graph.name, graph.params, tuple(equations), tuple([env.get(value, value) for value in graph.results]))


def is_transparent(op: Op) -> bool:
    """Whether differentiation treats the op as its body."""
    if isinstance(op, Checkpoint):
        return op.policy is not None and op.policy.is_everything
    return isinstance(op, Call)


def copy_equations(graph: Graph, operands: tuple[Value, ...], into: list[Equation]) -> tuple[Value, ...]:
    """Append fresh copies of the graph's equations, its parameters replaced by `operands`; its results."""
    env: dict[Value, Value] = dict(zip(graph.params, operands, strict=True))
    for eqn in graph.equations:
        results = tuple([Value(value.type, value.name) for value in eqn.results])
        into.append(Equation(eqn.op, tuple([env[value] for value in eqn.operands]), results, eqn.loc))
        env.update(zip(eqn.results, results, strict=True))
    return tuple([env[value] for value in graph.results])
