"""Exact rewrites of elementwise ops."""

from __future__ import annotations

import numpy as np

from rematc.ir.core import Equation
from rematc.ir.ops.arithmetic import Abs, Add, Divide, Maximum, Minimum, Multiply, Negate, Subtract
from rematc.ir.ops.conversion import Convert
from rematc.ir.ops.logical import And, Compare, Not, Or, Select, Xor
from rematc.ir.types import BF16, C64, C128, F16, F32, F64, DType, Kind
from rematc.ir.values import Value
from rematc.passes.rewriting import Application, Rewritten, Scope, is_real, rewrites


@rewrites(Add)
def add(s: Scope, eqn: Equation) -> Rewritten:
    """x + 0 = x with the zero that is neutral: -0.0 for floats. x + (-y) = x - y."""
    x, y = eqn.operands
    for value, other in ((x, y), (y, x)):
        if is_real(value.type) and s.is_splat(other, -0.0 if value.type.dtype.is_float else 0):
            return value
        negated = s.operands_if(other, Negate)
        if negated is not None:
            return Application(Subtract(), (value, negated[0]))
    return _disjunction(s, x, y) if x.type.dtype.is_bool else None


@rewrites(Subtract)
def subtract(s: Scope, eqn: Equation) -> Rewritten:
    """x - 0 = x; 0 - x = -x with the zero that is neutral: -0.0 for floats; x - (-y) = x + y; integers x - x = 0."""
    x, y = eqn.operands
    if is_real(x.type) and s.is_splat(y, 0.0):
        return x
    if is_real(x.type) and s.is_splat(x, -0.0 if x.type.dtype.is_float else 0):
        return Application(Negate(), (y,))
    negated = s.operands_if(y, Negate)
    if negated is not None:
        return Application(Add(), (x, negated[0]))
    return _zeros(s, eqn) if x is y and x.type.dtype.is_integer else None


@rewrites(Multiply)
def multiply(s: Scope, eqn: Equation) -> Rewritten:
    """1 x = x, (-1) x = -x, (-x) (-y) = x y; integers 0 x = 0."""
    x, y = eqn.operands
    if x.type.dtype.is_bool:
        return _conjunction(s, x, y)
    for value, other in ((x, y), (y, x)):
        if is_real(value.type) and s.is_splat(other, 1.0):
            return value
        if is_real(value.type) and s.is_splat(other, -1.0):
            return Application(Negate(), (value,))
        if value.type.dtype.is_integer and s.is_splat(other, 0):
            return other
    negated_x, negated_y = s.operands_if(x, Negate), s.operands_if(y, Negate)
    if negated_x is not None and negated_y is not None:
        return Application(Multiply(), (negated_x[0], negated_y[0]))
    return None


@rewrites(Divide)
def divide(s: Scope, eqn: Equation) -> Rewritten:
    """x / 1 = x; floats x / (-1) = -x."""
    x, y = eqn.operands
    if is_real(x.type) and s.is_splat(y, 1.0):
        return x
    if x.type.dtype.is_float and s.is_splat(y, -1.0):
        return Application(Negate(), (x,))
    return None


@rewrites(Negate, Not)
def involution(s: Scope, eqn: Equation) -> Rewritten:
    """-(-x) = x, not not x = x."""
    inner = s.operands_if(eqn.operands[0], type(eqn.op))
    return None if inner is None else inner[0]


@rewrites(Abs)
def absolute(s: Scope, eqn: Equation) -> Rewritten:
    """abs(-x) = abs(x), abs(abs(x)) = abs(x)."""
    (x,) = eqn.operands
    if s.operands_if(x, Abs) is not None and is_real(x.type):
        return x
    negated = s.operands_if(x, Negate)
    return None if negated is None else Application(Abs(), negated)


@rewrites(Maximum, Minimum)
def extremum(s: Scope, eqn: Equation) -> Rewritten:
    """max(x, x) = x."""
    x, y = eqn.operands
    return x if x is y else None


@rewrites(And)
def conjunction(s: Scope, eqn: Equation) -> Rewritten:
    """x and x = x, x and 0 = 0, x and all ones = x."""
    return _conjunction(s, *eqn.operands)


@rewrites(Or)
def disjunction(s: Scope, eqn: Equation) -> Rewritten:
    """x or x = x, x or 0 = x, x or all ones = all ones."""
    return _disjunction(s, *eqn.operands)


