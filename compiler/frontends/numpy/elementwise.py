"""The meaning of each elementwise ufunc: a rule over values of one dtype and shape.

The operands come converted to the dtype of the ufunc's loop and broadcast; the caller converts the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from rematc.ir.builder import Builder
from rematc.ir.core import Op
from rematc.ir.ops import arithmetic, inverse, logical, rounding, structural, transcendental
from rematc.ir.ops.conversion import BitcastConvert
from rematc.ir.types import BOOL, Kind, dtype_named
from rematc.ir.values import Value

Rule = Callable[..., Value]


def op_rule(op: Op) -> Rule:
    """The rule that is one op."""

    def apply(b: Builder, *operands: Value) -> Value:
        return b.emit1(op, *operands)

    return apply


def _comparison(direction: str) -> Rule:
    def apply(b: Builder, x: Value, y: Value) -> Value:
        if x.type.dtype.is_complex and direction not in ("EQ", "NE"):
            return _in_lexicographic_order(b, x, y, direction)
        if x.type.dtype is not y.type.dtype:
            return _of_mixed_signs(b, x, y, direction)
        return b.compare(x, y, direction)

    return apply


def _of_mixed_signs(b: Builder, x: Value, y: Value, direction: str) -> Value:
    """A comparison of signed and unsigned integers: all that are negative are as -1 with 0."""
    (signed, other) = (x, y) if x.type.dtype.kind is Kind.INT else (y, x)
    is_negative = b.compare(signed, b.zeros(signed.type), "LT")
    zero, one = b.zeros(other.type), b.full(other.type, 1)
    without = b.select(is_negative, zero, b.convert(signed, other.type.dtype))
    against = b.select(is_negative, one, other)
    return b.compare(without, against, direction) if signed is x else b.compare(against, without, direction)


def _in_lexicographic_order(b: Builder, x: Value, y: Value, direction: str) -> Value:
    """Complex numbers compared by their real parts, and by the imaginary ones where these are equal."""
    (x_real, x_imag), (y_real, y_imag) = [(b.real(value), b.imag(value)) for value in (x, y)]
    # As NumPy has it, an imaginary part that is NaN has no order, whatever the real parts are.
    numbers = b.logical_not(b.logical_or(is_nan(b, x_imag), is_nan(b, y_imag)))
    by_real = b.logical_and(b.compare(x_real, y_real, f"{direction[0]}T"), numbers)
    by_imag = b.logical_and(b.compare(x_real, y_real, "EQ"), b.compare(x_imag, y_imag, direction))
    return b.logical_or(by_real, by_imag)


def _extremum(op: Op, direction: str) -> Rule:
    """Of `maximum` and `minimum`: the op, or for complex numbers the one that comes first in the order."""

    def apply(b: Builder, x: Value, y: Value) -> Value:
        if not x.type.dtype.is_complex:
            return b.emit1(op, x, y)
        is_first = b.logical_or(is_nan(b, x), _in_lexicographic_order(b, x, y, direction))
        return b.select(is_first, x, y)

    return apply


maximum = _extremum(arithmetic.Maximum(), "GE")
minimum = _extremum(arithmetic.Minimum(), "LE")


def _scaled(factor: float) -> Rule:
    def apply(b: Builder, x: Value) -> Value:
        return b.scale(x, factor)

    return apply


def _of_log(scale: float) -> Rule:
    def apply(b: Builder, x: Value) -> Value:
        return b.divide(b.log(x), b.full(x.type, scale))

    return apply


def truth(b: Builder, x: Value) -> Value:
    """Whether each element is not zero."""
    return x if x.type.dtype.is_bool else b.compare(x, b.zeros(x.type), "NE")


def _logical(op: Op) -> Rule:
    def apply(b: Builder, *operands: Value) -> Value:
        return b.emit1(op, *[truth(b, x) for x in operands])

    return apply


def stopped(b: Builder, x: Value) -> Value:
    """`x` without a tangent."""
    return b.emit1(structural.StopGradient(), x) if x.type.dtype.is_inexact else x


def _identity(b: Builder, x: Value) -> Value:
    return x


def _square(b: Builder, x: Value) -> Value:
    return b.multiply(x, x)


def reciprocal(b: Builder, x: Value) -> Value:
    """1 / x."""
    return b.divide(b.full(x.type, 1), x)


def _exp2(b: Builder, x: Value) -> Value:
    return b.power(b.full(x.type, 2), x)


def bits_of(b: Builder, x: Value) -> Value:
    """The bits of floats as signed integers of the same width."""
    return b.emit1(BitcastConvert(dtype_named(f"i{x.type.dtype.bits}")), stopped(b, x))


def _next_after(b: Builder, x: Value, y: Value) -> Value:
    """The neighbour of x, which moves as x does."""
    found = b.emit1(rounding.NextAfter(), stopped(b, x), stopped(b, y))
    # The difference is 0, with the derivative of x.
    moving = b.subtract(found, b.subtract(stopped(b, x), x))
    return b.select(is_finite(b, x), moving, found)


def is_nan(b: Builder, x: Value) -> Value:
    """Whether each element is NaN."""
    return b.compare(x, x, "NE")


def _is_inf(b: Builder, x: Value) -> Value:
    if not x.type.dtype.is_inexact:
        return b.full(x.type.with_dtype(BOOL), False)
    if x.type.dtype.is_complex:
        return b.logical_or(_is_inf(b, b.real(x)), _is_inf(b, b.imag(x)))
    return b.compare(b.abs(x), b.full(x.type, math.inf), "EQ")


def is_finite(b: Builder, x: Value) -> Value:
    """Whether each element is neither infinite nor NaN."""
    if not x.type.dtype.is_inexact:
        return b.full(x.type.with_dtype(BOOL), True)
    if x.type.dtype.is_complex:
        return b.logical_and(is_finite(b, b.real(x)), is_finite(b, b.imag(x)))
    return b.emit1(rounding.IsFinite(), x)


def absolute(b: Builder, x: Value) -> Value:
    """|x|."""
    return x if x.type.dtype.kind in {Kind.UINT, Kind.BOOL} else b.abs(x)


def _sign(b: Builder, x: Value) -> Value:
    if x.type.dtype.kind is Kind.UINT:
        return b.convert(truth(b, x), x.type.dtype)
    if not x.type.dtype.is_inexact:
        return b.sign(x)
    # Of zeros of any sign it is the zero without one.
    return b.select(truth(b, x), b.sign(x), b.zeros(x.type))


def sign_bit(b: Builder, x: Value) -> Value:
    """Whether each element has a minus sign: -0.0 and some NaNs too."""
    zero = b.zeros(x.type)
    if x.type.dtype.is_float and x.type.dtype.bits >= 8:
        x = bits_of(b, x)
    return b.compare(x, b.zeros(x.type), "LT") if x.type.dtype.kind is Kind.INT else b.compare(x, zero, "LT")


def copy_sign(b: Builder, x: Value, y: Value) -> Value:
    return b.select(b.compare(sign_bit(b, x), sign_bit(b, y), "NE"), b.negate(x), x)


def _rounding(op: Op) -> Rule:
    def apply(b: Builder, x: Value) -> Value:
        if x.type.dtype.is_complex:
            return b.from_parts(b.emit1(op, b.real(x)), b.emit1(op, b.imag(x)))
        return b.emit1(op, x) if x.type.dtype.is_float else x

    return apply


def truncate(b: Builder, x: Value) -> Value:
    """`x` rounded towards zero."""
    if not x.type.dtype.is_float:
        return x
    is_negative = b.compare(x, b.zeros(x.type), "LT")
    return b.select(is_negative, b.emit1(rounding.Ceil(), x), b.emit1(rounding.Floor(), x))


def fmod(b: Builder, x: Value, y: Value) -> Value:
    """The remainder with the sign of `x`; 0 for an integer zero divisor, as NumPy has it."""
    remainder = b.emit1(rounding.Remainder(), x, y)
    return remainder if x.type.dtype.is_float else _zero_where_divisor_is(b, y, remainder)


def remainder(b: Builder, x: Value, y: Value) -> Value:
    """The remainder with the sign of `y`, as Python's `%`."""
    towards_zero = b.emit1(rounding.Remainder(), x, y)
    if x.type.dtype.kind is Kind.UINT:
        return _zero_where_divisor_is(b, y, towards_zero)
    off = _has_other_sign(b, towards_zero, y)
    result = b.select(off, b.add(towards_zero, y), towards_zero)
    if not x.type.dtype.is_float:
        return _zero_where_divisor_is(b, y, result)
    # A zero has the sign of the divisor; the difference is 0, with the derivative of the result.
    zero = b.zeros(x.type)
    signed_zero = b.subtract(copy_sign(b, zero, stopped(b, y)), b.subtract(stopped(b, result), result))
    return b.select(b.compare(result, zero, "EQ"), signed_zero, result)


