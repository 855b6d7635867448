"""Powers of integers and by integers, and clamps of truth values."""

from __future__ import annotations

from collections.abc import Sequence

from rematc.ir.builder import Builder
from rematc.ir.ops.arithmetic import Clamp, IntegerPower, Power
from rematc.ir.ops.logical import And, Or, ShiftRightLogical
from rematc.ir.ops.while_.op import While
from rematc.ir.types import BOOL, Kind, TensorType
from rematc.ir.values import Value
from rematc.passes.legalize.rules import expands

#: How many bits of an integer exponent XLA reads: to it x^64 is 1.
_EXPONENT_BITS = 6


@expands(IntegerPower)
def integer_power(b: Builder, op: IntegerPower, x: Value) -> Sequence[Value]:
    """Squares of x and the product of those that the exponent's bits choose; its reciprocal for a negative exponent."""
    square, rest = x, abs(op.exponent)
    product: Value | None = None
    while rest:
        if rest & 1:
            product = square if product is None else b.multiply(product, square)
        rest >>= 1
        if rest:
            square = b.multiply(square, square)
    if product is None:
        return [b.full(x.type, 1)]
    return [b.divide(b.full(x.type, 1), product) if op.exponent < 0 else product]


@expands(Power)
def power(b: Builder, op: Power, x: Value, y: Value) -> Sequence[Value] | None:
    """Of integers, where exponents may have more bits than XLA reads: by squaring, as long as any has bits left.

    Below 0 it is what is left of 1 / x: 1, -1 or 0.
    """
    type = x.type
    if not type.dtype.is_integer or type.dtype.bits <= _EXPONENT_BITS:
        return None
    zeros, ones = b.zeros(type), b.full(type, 1)
    loop = _squaring(type)
    if type.dtype.kind is Kind.UINT:
        return b.emit(loop, ones, x, y)[:1]
    # By its bit: of a square XLA believes that it is not below 0, whether it overflows or not.
    sign = b.emit1(ShiftRightLogical(), y, b.full(type, type.dtype.bits - 1))
    is_negative = b.compare(sign, zeros, "NE")
    product = b.emit(loop, ones, x, b.select(is_negative, zeros, y))[0]
    is_unit = b.compare(b.abs(x), ones, "EQ")
    parity = b.compare(b.emit1(And(), y, ones), zeros, "NE")
    reciprocal = b.select(is_unit, b.select(parity, x, ones), zeros)
    return [b.select(is_negative, reciprocal, product)]


def _squaring(type: TensorType) -> While:
    """Carries the product so far, the square, and what is left of the exponent."""
    cond = Builder("has_bits")
    _, _, rest = [cond.parameter(type) for _ in range(3)]
    has_bits = cond.build(cond.reduce_or(cond.compare(rest, cond.zeros(type), "NE"), range(type.rank)))
    step = Builder("squared")
    product, square, rest = [step.parameter(type) for _ in range(3)]
    one = step.full(type, 1)
    is_odd = step.compare(step.emit1(And(), rest, one), step.zeros(type), "NE")
    squared = step.build(
        step.select(is_odd, step.multiply(product, square), product),
        step.multiply(square, square),
        step.emit1(ShiftRightLogical(), rest, one),
    )
    return While(has_bits, squared)


@expands(Clamp)
def clamp(b: Builder, op: Clamp, low: Value, x: Value, high: Value) -> Sequence[Value] | None:
    """Of truth values, which XLA compiles in some places alone: the lesser of `high` and the greater of x and `low`."""
    if x.type.dtype is not BOOL:
        return None
    least, most = [b.broadcast_in_dim(bound, x.type.shape, ()) for bound in (low, high)]
    return [b.emit1(And(), b.emit1(Or(), x, least), most)]
