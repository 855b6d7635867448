"""Loops and branches, their bodies evaluated by any evaluator: one that adds noise, for instance."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rematc.ir.core import Graph, Op
from rematc.ir.ops.case.op import Case
from rematc.ir.ops.scan.op import Scan
from rematc.ir.ops.while_.op import While
from rematc.ir.values import Array

Evaluate = Callable[[Graph, Sequence[Array]], list[Array]]


def has_steps(op: Op) -> bool:
    """Whether `apply` knows the op."""
    return isinstance(op, (Scan, While, Case))


def apply(op: Op, operands: Sequence[Array], evaluate: Evaluate) -> tuple[Array, ...]:
    """The op's results."""
    match op:
        case Scan():
            return _scan(op, operands, evaluate)
        case While():
            return _while(op, operands, evaluate)
        case Case(branches=branches):
            index, last = int(operands[0]), len(branches) - 1
            return tuple(evaluate(branches[index if 0 <= index <= last else last], operands[1:]))
    raise TypeError(f"{op.name} has no steps")


def _scan(op: Scan, operands: Sequence[Array], evaluate: Evaluate) -> tuple[Array, ...]:
    consts, carry, xs = op.parts(operands)
    rows: list[list[Array]] = []
    steps = range(op.length)
    for step in reversed(steps) if op.is_reversed else steps:
        results = evaluate(op.body, [*consts, *carry, *[np.asarray(x[step]) for x in xs]])
        carry = tuple(results[: op.carry])
        rows.append(results[op.carry :])
    if op.is_reversed:
        rows.reverse()
    stacks = [
        np.stack([row[index] for row in rows]) if rows else np.zeros((0, *type.shape), type.dtype.numpy)
        for index, type in enumerate(op.body.result_types[op.carry :])
    ]
    return (*carry, *stacks)


def _while(op: While, operands: Sequence[Array], evaluate: Evaluate) -> tuple[Array, ...]:
    cond_consts, body_consts, carry = op.parts(operands)
    while evaluate(op.cond, [*cond_consts, *carry])[0]:
        carry = tuple(evaluate(op.body, [*body_consts, *carry]))
    return carry