@rewrites(Xor)
def exclusive_disjunction(s: Scope, eqn: Equation) -> Rewritten:
    """x xor 0 = x, x xor x = 0."""
    x, y = eqn.operands
    for value, other in ((x, y), (y, x)):
        if s.is_splat(other, 0):
            return value
    return _zeros(s, eqn) if x is y else None


def _conjunction(s: Scope, x: Value, y: Value) -> Value | None:
    if x is y:
        return x
    for value, other in ((x, y), (y, x)):
        if s.is_splat(other, 0):
            return other
        if s.is_splat(other, _all_ones(value.type.dtype)):
            return value
    return None


def _disjunction(s: Scope, x: Value, y: Value) -> Value | None:
    if x is y:
        return x
    for value, other in ((x, y), (y, x)):
        if s.is_splat(other, 0):
            return value
        if s.is_splat(other, _all_ones(value.type.dtype)):
            return other
    return None


def _all_ones(dtype: DType) -> int:
    return -1 if dtype.kind is Kind.INT else 1 if dtype.is_bool else (1 << dtype.bits) - 1


def _zeros(s: Scope, eqn: Equation) -> Value:
    type = eqn.results[0].type
    return s.emit_splat(np.zeros((), type.dtype.numpy), type.shape, eqn.loc)


@rewrites(Compare)
def compare(s: Scope, eqn: Equation) -> Rewritten:
    """x = x, x >= x, x <= x hold, and the others do not, where there are no NaNs."""
    op, (x, y) = eqn.op, eqn.operands
    assert isinstance(op, Compare)
    if x is not y or x.type.dtype.is_inexact:
        return None
    return s.emit_splat(np.asarray(op.direction in ("EQ", "GE", "LE")), x.type.shape, eqn.loc)


@rewrites(Select)
def select(s: Scope, eqn: Equation) -> Rewritten:
    """A known predicate chooses; p ? x : x = x; not p ? x : y = p ? y : x; p ? true : false = p."""
    predicate, on_true, on_false = eqn.operands
    if on_true is on_false or s.is_splat(predicate, 1):
        return on_true
    if s.is_splat(predicate, 0):
        return on_false
    negated = s.operands_if(predicate, Not)
    if negated is not None:
        return Application(Select(), (negated[0], on_false, on_true))
    if on_true.type == predicate.type and s.is_splat(on_true, 1) and s.is_splat(on_false, 0):
        return predicate
    return None


@rewrites(Convert)
def convert(s: Scope, eqn: Equation) -> Rewritten:
    """To the same type: nothing. Over a type that holds every value of the first: straight from the first."""
    op, (x,) = eqn.op, eqn.operands
    assert isinstance(op, Convert)
    if op.dtype is x.type.dtype:
        return x
    inner = s.operands_if(x, Convert)
    if inner is None or not is_detour(inner[0].type.dtype, x.type.dtype, op.dtype):
        return None
    return Application(op, inner)


def is_detour(first: DType, over: DType, last: DType) -> bool:
    """Whether converting over a type is converting straight, to the bit."""
    if not _holds(over, first):
        return False
    if over.is_float and last.is_integer:
        # What does not fit the last type is the nearest that fits if it is a float, and wraps around if it is not.
        return first.is_float or _holds(last, first)
    if last.is_float and not first.is_float:
        # The host rounds integers to narrow floats in two steps.
        return last in (F32, F64)
    return True


_WIDER = {F16: (F32, F64), BF16: (F32, F64), F32: (F64,), C64: (C128,)}
_EXACT_BITS = {BF16: 8, F16: 11, F32: 24, F64: 53}


def _holds(dtype: DType, other: DType) -> bool:
    """Whether every value of `other` is one of `dtype`."""
    if dtype is other or other.is_bool:
        return True
    if other.is_integer and dtype.is_float:
        return other.bits - (other.kind is Kind.INT) <= _EXACT_BITS.get(dtype, 0)
    if other.is_integer and dtype.is_integer:
        sign_bits = (dtype.kind is Kind.INT) - (other.kind is Kind.INT)
        return sign_bits >= 0 and dtype.bits - sign_bits >= other.bits
    return dtype in _WIDER.get(other, ())
