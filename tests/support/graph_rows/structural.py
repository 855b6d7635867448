"""Rows for literals and for identities with a meaning."""

from __future__ import annotations

import numpy as np

from rematc.ir.ops.structural import Constant, Iota, Name, OptimizationBarrier, StopGradient
from rematc.ir.types import Kind, TensorType
from rematc.ir.values import Value
from tests.support.arrays import array_of
from tests.support.drawing import SHAPES, Drawing, Row


def _constant(d: Drawing) -> tuple[Value, ...]:
    type = TensorType(d.one_of(d.dtypes), d.one_of(SHAPES))
    return d.emit(Constant.of(array_of(type, np.random.default_rng(d.integer(0, 3)))))


def _iota(d: Drawing) -> tuple[Value, ...]:
    counting = [dtype for dtype in d.dtypes if dtype.kind is not Kind.BOOL]
    if not counting:
        return ()
    shape = d.one_of([shape for shape in SHAPES if shape])
    return d.emit(Iota(TensorType(d.one_of(counting), shape), d.integer(0, len(shape) - 1)))


def _identity(d: Drawing) -> tuple[Value, ...]:
    return d.emit(d.one_of((Name("a"), Name('"'), Name("b"))), d.value())


def _stopped(d: Drawing) -> tuple[Value, ...]:
    """Among products and sums of what it stops, where second derivatives tell a stopped gradient from none."""
    x = d.value()
    (stopped,) = d.emit(StopGradient(), x)
    if x.type.dtype.is_inexact and d.flip():
        return (stopped, d.b.multiply(x, stopped))
    return (stopped,)


def _barrier(d: Drawing) -> tuple[Value, ...]:
    return d.emit(OptimizationBarrier(), *d.some(d.pool, 0, 3))


ROWS = (
    Row((Constant,), _constant),
    Row((Iota,), _iota),
    Row((Name,), _identity),
    Row((StopGradient,), _stopped, weight=3),
    Row((OptimizationBarrier,), _barrier),
)
