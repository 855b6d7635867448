"""Constant sinking, which simplification begins with: steps of loops compute what is one number everywhere.

XLA takes such arrays into the bodies of loops, too (`WhileLoopConstantSinking`), where they are fused with what reads
them: they are in memory nowhere, and a plan must not hold them while the loop runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rematc.ir.core import Equation, Graph
from rematc.ir.locations import Location
from rematc.ir.ops.scan.op import Scan
from rematc.ir.ops.shape import BroadcastInDim
from rematc.ir.ops.structural import Constant
from rematc.ir.ops.while_.op import While
from rematc.ir.values import Array, Value
from rematc.passes.rewriting import Scope


def repeated_in_steps(scope: Scope, eqn: Equation) -> Equation:
    """A loop whose step, or condition, repeats the numbers that it is given arrays of; else the equation itself."""
    op = eqn.op
    if not isinstance(op, Scan | While):
        return eqn
    cond, body = (0, op.consts) if isinstance(op, Scan) else (op.cond_consts, op.body_consts)
    numbers = [_repeated(scope, value) for value in eqn.operands[: cond + body]]
    if all(number is None for number in numbers):
        return eqn
    step = _with_numbers(op.body, numbers[cond:], eqn.loc)
    count = numbers[cond:].count(None)
    operands = _others(eqn.operands, numbers)
    if isinstance(op, Scan):
        return replace(eqn, op=replace(op, body=step, consts=count), operands=operands)
    condition = _with_numbers(op.cond, numbers[:cond], eqn.loc)
    consts = numbers[:cond].count(None)
    new = replace(op, cond=condition, cond_consts=consts, body=step, body_consts=count)
    return replace(eqn, op=new, operands=operands)


def _repeated(scope: Scope, value: Value) -> Array | None:
    """The number that all elements of an array are, where it is one."""
    return scope.splat(value) if value.type.rank and not value.type.on_host else None


def _others(operands: Sequence[Value], numbers: Sequence[Array | None]) -> tuple[Value, ...]:
    given = [value for value, number in zip(operands, numbers, strict=False) if number is None]
    return (*given, *operands[len(numbers) :])


def _with_numbers(body: Graph, numbers: Sequence[Array | None], loc: Location | None) -> Graph:
    """A body, the first of whose parameters are these numbers, repeated."""
    equations: list[Equation] = []
    for param, number in zip(body.params, numbers, strict=False):
        if number is not None:
            constant = Constant.of(np.asarray(number))
            scalar = Value(constant.type)
            equations.append(Equation(constant, (), (scalar,), loc))
            equations.append(Equation(BroadcastInDim(param.type.shape, ()), (scalar,), (param,), loc))
    params = _others(body.params, numbers)
    return Graph(body.name, params, (*equations, *body.equations), body.results) if equations else body