def floor_divide(b: Builder, x: Value, y: Value) -> Value:
    """The quotient rounded down, as Python's `//`; without a tangent."""
    x, y = stopped(b, x), stopped(b, y)
    if x.type.dtype.kind is Kind.UINT:
        return _zero_where_divisor_is(b, y, b.divide(x, y))
    left = b.emit1(rounding.Remainder(), x, y)
    off = _has_other_sign(b, left, y)
    if x.type.dtype.is_float:
        whole = b.emit1(rounding.RoundNearestEven(), b.divide(b.subtract(x, left), y))
        down = b.select(off, b.subtract(whole, b.full(x.type, 1)), whole)
        quotient, zero = b.divide(x, y), b.zeros(y.type)
        # A zero has the sign of the exact quotient.
        down = b.select(b.compare(down, zero, "EQ"), copy_sign(b, zero, quotient), down)
        return b.select(b.compare(y, zero, "EQ"), quotient, down)
    whole = b.divide(x, y)
    return _zero_where_divisor_is(b, y, b.select(off, b.subtract(whole, b.full(x.type, 1)), whole))


def _has_other_sign(b: Builder, remainder: Value, divisor: Value) -> Value:
    zero = b.zeros(divisor.type)
    differs = b.compare(b.compare(remainder, zero, "LT"), b.compare(divisor, zero, "LT"), "NE")
    return b.logical_and(b.compare(remainder, zero, "NE"), differs)


