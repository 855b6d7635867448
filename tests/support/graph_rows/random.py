"""Rows for random bits: any words as counters, under a key of two equal words."""

from __future__ import annotations

from rematc.ir.ops.random import Threefry2x32
from rematc.ir.ops.shape import BroadcastInDim
from rematc.ir.types import U32
from rematc.ir.values import Value
from tests.support.drawing import Drawing, Row


def _threefry(d: Drawing) -> tuple[Value, ...]:
    high = d.pick(lambda type: type.dtype is U32)
    if high is None:
        return ()
    (key,) = d.emit(BroadcastInDim((2,), ()), d.scalar(d.integer(0, 2**32 - 1), U32))
    return d.emit(Threefry2x32(), key, high, d.like(high))


ROWS = (Row((Threefry2x32,), _threefry),)
