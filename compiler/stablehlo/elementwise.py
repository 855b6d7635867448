"""Import of elementwise operations, conversions and constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rematc.compiler.stablehlo.block import Block, attributes, imports
from rematc.compiler.stablehlo.literals import array_of, elements
from rematc.ir.core import OPS, Array, Op, Value
from rematc.ir.ops.arithmetic import Divide
from rematc.ir.ops.conversion import BitcastConvert, Convert, ReducePrecision
from rematc.ir.ops.logical import Compare, Select, ShiftRightArithmetic, ShiftRightLogical, Xor
from rematc.ir.ops.rounding import Remainder
from rematc.ir.ops.structural import Iota, StopGradient
from rematc.ir.types import DTYPES, Kind, TensorType

#: Operations whose op has their name, and no parameters.
_SAME = (
    *("abs", "add", "and", "atan2", "cbrt", "ceil", "clamp", "complex", "cosine", "count_leading_zeros", "divide"),
    *("exponential", "exponential_minus_one", "floor", "imag", "is_finite", "log", "log_plus_one", "logistic"),
    *("maximum", "minimum", "multiply", "negate", "not", "or", "popcnt", "power", "real", "remainder"),
    *("round_nearest_afz", "round_nearest_even", "rsqrt", "shift_left", "shift_right_arithmetic"),
    *("shift_right_logical", "sign", "sine", "sqrt", "subtract", "tan", "tanh", "xor"),
)


@imports(*[f"stablehlo.{name}" for name in _SAME])
def same(block: Block, operation: Any) -> Sequence[Value]:
    """The op of the operation's name. `real` and `abs` of reals are allowed by StableHLO, and identities or ours."""
    name = operation.name.partition(".")[2]
    operands = block.operands(operation)
    if name == "real" and not operands[0].type.dtype.is_complex:
        return operands
    if name == "imag" and not operands[0].type.dtype.is_complex:
        return [block.b.zeros(operands[0].type)]
    return block.b.emit(OPS[name](), *operands)


@imports("stablehlo.select")
def select(block: Block, operation: Any) -> Sequence[Value]:
    """`select`; but a quotient of integers that is guarded against 0, as ours are, is the quotient."""
    operands = block.operands(operation)
    return [_guarded(block, *operands)] if _is_guard(block, *operands) else block.b.emit(Select(), *operands)


def _is_guard(block: Block, predicate: Value, outside: Value, inside: Value) -> bool:
    """Whether this is `y == 0 ? -1 : x / (y == 0 ? 1 : y)`, or the like of a remainder, which is x there."""
    divide, remainder = block.defined_by(inside, Divide), block.defined_by(inside, Remainder)
    eqn = divide or remainder
    compared = block.defined_by(predicate, Compare)
    safe = block.defined_by(eqn.operands[1], Select) if eqn is not None else None
    if eqn is None or compared is None or safe is None or not inside.type.dtype.is_integer:
        return False
    y, zero = compared.operands
    highest = -1 if inside.type.dtype.kind is Kind.INT else 2**inside.type.dtype.bits - 1
    is_expected = block.filled_with(outside, highest) if divide else outside is eqn.operands[0]
    return (
        compared.op == Compare("EQ")
        and block.filled_with(zero, 0)
        and safe.operands[0] is predicate
        and block.filled_with(safe.operands[1], 1)
        and safe.operands[2] is y
        and is_expected
    )


def _guarded(block: Block, predicate: Value, outside: Value, inside: Value) -> Value:
    eqn = block.defined_by(inside, Op)
    compared = block.defined_by(predicate, Compare)
    assert eqn is not None and compared is not None, "as `_is_guard` found"
    return block.b.emit1(eqn.op, eqn.operands[0], compared.operands[0])


@imports("stablehlo.constant", "chlo.constant")
def constant(block: Block, operation: Any) -> Sequence[Value]:
    """`constant`, whatever the element type."""
    return [block.literal(constant_array(block, operation))]


def constant_array(block: Block, operation: Any) -> Array:
    """The array of a constant operation."""
    (type,) = block.result_types(operation)
    array = None
    if type.dtype.numpy.kind in "biuf" and type.dtype.bits >= 8:
        array = elements(_attribute(operation, "value"))
    if array is None or array.dtype != type.dtype.numpy:
        printed = operation.operation.get_asm()
        spelled = printed[printed.index("dense") :]
        array = array_of(spelled, type, block.module.blob, block.location(operation))
    return array.reshape(type.shape)


def _attribute(operation: Any, name: str) -> Any:
    """An attribute, or None where the bindings have no class for it."""
    try:
        return operation.attributes[name]
    except TypeError:
        return None


@imports("stablehlo.iota")
def iota(block: Block, operation: Any) -> Sequence[Value]:
    (type,) = block.result_types(operation)
    return block.b.emit(Iota(type, attributes(operation).integer("iota_dimension")))


@imports("stablehlo.convert")
def convert(block: Block, operation: Any) -> Sequence[Value]:
    (type,) = block.result_types(operation)
    (x,) = block.operands(operation)
    return [x] if x.type == type else block.b.emit(Convert(type.dtype), x)


@imports("stablehlo.bitcast_convert")
def bitcast_convert(block: Block, operation: Any) -> Sequence[Value]:
    (type,) = block.result_types(operation)
    (x,) = block.operands(operation)
    return [x] if x.type == type else block.b.emit(BitcastConvert(type.dtype), x)


@imports("stablehlo.reduce_precision")
def reduce_precision(block: Block, operation: Any) -> Sequence[Value]:
    found = attributes(operation)
    op = ReducePrecision(found.integer("exponent_bits"), found.integer("mantissa_bits"))
    return block.b.emit(op, *block.operands(operation))


@imports("stablehlo.compare")
def compare(block: Block, operation: Any) -> Sequence[Value]:
    """`compare`; floats in their total order are compared as integers of the same order."""
    found = attributes(operation)
    x, y = block.operands(operation)
    direction = found.choice("comparison_direction")
    if found.choice("compare_type") == "TOTALORDER" and x.type.dtype.is_float:
        x, y = total_order_key(block, x), total_order_key(block, y)
    return block.b.emit(Compare(direction), x, y)


def total_order_key(block: Block, x: Value) -> Value:
    """Integers that compare as the floats do in IEEE 754's totalOrder: -NaN, -inf, ..., -0, 0, ..., inf, NaN.

    A float's bits read as a signed integer are in order where the sign is clear; else all others are turned around.
    """
    b, bits = block.b, x.type.dtype.bits
    integers = TensorType(DTYPES[f"i{bits}"], x.type.shape)
    raw = b.emit1(BitcastConvert(integers.dtype), b.emit1(StopGradient(), x))
    last = b.full(integers, bits - 1)
    mask = b.emit1(ShiftRightLogical(), b.emit1(ShiftRightArithmetic(), raw, last), b.full(integers, 1))
    return b.emit1(Xor(), raw, mask)


@imports("stablehlo.get_dimension_size")
def get_dimension_size(block: Block, operation: Any) -> Sequence[Value]:
    """A constant: all shapes are static."""
    (x,) = block.operands(operation)
    size = x.type.shape[attributes(operation).integer("dimension")]
    return [block.literal(np.asarray(size, np.int32))]
