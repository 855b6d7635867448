"""Exact rewrites of sums over an array that has, along a dimension, one element that is chosen and zeros elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rematc.ir.core import Equation
from rematc.ir.ops.arithmetic import Add, Maximum, Minimum, Negate
from rematc.ir.ops.conversion import Convert
from rematc.ir.ops.logical import And, Compare, Select
from rematc.ir.ops.reduction import ReduceSum
from rematc.ir.ops.shape import BroadcastInDim, Reshape, Slice
from rematc.ir.ops.structural import Iota
from rematc.ir.types import DType
from rematc.ir.values import Value
from rematc.passes.rewriting import Application, Scope, is_real, rewrites


@rewrites(ReduceSum)
def sum_of_chosen(s: Scope, eqn: Equation) -> Value | Application | None:
    """Over the dimension along which one element is chosen: that element, added to zero as a sum begins with it.

    Zero, where the place is not sure to be there and is not.

    So is the derivative of a logarithm of a softmax where it is read at one class: without this, compilers write the
    array, as large as all classes, for both its sum and itself.
    """
    op, (x,) = eqn.op, eqn.operands
    assert isinstance(op, ReduceSum)
    negated = s.operands_if(x, Negate)
    found = _chosen(s, x if negated is None else negated[0]) if is_real(x.type) else None
    if found is None or found.along not in op.dimensions:
        return None
    along, spread, element = found.along, found.spread, found.element
    if negated is not None:
        element = s.emit(Negate(), (element,), eqn.loc)
    shape = tuple([size for d, size in enumerate(x.type.shape) if d != along])

    def in_shape(value: Value, spread: BroadcastInDim) -> Value:
        dimensions = tuple([d - (d > along) for d in spread.dimensions])
        return value if shape == value.type.shape else s.emit(BroadcastInDim(shape, dimensions), (value,), eqn.loc)

    zero = s.emit_splat(np.zeros((), x.type.dtype.numpy), shape, eqn.loc)
    element = in_shape(element, spread)
    if found.index is not None:
        index = in_shape(found.index, found.start)
        is_there = _is_inside(s, index, x.type.shape[along], eqn)
        element = s.emit(Select(), (is_there, element, zero), eqn.loc)
    rest = tuple([d - (d > along) for d in op.dimensions if d != along])
    if rest:
        return Application(ReduceSum(rest), (element,))
    return Application(Add(), (element, zero))


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Zeros but for one element along a dimension.

    Attributes:
        along: the dimension.
        element: what is there, repeated as `spread` says.
        index: where it is, repeated as `start` says; None where that is sure to be inside.
    """

    along: int
    spread: BroadcastInDim
    element: Value
    start: BroadcastInDim
    index: Value | None


def _chosen(s: Scope, x: Value) -> _Chosen | None:
    """How `x` is zero but for one element along a dimension; None where it is not known to be."""
    selected = s.operands_if(x, Select)
    if selected is None or not s.is_splat(selected[2], 0):
        return None
    compared, spread = s.definition(selected[0], Compare), s.definition(selected[1], BroadcastInDim)
    if compared is None or spread is None or compared[0].direction != "EQ":
        return None
    counted, start = s.definition(compared[1][0], Iota), s.definition(compared[1][1], BroadcastInDim)
    if counted is None or start is None:
        return None
    along, index = counted[0].dimension, start[1][0]
    size = x.type.shape[along]
    if along in start[0].dimensions or along in spread[0].dimensions or not _counts(index.type.dtype, size):
        return None
    is_there = _is_within(s, index, size)
    return _Chosen(along, spread[0], spread[1][0], start[0], None if is_there else index)


def _counts(dtype: DType, size: int) -> bool:
    """Whether so many places have a number each in a type."""
    return dtype.is_integer and 0 < size <= dtype.greatest + 1


def _is_inside(s: Scope, index: Value, size: int, eqn: Equation) -> Value:
    """Whether places are among so many."""
    type = index.type
    first, last = [s.emit_splat(np.asarray(number, type.dtype.numpy), type.shape, eqn.loc) for number in (0, size - 1)]
    bounds = [s.emit(Compare(direction), (index, end), eqn.loc) for direction, end in (("GE", first), ("LE", last))]
    return s.emit(And(), tuple(bounds), eqn.loc)


def _is_within(s: Scope, index: Value, size: int) -> bool:
    """Whether an index is known to be clamped to 0, ..., size - 1."""
    for moved in (Slice, Reshape, Convert):
        while (inner := s.operands_if(index, moved)) is not None and inner[0].type.dtype.is_integer:
            index = inner[0]
    lower = s.operands_if(index, Maximum)
    if lower is None or not s.is_splat(lower[1], 0):
        return False
    upper = s.operands_if(lower[0], Minimum)
    last = None if upper is None else s.splat(upper[1])
    return last is not None and 0 <= int(last) < size
