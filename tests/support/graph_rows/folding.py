"""Rows for reductions by a function."""

from __future__ import annotations

from rematc.ir.builder import Builder
from rematc.ir.core import Graph
from rematc.ir.ops.elementwise import ORDERED
from rematc.ir.ops.folding import Reduce, ReduceWindow
from rematc.ir.ops.reduction import lowest
from rematc.ir.types import TensorType
from rematc.ir.values import Value
from tests.support.drawing import Drawing, Row


def _greater(type: TensorType) -> Graph:
    """Of two pairs the one with the greater first: of equals the second."""
    b = Builder("greater")
    x, i, y, j = [b.parameter(type.with_shape(())) for _ in range(4)]
    wins = b.compare(x, y, "GT")
    return b.build(b.select(wins, x, y), b.select(wins, i, j))


def _maximum(type: TensorType) -> Graph:
    b = Builder("maximum")
    return b.build(b.maximum(b.parameter(type.with_shape(())), b.parameter(type.with_shape(()))))


def _fold(d: Drawing) -> tuple[Value, ...]:
    x = d.pick(lambda type: type.dtype.kind in ORDERED and type.size > 0)
    if x is None:
        return ()
    scalar = x.type.with_shape(())
    start = d.b.full(scalar, lowest(x.type.dtype))
    if d.flip():
        return d.emit(Reduce(d.dimensions(x), _maximum(x.type)), x, start)
    return d.emit(Reduce(d.dimensions(x), _greater(x.type)), x, x, start, start)


def _fold_windows(d: Drawing) -> tuple[Value, ...]:
    x = d.pick(lambda type: type.dtype.kind in ORDERED and type.rank > 0 and type.size > 0)
    if x is None:
        return ()
    ones = (1,) * x.type.rank
    window = tuple(d.integer(1, size) for size in x.type.shape)
    padding = tuple((d.integer(0, 1), d.integer(0, 1)) for _ in ones)
    op = ReduceWindow(_maximum(x.type), window, d.one_of((ones, window)), padding, ones, ones)
    return d.emit(op, x, d.b.full(x.type.with_shape(()), lowest(x.type.dtype)))


ROWS = (
    Row((Reduce,), _fold),
    Row((ReduceWindow,), _fold_windows),
)
