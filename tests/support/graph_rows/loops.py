"""Rows for loops and branches, whose bodies are drawn like programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rematc.ir.builder import Builder
from rematc.ir.core import Graph
from rematc.ir.ops.case.op import Case
from rematc.ir.ops.logical import And
from rematc.ir.ops.reduction import ReduceOr
from rematc.ir.ops.scan.op import Scan
from rematc.ir.ops.while_.op import While
from rematc.ir.types import I32, TensorType
from rematc.ir.values import Value
from tests.support.drawing import Drawing, Row

COUNT = TensorType(I32, ())
MOST_STEPS = 3


class DrawBody(Protocol):
    """Draws a graph inside a program: of parameters of these types, it gives these and up to `more` other results."""

    def __call__(self, d: Drawing, params: Sequence[TensorType], results: Sequence[TensorType], more: int) -> Graph: ...


def rows(body: DrawBody) -> tuple[Row, ...]:
    """The rows, with this way to draw bodies."""
    return (
        Row((Scan,), lambda d: _scan(d, body)),
        Row((While,), lambda d: _while(d, body)),
        Row((Case,), lambda d: _case(d, body)),
    )


def _scan(d: Drawing, body: DrawBody) -> tuple[Value, ...]:
    """A loop over slices of what fits, if only over the count of its steps."""
    stacked = [value for value in d.pool if value.type.rank and value.type.shape[0] <= MOST_STEPS]
    length = d.one_of(stacked).type.shape[0] if stacked and d.integer(0, 3) else d.integer(0, MOST_STEPS)
    fitting = [value for value in stacked if value.type.shape[0] == length]
    consts, carry = d.some(d.pool, 0, 2), d.some(d.pool, 0, 2)
    xs = d.some(fitting, 0, 2) if fitting else []
    slices = [value.type.with_shape(value.type.shape[1:]) for value in xs]
    carried = [value.type for value in carry]
    step = body(d, [*[value.type for value in consts], *carried, *slices], carried, 2)
    op = Scan(
        step,
        length,
        len(consts),
        len(carry),
        is_reversed=d.flip(),
        unroll=d.integer(1, max(length, 1)),
        snapshots=d.one_of((0, 0, 0, 1, 2)),
    )
    return d.emit(op, *consts, *carry, *xs)


def _while(d: Drawing, body: DrawBody) -> tuple[Value, ...]:
    """A loop that counts to a small number, and may end before, where an array of integers is all zeros."""
    counter, limit = d.scalar(0, I32), d.scalar(d.integer(-1, MOST_STEPS), I32)
    consts, carry = d.some(d.pool, 0, 2), d.some(d.pool, 1, 2)
    carried = [value.type for value in carry]
    drawn = body(d, [*[value.type for value in consts], *carried], carried, 0)
    op = While(_below(carried, ends_early=d.flip()), _counted(drawn, len(consts)), 1, len(consts))
    return d.emit(op, limit, *consts, counter, *carry)[1:]


def _below(carried: Sequence[TensorType], ends_early: bool) -> Graph:
    """The condition: limit, counter, carries to counter < limit, and, if asked, whether any whole carry is not 0."""
    b = Builder("below")
    limit, counter = b.parameter(COUNT), b.parameter(COUNT)
    holds = b.compare(counter, limit, "LT")
    for type in carried:
        value = b.parameter(type)
        if ends_early and type.dtype.is_integer:
            is_set = b.compare(value, b.zeros(type), "NE")
            holds = b.emit1(And(), holds, b.emit1(ReduceOr(tuple(range(type.rank))), is_set))
    return b.build(holds)


def _counted(drawn: Graph, consts: int) -> Graph:
    """The body with a counter before its carries."""
    b = Builder("step")
    given = [b.parameter(type) for type in drawn.param_types[:consts]]
    counter = b.parameter(COUNT)
    carry = [b.parameter(type) for type in drawn.param_types[consts:]]
    return b.build(b.add(counter, b.full(COUNT, 1)), *b.inline(drawn, [*given, *carry]))


def _case(d: Drawing, body: DrawBody) -> tuple[Value, ...]:
    """Up to three branches; the index may lie outside."""
    index = d.pick(lambda type: type == COUNT)
    if index is None or d.flip():
        index = d.scalar(d.integer(-1, 3), I32)
    operands = d.some(d.pool, 1, 3)
    types = [value.type for value in operands]
    first = body(d, types, [], 2)
    if not first.results:
        return ()
    others = [body(d, types, first.result_types, 0) for _ in range(d.integer(0, 2))]
    return d.emit(Case((first, *others)), index, *operands)