def _zero_where_divisor_is(b: Builder, divisor: Value, result: Value) -> Value:
    zero = b.zeros(divisor.type)
    return b.select(b.compare(divisor, zero, "EQ"), zero, result)


def _first_unless_nan(choose: Rule) -> Rule:
    """Of `fmax` and `fmin`: the other operand where one is NaN."""

    def apply(b: Builder, x: Value, y: Value) -> Value:
        if not x.type.dtype.is_inexact:
            return choose(b, x, y)
        return b.select(is_nan(b, x), y, b.select(is_nan(b, y), x, choose(b, x, y)))

    return apply


def log_add_exp(b: Builder, x: Value, y: Value) -> Value:
    """log(e^x + e^y) as the larger one plus log(1 + e^(smaller - larger)).

    Which one is larger is a choice without a tangent: each branch then has the right derivatives of all orders where
    x = y, which max(x, y) and |x - y| do not.
    """
    is_first = b.compare(x, y, "GE")
    larger, smaller = b.select(is_first, x, y), b.select(is_first, y, x)
    difference = b.subtract(smaller, larger)
    tail = b.emit1(transcendental.LogPlusOne(), b.exponential(difference))
    # Two equal infinities have a NaN for difference: their sum is the answer.
    return b.select(is_nan(b, difference), b.add(x, y), b.add(larger, tail))


def _log_add_exp2(b: Builder, x: Value, y: Value) -> Value:
    natural = log_add_exp(b, b.scale(x, math.log(2)), b.scale(y, math.log(2)))
    return b.scale(natural, 1 / math.log(2))


def _hypot(b: Builder, x: Value, y: Value) -> Value:
    largest = b.maximum(b.abs(x), b.abs(y))
    is_plain = b.logical_and(truth(b, largest), is_finite(b, largest))
    # A constant factor as far as derivatives go: it only keeps the squares in range.
    scale = stopped(b, b.select(is_plain, largest, b.full(x.type, 1)))
    u, v = b.divide(x, scale), b.divide(y, scale)
    length = b.multiply(scale, b.sqrt(b.add(b.multiply(u, u), b.multiply(v, v))))
    # Infinity wins over NaN.
    return b.select(b.logical_or(_is_inf(b, x), _is_inf(b, y)), b.full(x.type, math.inf), length)


def _heaviside(b: Builder, x: Value, at_zero: Value) -> Value:
    zero = b.zeros(x.type)
    step = b.select(b.compare(x, zero, "GT"), b.full(x.type, 1), zero)
    settled = b.select(b.compare(x, zero, "EQ"), at_zero, step)
    return b.select(is_nan(b, x), x, settled)


