"""What local rewrites are made of: a scope that knows how each value is defined, and the table of rules.

A rule is a function of (scope, equation) for the ops named in its `@rewrites`. It returns the value that the
equation's result is equal to (a tuple for an op of several), or the simpler application that it is equal to, or None
where it does not apply. A rule must make the definition of the result smaller, so that following rules one after
another comes to an end, and it must be exact: the same bits, all NaNs being alike. x + 0 is no x where x is -0.0, and
0 x is no 0 where x is infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from rematc.ir.core import Equation, Op
from rematc.ir.locations import Location
from rematc.ir.ops.shape import BroadcastInDim
from rematc.ir.ops.structural import Constant
from rematc.ir.types import TensorType
from rematc.ir.values import Array, Value

_O = TypeVar("_O", bound=Op)


@dataclass(frozen=True, slots=True)
class Application:
    """An op of one result, applied."""

    op: Op
    operands: tuple[Value, ...]


class Scope:
    """The equations written so far, and what is known of their values.

    Attributes:
        equations: in order.
        max_elements: size of the largest array that is taken as a constant, and made one.
    """

    def __init__(self, max_elements: int) -> None:
        self.max_elements = max_elements
        self.equations: list[Equation] = []
        self._definitions: dict[Value, Equation] = {}
        self._splats: dict[Value, Array] = {}

    def append(self, eqn: Equation) -> None:
        self.equations.append(eqn)
        for value in eqn.results:
            self._definitions[value] = eqn
        scalar = self._splat_of(eqn)
        if scalar is not None:
            self._splats[eqn.results[0]] = scalar

    def operands_if(self, value: Value, cls: type[Op]) -> tuple[Value, ...] | None:
        """The operands of the equation that defines `value`, if it is of this op."""
        eqn = self._definitions.get(value)
        return eqn.operands if eqn is not None and type(eqn.op) is cls else None

    def equation(self, value: Value) -> Equation | None:
        """The equation that defines `value`; None for a parameter."""
        return self._definitions.get(value)

    def definition(self, value: Value, cls: type[_O]) -> tuple[_O, tuple[Value, ...]] | None:
        """The op that defines `value`, if it is of this class, and its operands."""
        eqn = self._definitions.get(value)
        return (eqn.op, eqn.operands) if eqn is not None and isinstance(eqn.op, cls) else None

    def splat(self, value: Value) -> Array | None:
        """The scalar that all elements of `value` are, to the bit, where that is known."""
        return self._splats.get(value)

    def is_splat(self, value: Value, number: float) -> bool:
        """Whether all elements are known to be `number`, to the sign of a zero of floats. Never for complex numbers."""
        scalar = self._splats.get(value)
        if scalar is None or value.type.dtype.is_complex:
            return False
        if value.type.dtype.is_float:
            found = float(scalar)
            return found == number and math.copysign(1, found) == math.copysign(1, number)
        return int(scalar) == number

    def is_known(self, value: Value) -> bool:
        """Whether the elements of `value` may be known, however many."""
        if value in self._splats:
            return True
        eqn = self._definitions.get(value)
        return eqn is not None and type(eqn.op) is Constant

    def constant(self, value: Value) -> Array | None:
        """The elements of `value` where they are known and few."""
        if value.type.size > self.max_elements:
            return None
        found = self.definition(value, Constant)
        if found is not None:
            return found[0].array
        scalar = self._splats.get(value)
        return None if scalar is None else np.full(value.type.shape, scalar)

    def emit_constant(self, array: Array, loc: Location | None) -> Value:
        """A value of these elements: a broadcast scalar if they are all the same bits."""
        if array.ndim and array.size:
            first = array.reshape(-1)[:1]
            if first.tobytes() * array.size == array.tobytes():
                return self.emit_splat(first.reshape(()), array.shape, loc)
        return self.emit(Constant.of(array), (), loc)

    def emit_splat(self, scalar: Array, shape: Sequence[int], loc: Location | None) -> Value:
        """A value of this shape, all of whose elements are `scalar`."""
        value = self.emit(Constant.of(scalar), (), loc)
        return self.emit(BroadcastInDim(tuple(shape), ()), (value,), loc) if shape else value

    def emit(self, op: Op, operands: tuple[Value, ...], loc: Location | None) -> Value:
        """The result of an op of one result, applied before the equation that is rewritten."""
        (type,) = op.infer([value.type for value in operands])
        result = Value(type)
        self.append(Equation(op, operands, (result,), loc))
        return result

    def _splat_of(self, eqn: Equation) -> Array | None:
        op = eqn.op
        if isinstance(op, BroadcastInDim):
            return self._splats.get(eqn.operands[0])
        if not isinstance(op, Constant) or not op.type.size:
            return None
        size = op.type.dtype.numpy.itemsize
        if op.data[:size] * op.type.size != op.data:
            return None
        return np.frombuffer(op.data[:size], op.type.dtype.numpy).reshape(())


Rewritten = Value | tuple[Value, ...] | Application | None
Rule = Callable[[Scope, Equation], Rewritten]
RULES: dict[type[Op], list[Rule]] = {}
_R = TypeVar("_R", bound=Rule)


def rewrites(*ops: type[Op]) -> Callable[[_R], _R]:
    """Decorator: this rule is tried on equations of these ops, after the rules that stand before it."""

    def enter(rule: _R) -> _R:
        for op in ops:
            RULES.setdefault(op, []).append(rule)
        return rule

    return enter


def is_real(type: TensorType) -> bool:
    """Whether elements are real numbers: arithmetic with 1 and 0 is not exact on complex infinities."""
    return not type.dtype.is_complex and not type.dtype.is_bool
