"""Local rewrites of loops: their steps compute what is one number everywhere.

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
from rematc.passes.rewriting import Rewritten, Scope, rewrites


@rewrites(Scan)
def scan(scope: Scope, eqn: Equation) -> Rewritten:
    """A loop whose step is given an array of one number is one whose step repeats that number."""
    op = eqn.op
    assert isinstance(op, Scan), "the rule is entered for it"
    numbers = [_repeated(scope, value) for value in eqn.operands[: op.consts]]
    if all(number is None for number in numbers):
        return None
    new = replace(op, body=_with_numbers(op.body, numbers, eqn.loc), consts=numbers.count(None))
    return _instead(scope, eqn, new, _others(eqn.operands, numbers))


@rewrites(While)
def while_(scope: Scope, eqn: Equation) -> Rewritten:
    """As for `scan`, in the condition and in the step."""
    op = eqn.op
    assert isinstance(op, While), "the rule is entered for it"
    numbers = [_repeated(scope, value) for value in eqn.operands[: op.cond_consts + op.body_consts]]
    if all(number is None for number in numbers):
        return None
    of_cond, of_body = numbers[: op.cond_consts], numbers[op.cond_consts :]
    new = replace(
        op,
        cond=_with_numbers(op.cond, of_cond, eqn.loc),
        cond_consts=of_cond.count(None),
        body=_with_numbers(op.body, of_body, eqn.loc),
        body_consts=of_body.count(None),
    )
    return _instead(scope, eqn, new, _others(eqn.operands, numbers))


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


def _instead(scope: Scope, eqn: Equation, op: Scan | While, operands: tuple[Value, ...]) -> tuple[Value, ...]:
    results = tuple([Value(value.type, value.name) for value in eqn.results])
    scope.append(Equation(op, operands, results, eqn.loc))
    return results
