"""Rows for reductions, whole and in windows."""

from __future__ import annotations

from rematc.ir.ops.elementwise import INTEGRAL, NUMBERS, ORDERED, REALS
from rematc.ir.ops.reduction import Argmax, Argmin, ReduceAnd, ReduceMax, ReduceMin, ReduceOr, ReduceProd, ReduceSum
from rematc.ir.ops.window import ReduceWindowMax, ReduceWindowMin, ReduceWindowSum, SelectAndGather, SelectAndScatter
from rematc.ir.types import I32, I64, TensorType
from rematc.ir.values import Value
from tests.support.drawing import Drawing, Row

_SUMS = (ReduceSum, ReduceProd)
_EXTREMA = (ReduceMax, ReduceMin)
_LOGICAL = (ReduceAnd, ReduceOr)


def _sum(d: Drawing) -> tuple[Value, ...]:
    x = d.pick(lambda type: type.dtype.kind in NUMBERS)
    return () if x is None else d.emit(d.one_of(_SUMS)(d.dimensions(x)), x)


def _extremum(d: Drawing) -> tuple[Value, ...]:
    x = d.pick(lambda type: type.dtype.kind in ORDERED)
    return () if x is None else d.emit(d.one_of(_EXTREMA)(d.dimensions(x)), x)


def _logical(d: Drawing) -> tuple[Value, ...]:
    x = d.pick(lambda type: type.dtype.kind in INTEGRAL)
    return () if x is None else d.emit(d.one_of(_LOGICAL)(d.dimensions(x)), x)


def _argmax(d: Drawing) -> tuple[Value, ...]:
    x = d.pick(lambda type: type.rank > 0 and type.size > 0 and type.dtype.kind in REALS)
    if x is None:
        return ()
    return d.emit(d.one_of((Argmax, Argmin))(d.integer(0, x.type.rank - 1), d.one_of((I32, I64))), x)


def _is_windowed(type: TensorType) -> bool:
    return type.rank > 0 and type.size > 0 and type.dtype.kind in REALS


def _window(d: Drawing) -> tuple[Value, ...]:
    x = d.pick(_is_windowed)
    if x is None:
        return ()
    ones = (1,) * x.type.rank
    window = tuple(d.integer(1, size) for size in x.type.shape)
    padding = tuple((d.integer(0, 1), d.integer(0, 1)) for _ in ones)
    gaps, holes = [tuple(d.integer(1, 2) for _ in ones) if d.integer(0, 3) == 0 else ones for _ in range(2)]
    cls = d.one_of((ReduceWindowSum, ReduceWindowMax, ReduceWindowMin))
    return d.emit(cls(window, d.one_of((ones, window)), padding, gaps, holes), x)


def _selection(d: Drawing) -> tuple[Value, ...]:
    """Windows that lie inside; the extrema of one array, read from another, and put back."""
    x = d.pick(_is_windowed)
    if x is None:
        return ()
    window = tuple(d.integer(1, size) for size in x.type.shape)
    fields = (d.one_of(("GE", "LE")), window, d.one_of(((1,) * x.type.rank, window)), ((0, 0),) * x.type.rank)
    read = d.emit(SelectAndGather(*fields), x, d.like(x))
    if not read or d.flip():
        return read
    return (*read, *d.emit(SelectAndScatter(*fields), d.like(x), d.like(read[0])))


ROWS = (
    Row(_SUMS, _sum),
    Row(_EXTREMA, _extremum),
    Row(_LOGICAL, _logical),
    Row((Argmax, Argmin), _argmax),
    Row((ReduceWindowSum, ReduceWindowMax, ReduceWindowMin), _window),
    Row((SelectAndGather, SelectAndScatter), _selection),
)