def _shift_right(b: Builder, x: Value, y: Value) -> Value:
    is_signed = x.type.dtype.kind is Kind.INT
    return b.emit1(logical.ShiftRightArithmetic() if is_signed else logical.ShiftRightLogical(), x, y)


def _bit_count(b: Builder, x: Value) -> Value:
    # Of a negative integer, NumPy counts the bits of its magnitude.
    return b.emit1(logical.Popcnt(), absolute(b, x))


def _conjugate(b: Builder, x: Value) -> Value:
    return b.conj(x) if x.type.dtype.is_complex else x


#: By the ufunc's `__name__`.
RULES: dict[str, Rule] = {
    "add": op_rule(arithmetic.Add()),
    "subtract": op_rule(arithmetic.Subtract()),
    "multiply": op_rule(arithmetic.Multiply()),
    "divide": op_rule(arithmetic.Divide()),
    "floor_divide": floor_divide,
    "remainder": remainder,
    "fmod": fmod,
    "power": op_rule(arithmetic.Power()),
    "float_power": op_rule(arithmetic.Power()),
    "maximum": maximum,
    "minimum": minimum,
    "fmax": _first_unless_nan(maximum),
    "fmin": _first_unless_nan(minimum),
    "negative": op_rule(arithmetic.Negate()),
    "positive": _identity,
    "conjugate": _conjugate,
    "absolute": absolute,
    "fabs": absolute,
    "sign": _sign,
    "signbit": sign_bit,
    "copysign": copy_sign,
    "square": _square,
    "reciprocal": reciprocal,
    "sqrt": op_rule(transcendental.Sqrt()),
    "cbrt": op_rule(transcendental.Cbrt()),
    "exp": op_rule(transcendental.Exponential()),
    "exp2": _exp2,
    "expm1": op_rule(transcendental.ExponentialMinusOne()),
    "log": op_rule(transcendental.Log()),
    "log2": _of_log(math.log(2)),
    "log10": _of_log(math.log(10)),
    "log1p": op_rule(transcendental.LogPlusOne()),
    "logaddexp": log_add_exp,
    "logaddexp2": _log_add_exp2,
    "hypot": _hypot,
    "heaviside": _heaviside,
    "sin": op_rule(transcendental.Sine()),
    "cos": op_rule(transcendental.Cosine()),
    "tan": op_rule(transcendental.Tan()),
    "tanh": op_rule(transcendental.Tanh()),
    "arcsin": op_rule(inverse.Asin()),
    "arccos": op_rule(inverse.Acos()),
    "arctan": op_rule(inverse.Atan()),
    "arctan2": op_rule(inverse.Atan2()),
    "sinh": op_rule(inverse.Sinh()),
    "cosh": op_rule(inverse.Cosh()),
    "arcsinh": op_rule(inverse.Asinh()),
    "arccosh": op_rule(inverse.Acosh()),
    "arctanh": op_rule(inverse.Atanh()),
    "deg2rad": _scaled(math.pi / 180),
    "radians": _scaled(math.pi / 180),
    "rad2deg": _scaled(180 / math.pi),
    "degrees": _scaled(180 / math.pi),
    "rint": _rounding(rounding.RoundNearestEven()),
    "floor": _rounding(rounding.Floor()),
    "ceil": _rounding(rounding.Ceil()),
    "trunc": truncate,
    "nextafter": _next_after,
    "isnan": is_nan,
    "isinf": _is_inf,
    "isfinite": is_finite,
    "equal": _comparison("EQ"),
    "not_equal": _comparison("NE"),
    "greater": _comparison("GT"),
    "greater_equal": _comparison("GE"),
    "less": _comparison("LT"),
    "less_equal": _comparison("LE"),
    "logical_and": _logical(logical.And()),
    "logical_or": _logical(logical.Or()),
    "logical_xor": _logical(logical.Xor()),
    "logical_not": _logical(logical.Not()),
    "bitwise_and": op_rule(logical.And()),
    "bitwise_or": op_rule(logical.Or()),
    "bitwise_xor": op_rule(logical.Xor()),
    "invert": op_rule(logical.Not()),
    "left_shift": op_rule(logical.ShiftLeft()),
    "right_shift": _shift_right,
    "bitwise_count": _bit_count,
}
