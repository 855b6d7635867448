"""Loops that take all of their steps at once, as these steps.

Before:  %1 = scan %x {body=graph @step(%c: f32[4]) -> (f32[4]) { %0 = sine %c ... }, length=3, unroll=3}
After:   %2 = sine %x   %3 = sine %2   %1 = sine %3

Compiled, there is no loop: the compiler orders the steps among all other equations, and shares and fuses what is in
them. So a plan, a policy and a prediction have to see them, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rematc.ir.builder import Builder
from rematc.ir.core import Graph, Op
from rematc.ir.ops.scan.base import stack_of
from rematc.ir.ops.scan.op import Scan
from rematc.ir.types import TensorType
from rematc.ir.values import Value
from rematc.passes.inline import Inliner
from rematc.passes.manager import Pass, register_pass


@register_pass
@dataclass(frozen=True, slots=True)
class Unroll(Pass):
    """Replace every `scan` without a loop around its steps by these, in regions too.

    One that keeps snapshots stays: its backward pass is another loop.
    """

    name: ClassVar[str] = "unroll"

    def run(self, graph: Graph) -> Graph:
        return Inliner(_steps_of).graph(graph)


def _steps_of(op: Op) -> Graph | None:
    """What a loop computes, without a loop; None for other ops."""
    return _steps(op) if isinstance(op, Scan) and op.is_unrolled and not op.snapshots else None


def _steps(op: Scan) -> Graph:
    b = Builder(op.body.name)
    own = op.parts(op.body.params)
    consts, carry = ([b.parameter(value.type, value.name) for value in part] for part in (own.consts, own.carry))
    xs = [b.parameter(stack_of(value.type, op.length), value.name) for value in own.xs]
    rows: list[Sequence[Value]] = []
    for index in reversed(range(op.length)) if op.is_reversed else range(op.length):
        results = b.inline(op.body, (*consts, *carry, *[_row(b, x, index) for x in xs]))
        carry = list(results[: op.carry])
        rows.append(results[op.carry :])
    if op.is_reversed:
        rows.reverse()
    types = [stack_of(type, op.length) for type in op.body.result_types[op.carry :]]
    columns = zip(*rows, strict=True) if rows else [()] * len(types)
    return b.build(*carry, *[_stacked(b, column, type) for column, type in zip(columns, types, strict=True)])


def _row(b: Builder, x: Value, index: int) -> Value:
    _, *rest = x.type.shape
    return b.reshape(b.slice(x, (index, *[0] * len(rest)), (index + 1, *rest)), rest)


def _stacked(b: Builder, rows: Sequence[Value], type: TensorType) -> Value:
    if not rows:
        return b.zeros(type)
    return b.concatenate([b.reshape(row, (1, *type.shape[1:])) for row in rows], 0)
