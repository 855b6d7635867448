"""Import of elementwise operations, conversions and constants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rematc.compiler.frontends.stablehlo.attributes import ACCURACY
from rematc.compiler.frontends.stablehlo.block import Block, attributes, imports
from rematc.compiler.frontends.stablehlo.literals import array_of, elements
from rematc.ir.builder import Builder
from rematc.ir.core import Op
from rematc.ir.ops.arithmetic import Divide
from rematc.ir.ops.conversion import BitcastConvert, Convert, ReducePrecision
from rematc.ir.ops.logical import And, Compare, Select, ShiftLeft, ShiftRightArithmetic, ShiftRightLogical, Xor
from rematc.ir.ops.rounding import Remainder
from rematc.ir.ops.structural import Iota, StopGradient
from rematc.ir.ops.transcendental import Exponential
from rematc.ir.registry import OPS
from rematc.ir.types import BOOL, DTYPES, Kind, TensorType
from rematc.ir.values import Array, Value

#: Operations whose op has their name, and no parameters.
_SAME = (
    *("abs", "add", "and", "atan2", "cbrt", "ceil", "clamp", "complex", "cosine", "count_leading_zeros", "divide"),
    *("exponential_minus_one", "floor", "imag", "is_finite", "log", "log_plus_one", "logistic"),
    *("maximum", "minimum", "multiply", "negate", "not", "or", "popcnt", "power", "real", "remainder"),
    *("round_nearest_afz", "round_nearest_even", "rsqrt", "shift_left", "shift_right_arithmetic"),
    *("shift_right_logical", "sign", "sine", "sqrt", "subtract", "tan", "tanh", "xor"),
)


@imports(*[f"stablehlo.{name}" for name in _SAME])
def same(block: Block, operation: Any) -> Sequence[Value]:
    """The op of the operation's name. `real` and `abs` of reals are allowed by StableHLO, and identities or ours."""
    name = operation.name.partition(".")[2]
    operands = block.operands(operation)
    if operands[0].type.dtype.is_complex and name in _OF_COMPLEX:
        return [_OF_COMPLEX[name](block.b, *operands)]
    if name == "real" and not operands[0].type.dtype.is_complex:
        return operands
    if name == "imag" and not operands[0].type.dtype.is_complex:
        return [block.b.zeros(operands[0].type)]
    return block.b.emit(OPS[name](), *operands)


@imports("stablehlo.exponential")
def exponential(block: Block, operation: Any) -> Sequence[Value]:
    """`exponential`, as accurate as can be where that is asked for."""
    accuracy = attributes(operation).raw(ACCURACY) if ACCURACY in attributes(operation) else ""
    return block.b.emit(Exponential("HIGHEST" in str(accuracy)), *block.operands(operation))


def _lexicographic(direction: str) -> Callable[..., Value]:
    """The greater or lesser of complex numbers, by their real parts first: a comparison that the IR does not have."""

    def chosen(b: Builder, x: Value, y: Value) -> Value:
        (x_real, x_imag), (y_real, y_imag) = [(b.real(z), b.imag(z)) for z in (x, y)]
        is_tie = b.logical_and(b.compare(x_real, y_real, "EQ"), b.compare(x_imag, y_imag, direction))
        return b.select(b.logical_or(b.compare(x_real, y_real, direction), is_tie), x, y)

    return chosen


def _cbrt(b: Builder, x: Value) -> Value:
    """exp(log(x) / 3), the principal root; 0 of 0."""
    zero = b.zeros(x.type)
    is_zero = b.compare(x, zero, "EQ")
    root = b.exponential(b.scale(b.log(b.select(is_zero, b.full(x.type, 1), x)), 1 / 3))
    return b.select(is_zero, zero, root)


def _atan2(b: Builder, y: Value, x: Value) -> Value:
    """-i log((x + i y) / sqrt(x² + y²))."""
    root = b.sqrt(b.add(b.multiply(x, x), b.multiply(y, y)))
    return b.scale(b.log(b.divide(b.add(x, b.scale(y, 1j)), root)), -1j)


#: Functions of complex numbers that are no ops of the IR.
_OF_COMPLEX: dict[str, Callable[..., Value]] = {
    "maximum": _lexicographic("GT"),
    "minimum": _lexicographic("LT"),
    "cbrt": _cbrt,
    "atan2": _atan2,
}


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
    if x.type == type:
        return [x]
    if type.dtype is BOOL:
        return [_to_bits(block, x)]
    if x.type.dtype is BOOL:
        return block.b.emit(BitcastConvert(type.dtype), _of_bits(block, x, type.dtype.bits))
    return block.b.emit(BitcastConvert(type.dtype), x)


def _to_bits(block: Block, x: Value) -> Value:
    """Each number's bits, the least significant first, along a new last dimension."""
    b, bits = block.b, x.type.dtype.bits
    raw = x.type.with_dtype(DTYPES[f"u{bits}"])
    spread = TensorType(raw.dtype, (*raw.shape, bits))
    repeated = b.broadcast_in_dim(b.emit1(BitcastConvert(raw.dtype), x), spread.shape, range(raw.rank))
    places = b.iota(spread, raw.rank)
    lowest = b.emit1(And(), b.emit1(ShiftRightLogical(), repeated, places), b.full(spread, 1))
    return b.convert(lowest, BOOL)


def _of_bits(block: Block, x: Value, bits: int) -> Value:
    """Numbers whose bits stand along the last dimension."""
    b = block.b
    wide = b.convert(x, DTYPES[f"u{bits}"])
    last = x.type.rank - 1
    return b.reduce_sum(b.emit1(ShiftLeft(), wide, b.iota(wide.type, last)), (last,))


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
        x, y = total_order_key(block.b, x), total_order_key(block.b, y)
    return block.b.emit(Compare(direction), x, y)


def total_order_key(b: Builder, x: Value) -> Value:
    """Integers that compare as the floats do in IEEE 754's totalOrder: -NaN, -inf, ..., -0, 0, ..., inf, NaN.

    A float's bits read as a signed integer are in order where the sign is clear; else all others are turned around.
    """
    bits = x.type.dtype.bits
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
