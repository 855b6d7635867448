"""Exact rewrites of sums over an array that has, along a dimension, one element that is chosen and zeros elsewhere."""

from __future__ import annotations

import numpy as np

from rematc.ir.core import Equation
from rematc.ir.ops.arithmetic import Add, Maximum, Minimum, Negate
from rematc.ir.ops.conversion import Convert
from rematc.ir.ops.logical import Compare, Select
from rematc.ir.ops.reduction import ReduceSum
from rematc.ir.ops.shape import BroadcastInDim, Reshape, Slice
from rematc.ir.ops.structural import Iota
from rematc.ir.values import Value
from rematc.passes.rewriting import Application, Scope, is_real, rewrites


@rewrites(ReduceSum)
def sum_of_chosen(s: Scope, eqn: Equation) -> Value | Application | None:
    """Over the dimension along which one element is chosen: that element, added to zero as a sum begins with it.

    So is the derivative of a logarithm of a softmax where it is read at one class: without this, compilers write the
    array, as large as all classes, for both its sum and itself.
    """
    op, (x,) = eqn.op, eqn.operands
    assert isinstance(op, ReduceSum)
    negated = s.operands_if(x, Negate)
    found = _chosen(s, x if negated is None else negated[0]) if is_real(x.type) else None
    if found is None or found[0] not in op.dimensions:
        return None
    along, spread, (element,) = found[0], found[1], found[2]
    if along in spread.dimensions:
        return None
    if negated is not None:
        element = s.emit(Negate(), (element,), eqn.loc)
    shape = tuple([size for d, size in enumerate(x.type.shape) if d != along])
    dimensions = tuple([d - (d > along) for d in spread.dimensions])
    if shape != element.type.shape:
        element = s.emit(BroadcastInDim(shape, dimensions), (element,), eqn.loc)
    rest = tuple([d - (d > along) for d in op.dimensions if d != along])
    if rest:
        return Application(ReduceSum(rest), (element,))
    return Application(Add(), (element, s.emit_splat(np.zeros((), x.type.dtype.numpy), shape, eqn.loc)))


def _chosen(s: Scope, x: Value) -> tuple[int, BroadcastInDim, tuple[Value, ...]] | None:
    """The dimension along which `x` is zero but for one element, which always is there, and what is repeated there."""
    selected = s.operands_if(x, Select)
    if selected is None or not s.is_splat(selected[2], 0):
        return None
    compared, spread = s.definition(selected[0], Compare), s.definition(selected[1], BroadcastInDim)
    if compared is None or spread is None or compared[0].direction != "EQ":
        return None
    counted, start = s.definition(compared[1][0], Iota), s.definition(compared[1][1], BroadcastInDim)
    if counted is None or start is None:
        return None
    along = counted[0].dimension
    is_there = along not in start[0].dimensions and _is_within(s, start[1][0], x.type.shape[along])
    return (along, *spread) if is_there else None


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
