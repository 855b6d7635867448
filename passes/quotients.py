"""The derivative of exponentials over their sum (softmax), from the result alone.

Before:  %0 = exponential %x   %1 = reduce_sum %0   %2 = broadcast_in_dim %1   %3 = divide %0, %2
After:   the tangent of %3 is  %4 = multiply %3, %dx   less  multiply %3, (the sum of %4, repeated like that of %0)

Why: by the rules of the ops it takes the exponentials and the quotient, both as large as the operand: for e = exp(x),
s = sum(e) and z = e / s, dz = e dx / s - z sum(e dx) / s. But e / s is z, before the sum and in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rematc.ir.builder import Builder
from rematc.ir.core import Equation, Value
from rematc.ir.ops.arithmetic import Divide
from rematc.ir.ops.conversion import Convert
from rematc.ir.ops.reduction import ReduceSum
from rematc.ir.ops.shape import BroadcastInDim, Reshape
from rematc.ir.ops.transcendental import Exponential

#: What may stand between the sum and the quotient.
_REPEATING = (BroadcastInDim, Reshape, Convert)


def tangent_of_softmax(
    b: Builder, eqn: Equation, definitions: Mapping[Value, Equation], tangents: Mapping[Value, Value]
) -> Value | None:
    """Emit the tangent of a quotient of exponentials by their sum; None where it is no such quotient."""
    if not isinstance(eqn.op, Divide) or not eqn.results[0].type.dtype.is_float:
        return None
    exponentials, divisor = eqn.operands
    defined = definitions.get(exponentials)
    if defined is None or not isinstance(defined.op, Exponential):
        return None
    steps = _steps_of_sum(exponentials, divisor, definitions)
    tangent = tangents.get(defined.operands[0])
    if steps is None or tangent is None:
        return None
    (quotient,) = eqn.results
    scaled = b.multiply(quotient, tangent)
    total = scaled
    for step in steps:
        total = b.emit1(step.op, total)
    return b.subtract(scaled, b.multiply(quotient, total))


def _steps_of_sum(of: Value, divisor: Value, definitions: Mapping[Value, Equation]) -> list[Equation] | None:
    """The equations from `of` to `divisor`, where they sum it up and repeat each sum where its summands stand."""
    steps: list[Equation] = []
    value = divisor
    while value is not of:
        eqn = definitions.get(value)
        if eqn is None or not isinstance(eqn.op, (*_REPEATING, ReduceSum)) or not value.type.dtype.is_float:
            return None
        steps.append(eqn)
        value = eqn.operands[0]
    steps.reverse()
    return steps if _is_repeated_in_place(of, steps) else None


def _is_repeated_in_place(of: Value, steps: Sequence[Equation]) -> bool:
    """Whether each dimension that is not summed up comes back to its place."""
    places: list[int | None] = list(range(of.type.rank))
    summed: frozenset[int] | None = None
    for step in steps:
        match step.op:
            case ReduceSum() as op:
                if summed is not None or places != list(range(of.type.rank)):
                    return False
                summed = frozenset(op.dimensions)
                places = [d for d in range(of.type.rank) if d not in summed]
            case BroadcastInDim() as op:
                moved: list[int | None] = [None] * len(op.shape)
                for dimension, place in zip(op.dimensions, places, strict=True):
                    moved[dimension] = place
                places = moved
            case Reshape() as op:
                if [n for n in step.operands[0].type.shape if n > 1] != [n for n in op.shape if n > 1]:
                    return False
                kept = iter([place for place, n in zip(places, step.operands[0].type.shape, strict=True) if n > 1])
                places = [next(kept) if n > 1 else None for n in op.shape]
    sizes = of.type.shape
    return summed is not None and all(
        place == d or sizes[d] == 1 or (d in summed and place is None) for d, place in enumerate(places)
    )
