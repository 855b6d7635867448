"""The meaning of each elementwise ufunc: a rule over values of one dtype and shape.

The operands come converted to the dtype of the ufunc's loop and broadcast; the caller converts the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from rematc.ir.builder import Builder
from rematc.ir.core import Op, Value
from rematc.ir.errors import CompileError
from rematc.ir.ops import arithmetic, inverse, logical, rounding, special, structural, transcendental
from rematc.ir.types import BOOL, Kind

Rule = Callable[..., Value]


def _op(op: Op) -> Rule:
    def apply(b: Builder, *operands: Value) -> Value:
        return b.emit1(op, *operands)

    return apply


def _comparison(direction: str) -> Rule:
    def apply(b: Builder, x: Value, y: Value) -> Value:
        return b.compare(x, y, direction)

    return apply


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


def _is_nan(b: Builder, x: Value) -> Value:
    return b.compare(x, x, "NE")


def _is_inf(b: Builder, x: Value) -> Value:
    if not x.type.dtype.is_inexact:
        return b.full(x.type.with_dtype(BOOL), False)
    return b.compare(b.abs(x), b.full(x.type, math.inf), "EQ")


def _is_finite(b: Builder, x: Value) -> Value:
    if not x.type.dtype.is_inexact:
        return b.full(x.type.with_dtype(BOOL), True)
    return b.emit1(rounding.IsFinite(), x)


def absolute(b: Builder, x: Value) -> Value:
    """|x|."""
    return x if x.type.dtype.kind in {Kind.UINT, Kind.BOOL} else b.abs(x)


def _sign(b: Builder, x: Value) -> Value:
    if x.type.dtype.kind is Kind.UINT:
        return b.convert(truth(b, x), x.type.dtype)
    return b.sign(x)


def _sign_bit(b: Builder, x: Value) -> Value:
    zero = b.zeros(x.type)
    # The reciprocal tells -0.0 from 0.0.
    return b.select(b.compare(x, zero, "EQ"), b.compare(reciprocal(b, x), zero, "LT"), b.compare(x, zero, "LT"))


def _copy_sign(b: Builder, x: Value, y: Value) -> Value:
    return b.select(b.compare(_sign_bit(b, x), _sign_bit(b, y), "NE"), b.negate(x), x)


def _rounding(op: Op) -> Rule:
    def apply(b: Builder, x: Value) -> Value:
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
    return result if x.type.dtype.is_float else _zero_where_divisor_is(b, y, result)


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
        return b.select(b.compare(y, b.zeros(y.type), "EQ"), b.divide(x, y), down)
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
        return b.select(_is_nan(b, x), y, b.select(_is_nan(b, y), x, choose(b, x, y)))

    return apply


def log_add_exp(b: Builder, x: Value, y: Value) -> Value:
    """log(e^x + e^y) as max(x, y) + log(1 + e^-|x - y|)."""
    difference = b.subtract(x, y)
    tail = b.emit1(transcendental.LogPlusOne(), b.exponential(b.negate(b.abs(difference))))
    # Two equal infinities have a NaN for difference: their sum is the answer.
    return b.select(_is_nan(b, difference), b.add(x, y), b.add(b.maximum(x, y), tail))


def _log_add_exp2(b: Builder, x: Value, y: Value) -> Value:
    natural = log_add_exp(b, b.scale(x, math.log(2)), b.scale(y, math.log(2)))
    return b.scale(natural, 1 / math.log(2))


def _hypot(b: Builder, x: Value, y: Value) -> Value:
    largest = b.maximum(b.abs(x), b.abs(y))
    is_plain = b.logical_and(truth(b, largest), _is_finite(b, largest))
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
    return b.select(_is_nan(b, x), x, settled)


def _logit(b: Builder, x: Value) -> Value:
    return b.subtract(b.log(x), b.emit1(transcendental.LogPlusOne(), b.negate(x)))


def _log_expit(b: Builder, x: Value) -> Value:
    return b.negate(log_add_exp(b, b.zeros(x.type), b.negate(x)))


def _x_log(logarithm: Rule) -> Rule:
    """Of `xlogy` and `xlog1py`: x log(y), and 0 where x is 0 unless y is NaN."""

    def apply(b: Builder, x: Value, y: Value) -> Value:
        one = b.full(x.type, 1)
        is_zero = b.logical_and(b.compare(x, b.zeros(x.type), "EQ"), b.logical_not(_is_nan(b, y)))
        # The unused branch gets a harmless operand, so that its derivative is finite.
        return b.select(is_zero, b.zeros(x.type), b.multiply(x, logarithm(b, b.select(is_zero, one, y))))

    return apply


def _entropy(b: Builder, x: Value) -> Value:
    zero = b.zeros(x.type)
    is_positive = b.compare(x, zero, "GT")
    term = b.negate(b.multiply(x, b.log(b.select(is_positive, x, b.full(x.type, 1)))))
    outside = b.select(b.compare(x, zero, "LT"), b.full(x.type, -math.inf), x)
    return b.select(is_positive, term, outside)


def _normal_cdf(b: Builder, x: Value) -> Value:
    return b.scale(b.emit1(special.Erfc(), b.scale(x, -math.sqrt(0.5))), 0.5)


def _shift_right(b: Builder, x: Value, y: Value) -> Value:
    is_signed = x.type.dtype.kind is Kind.INT
    return b.emit1(logical.ShiftRightArithmetic() if is_signed else logical.ShiftRightLogical(), x, y)


def _bit_count(b: Builder, x: Value) -> Value:
    # Of a negative integer, NumPy counts the bits of its magnitude.
    return b.emit1(logical.Popcnt(), absolute(b, x))


def _conjugate(b: Builder, x: Value) -> Value:
    if x.type.dtype.is_complex:
        raise CompileError(
            "np.conjugate of complex arrays is not supported; keep real and imaginary parts apart", b.loc
        )
    return x


#: By the ufunc's `__name__`.
RULES: dict[str, Rule] = {
    "add": _op(arithmetic.Add()),
    "subtract": _op(arithmetic.Subtract()),
    "multiply": _op(arithmetic.Multiply()),
    "divide": _op(arithmetic.Divide()),
    "floor_divide": floor_divide,
    "remainder": remainder,
    "fmod": fmod,
    "power": _op(arithmetic.Power()),
    "float_power": _op(arithmetic.Power()),
    "maximum": _op(arithmetic.Maximum()),
    "minimum": _op(arithmetic.Minimum()),
    "fmax": _first_unless_nan(_op(arithmetic.Maximum())),
    "fmin": _first_unless_nan(_op(arithmetic.Minimum())),
    "negative": _op(arithmetic.Negate()),
    "positive": _identity,
    "conjugate": _conjugate,
    "absolute": absolute,
    "fabs": absolute,
    "sign": _sign,
    "signbit": _sign_bit,
    "copysign": _copy_sign,
    "square": _square,
    "reciprocal": reciprocal,
    "sqrt": _op(transcendental.Sqrt()),
    "cbrt": _op(transcendental.Cbrt()),
    "exp": _op(transcendental.Exponential()),
    "exp2": _exp2,
    "expm1": _op(transcendental.ExponentialMinusOne()),
    "log": _op(transcendental.Log()),
    "log2": _of_log(math.log(2)),
    "log10": _of_log(math.log(10)),
    "log1p": _op(transcendental.LogPlusOne()),
    "logaddexp": log_add_exp,
    "logaddexp2": _log_add_exp2,
    "hypot": _hypot,
    "heaviside": _heaviside,
    "sin": _op(transcendental.Sine()),
    "cos": _op(transcendental.Cosine()),
    "tan": _op(transcendental.Tan()),
    "tanh": _op(transcendental.Tanh()),
    "arcsin": _op(inverse.Asin()),
    "arccos": _op(inverse.Acos()),
    "arctan": _op(inverse.Atan()),
    "arctan2": _op(inverse.Atan2()),
    "sinh": _op(inverse.Sinh()),
    "cosh": _op(inverse.Cosh()),
    "arcsinh": _op(inverse.Asinh()),
    "arccosh": _op(inverse.Acosh()),
    "arctanh": _op(inverse.Atanh()),
    "deg2rad": _scaled(math.pi / 180),
    "radians": _scaled(math.pi / 180),
    "rad2deg": _scaled(180 / math.pi),
    "degrees": _scaled(180 / math.pi),
    "rint": _rounding(rounding.RoundNearestEven()),
    "floor": _rounding(rounding.Floor()),
    "ceil": _rounding(rounding.Ceil()),
    "trunc": truncate,
    "nextafter": _op(rounding.NextAfter()),
    "isnan": _is_nan,
    "isinf": _is_inf,
    "isfinite": _is_finite,
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
    "bitwise_and": _op(logical.And()),
    "bitwise_or": _op(logical.Or()),
    "bitwise_xor": _op(logical.Xor()),
    "invert": _op(logical.Not()),
    "left_shift": _op(logical.ShiftLeft()),
    "right_shift": _shift_right,
    "bitwise_count": _bit_count,
    # scipy.special
    "erf": _op(special.Erf()),
    "erfc": _op(special.Erfc()),
    "erfinv": _op(special.ErfInv()),
    "gammaln": _op(special.Lgamma()),
    "digamma": _op(special.Digamma()),
    "psi": _op(special.Digamma()),
    "expit": _op(transcendental.Logistic()),
    "logit": _logit,
    "log_expit": _log_expit,
    "xlogy": _x_log(_op(transcendental.Log())),
    "xlog1py": _x_log(_op(transcendental.LogPlusOne())),
    "entr": _entropy,
    "ndtr": _normal_cdf,
}
