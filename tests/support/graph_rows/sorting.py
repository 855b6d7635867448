"""Rows for sorts and the greatest elements."""

from __future__ import annotations

from rematc.ir.ops.elementwise import ORDERED
from rematc.ir.ops.sorting import Sort, TopK
from rematc.ir.values import Value
from tests.support.drawing import Drawing, Row, has_rank


def _sort(d: Drawing) -> tuple[Value, ...]:
    x = d.pick(has_rank)
    if x is None:
        return ()
    operands = [x, *(d.like(x) for _ in range(d.integer(0, 2)))]
    op = Sort(d.integer(0, x.type.rank - 1), d.integer(1, len(operands)), d.flip())
    return d.emit(op, *operands)


def _top_k(d: Drawing) -> tuple[Value, ...]:
    x = d.pick(lambda type: type.rank > 0 and type.dtype.kind in ORDERED)
    return () if x is None else d.emit(TopK(d.integer(0, x.type.shape[-1])), x)


ROWS = (
    Row((Sort,), _sort),
    Row((TopK,), _top_k),
)
