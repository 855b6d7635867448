"""Rows for running combinations."""

from __future__ import annotations

from rematc.ir.ops.cumulative import (
    CumulativeLogsumexp,
    CumulativeMax,
    CumulativeMin,
    CumulativeProduct,
    CumulativeSum,
    LinearRecurrence,
)
from rematc.ir.values import Value
from tests.support.drawing import Drawing, Row, has_rank

_RUNNING = (CumulativeSum, CumulativeProduct, CumulativeMax, CumulativeMin, CumulativeLogsumexp)


def _running(d: Drawing) -> tuple[Value, ...]:
    x = d.pick(has_rank)
    if x is None:
        return ()
    fitting = [cls for cls in _RUNNING if x.type.dtype.kind in cls.kinds]
    return d.emit(d.one_of(fitting)(d.integer(0, x.type.rank - 1), d.flip()), x)


def _recurrence(d: Drawing) -> tuple[Value, ...]:
    x = d.pick(lambda type: type.rank > 0 and type.dtype.is_inexact)
    return () if x is None else d.emit(LinearRecurrence(d.integer(0, x.type.rank - 1), d.flip()), d.like(x), x)


ROWS = (
    Row(_RUNNING, _running),
    Row((LinearRecurrence,), _recurrence),
)
