"""The meaning of scipy.special's ufuncs: rules as in `elementwise`, composed of the IR's special functions."""

from __future__ import annotations

import math
from collections.abc import Callable

from rematc.compiler.frontends.numpy.elementwise import (
    Rule,
    is_nan,
    log_add_exp,
    op_rule,
    reciprocal,
    remainder,
    sign_bit,
    stopped,
    truncate,
)
from rematc.ir.builder import Builder
from rematc.ir.core import Op
from rematc.ir.ops import bessel, incomplete, rounding, special, transcendental
from rematc.ir.values import Value


def _logit(b: Builder, x: Value) -> Value:
    return b.subtract(b.log(x), b.emit1(transcendental.LogPlusOne(), b.negate(x)))


def _log_expit(b: Builder, x: Value) -> Value:
    return b.negate(log_add_exp(b, b.zeros(x.type), b.negate(x)))


def _x_log(logarithm: Rule) -> Rule:
    """Of `xlogy` and `xlog1py`: x log(y), and 0 where x is 0 unless y is NaN."""

    def apply(b: Builder, x: Value, y: Value) -> Value:
        one = b.full(x.type, 1)
        is_zero = b.logical_and(b.compare(x, b.zeros(x.type), "EQ"), b.logical_not(is_nan(b, y)))
        # The unused branch gets a harmless operand, so that its derivative is finite.
        return b.select(is_zero, b.zeros(x.type), b.multiply(x, logarithm(b, b.select(is_zero, one, y))))

    return apply


def _entropy(b: Builder, x: Value) -> Value:
    zero = b.zeros(x.type)
    is_positive = b.compare(x, zero, "GT")
    term = b.negate(b.multiply(x, b.log(b.select(is_positive, x, b.full(x.type, 1)))))
    outside = b.select(b.compare(x, zero, "LT"), b.full(x.type, -math.inf), x)
    return b.select(is_positive, term, outside)


def _gamma_sign(b: Builder, x: Value) -> Value:
    """The sign of gamma(x): between the poles at 0, -1, -2, ... it alternates."""
    one = b.full(x.type, 1)
    zero, floor = b.zeros(x.type), b.emit1(rounding.Floor(), stopped(b, x))
    is_odd = b.compare(remainder(b, floor, b.full(x.type, 2)), one, "EQ")
    is_below = b.logical_and(b.compare(x, zero, "LT"), is_odd)
    is_negative_zero = b.logical_and(b.compare(x, zero, "EQ"), sign_bit(b, x))
    sign = b.select(b.logical_or(is_below, is_negative_zero), b.full(x.type, -1), one)
    at_pole = b.logical_and(b.compare(x, zero, "LT"), b.compare(floor, x, "EQ"))
    return b.select(b.logical_or(at_pole, is_nan(b, x)), b.full(x.type, math.nan), sign)


def _gamma(b: Builder, x: Value) -> Value:
    return b.multiply(_gamma_sign(b, x), b.exponential(b.emit1(special.Lgamma(), x)))


def _reciprocal_gamma(b: Builder, x: Value) -> Value:
    # It is entire: 0 where gamma has its poles.
    floor = b.emit1(rounding.Floor(), stopped(b, x))
    at_pole = b.logical_and(b.compare(x, b.zeros(x.type), "LE"), b.compare(floor, x, "EQ"))
    inside = b.select(at_pole, b.full(x.type, 1), x)
    value = b.multiply(_gamma_sign(b, inside), b.exponential(b.negate(b.emit1(special.Lgamma(), inside))))
    return b.select(at_pole, b.zeros(x.type), value)


def _log_beta(b: Builder, x: Value, y: Value) -> Value:
    """log gamma(x) + log gamma(y) - log gamma(x + y).

    Where one operand is so large beside the other that the last two are one number, log gamma(s) - s log(l) of the
    small one s and the large one l: minus infinity at infinity, NaN where both are infinite.
    """
    one, zero, log_gamma = b.full(x.type, 1), b.zeros(x.type), special.Lgamma()
    small, large = b.minimum(x, y), b.maximum(x, y)
    epsilon = 2.0 ** -{16: 11, 32: 24}.get(x.type.dtype.bits, 53)
    is_below = b.compare(b.multiply(small, b.maximum(small, one)), b.scale(large, epsilon), "LE")
    is_far = b.logical_and(b.compare(small, zero, "GT"), is_below)
    # Each branch gets operands from its own side, so that the derivative of the other one is finite.
    least, most = b.select(is_far, small, one), b.select(is_far, large, one)
    x, y = b.select(is_far, one, x), b.select(is_far, one, y)
    far = b.subtract(b.emit1(log_gamma, least), b.multiply(least, b.log(most)))
    parts = b.add(b.emit1(log_gamma, x), b.emit1(log_gamma, y))
    # At a pole the sum's own may be infinite too.
    infinity = b.full(x.type, math.inf)
    near = b.select(b.compare(parts, infinity, "EQ"), infinity, b.subtract(parts, b.emit1(log_gamma, b.add(x, y))))
    return b.select(is_far, far, near)


def _beta(b: Builder, x: Value, y: Value) -> Value:
    """gamma(x) gamma(y) / gamma(x + y), for operands that are no negative integers."""
    sign = b.multiply(b.multiply(_gamma_sign(b, x), _gamma_sign(b, y)), _gamma_sign(b, b.add(x, y)))
    return b.multiply(sign, b.exponential(_log_beta(b, x, y)))


def _normal_quantile(b: Builder, x: Value) -> Value:
    return b.scale(b.emit1(special.ErfcInv(), b.scale(x, 2)), -math.sqrt(2))


def _log_normal_cdf(b: Builder, x: Value) -> Value:
    """log of the normal distribution function; far out, where that underflows, by its asymptotic series.

    Phi(x) = e^(-x^2/2) / (-x sqrt(2 pi)) (1 - 1/x^2 + 3/x^4 - 15/x^6 + ...) for x to minus infinity.
    """
    limit = {16: -4.0, 32: -8.0}.get(x.type.dtype.bits, -20.0)
    edge = b.full(x.type, limit)
    is_far = b.compare(x, edge, "LT")
    # Each branch gets an operand from its own side, so that the derivative of the other one is finite.
    near, far = b.select(is_far, edge, x), b.select(is_far, x, edge)
    inverse_square = reciprocal(b, b.multiply(far, far))
    series = b.full(x.type, 1)
    for factor in (11, 9, 7, 5, 3, 1):
        series = b.subtract(b.full(x.type, 1), b.multiply(b.scale(inverse_square, factor), series))
    head = b.subtract(b.scale(b.multiply(far, far), -0.5), b.log(b.negate(far)))
    tail = b.subtract(b.add(head, b.log(series)), b.full(x.type, math.log(2 * math.pi) / 2))
    # Above zero the complement is small and log(1 - it) keeps its digits.
    above = b.compare(near, b.zeros(x.type), "GT")
    upper = b.emit1(transcendental.LogPlusOne(), b.negate(_normal_cdf(b, b.negate(b.abs(near)))))
    lower = b.log(_normal_cdf(b, b.negate(b.abs(near))))
    return b.select(is_far, tail, b.select(above, upper, lower))


def _normal_cdf(b: Builder, x: Value) -> Value:
    return b.scale(b.emit1(special.Erfc(), b.scale(x, -math.sqrt(0.5))), 0.5)


def _by_kind(of_real: Op, of_complex: Op) -> Rule:
    """A function that is one op of real numbers, another of complex ones."""

    def apply(b: Builder, x: Value) -> Value:
        return b.emit1(of_complex if x.type.dtype.is_complex else of_real, x)

    return apply


def _incomplete_gamma_of(op: Op, operands: Callable[..., tuple[Value, Value]]) -> Rule:
    """A distribution function: an incomplete gamma function of what `operands` makes of the arguments.

    NaN where an argument is negative, as SciPy's.
    """

    def apply(b: Builder, *arguments: Value) -> Value:
        found = b.emit1(op, *operands(b, *arguments))
        for argument in arguments:
            is_negative = b.compare(argument, b.zeros(argument.type), "LT")
            found = b.select(is_negative, b.full(found.type, math.nan), found)
        return found

    return apply


def _of_chi_square(b: Builder, freedom: Value, x: Value) -> tuple[Value, Value]:
    return b.scale(freedom, 0.5), b.scale(x, 0.5)


def _of_poisson(b: Builder, count: Value, mean: Value) -> tuple[Value, Value]:
    return b.add(b.emit1(rounding.Floor(), stopped(b, count)), b.full(count.type, 1)), mean


def _of_gamma(b: Builder, rate: Value, shape: Value, x: Value) -> tuple[Value, Value]:
    return shape, b.multiply(rate, x)


def _bessel(op: Op) -> Rule:
    """Of (order, x): the order, which may be a whole number, as a number of x's type."""

    def apply(b: Builder, order: Value, x: Value) -> Value:
        return b.emit1(op, b.convert(order, x.type.dtype), x)

    return apply


def _bessel_of_whole_order(op: Op) -> Rule:
    """Of (order, x), where SciPy cuts the order down to a whole number."""

    def apply(b: Builder, order: Value, x: Value) -> Value:
        whole = truncate(b, stopped(b, order))
        return b.emit1(op, b.convert(whole, x.type.dtype), x)

    return apply


def _bessel_of_order(order: int, op: Op) -> Rule:
    def apply(b: Builder, x: Value) -> Value:
        return b.emit1(op, b.full(x.type, order), x)

    return apply


def _incomplete_beta_complement(b: Builder, one: Value, other: Value, x: Value) -> Value:
    return b.emit1(incomplete.IncompleteBeta(), other, one, b.subtract(b.full(x.type, 1), x))


#: By the ufunc's `__name__`.
SPECIAL_RULES: dict[str, Rule] = {
    "erf": _by_kind(special.Erf(), special.ComplexErf()),
    "erfc": _by_kind(special.Erfc(), special.ComplexErfc()),
    "erfinv": op_rule(special.ErfInv()),
    "gammaln": op_rule(special.Lgamma()),
    "digamma": op_rule(special.Digamma()),
    "psi": op_rule(special.Digamma()),
    "expit": op_rule(transcendental.Logistic()),
    "logit": _logit,
    "log_expit": _log_expit,
    "xlogy": _x_log(op_rule(transcendental.Log())),
    "xlog1py": _x_log(op_rule(transcendental.LogPlusOne())),
    "entr": _entropy,
    "ndtr": _normal_cdf,
    "ndtri": _normal_quantile,
    "log_ndtr": _log_normal_cdf,
    "gamma": _gamma,
    "rgamma": _reciprocal_gamma,
    "gammasgn": _gamma_sign,
    "beta": _beta,
    "betaln": _log_beta,
    "erfcinv": op_rule(special.ErfcInv()),
    "gammainc": op_rule(incomplete.IncompleteGamma()),
    "gammaincc": op_rule(incomplete.IncompleteGammaComplement()),
    "chdtr": _incomplete_gamma_of(incomplete.IncompleteGamma(), _of_chi_square),
    "chdtrc": _incomplete_gamma_of(incomplete.IncompleteGammaComplement(), _of_chi_square),
    "gdtr": _incomplete_gamma_of(incomplete.IncompleteGamma(), _of_gamma),
    "gdtrc": _incomplete_gamma_of(incomplete.IncompleteGammaComplement(), _of_gamma),
    "pdtr": _incomplete_gamma_of(incomplete.IncompleteGammaComplement(), _of_poisson),
    "pdtrc": _incomplete_gamma_of(incomplete.IncompleteGamma(), _of_poisson),
    "jv": _bessel(bessel.BesselJ()),
    "j0": _bessel_of_order(0, bessel.BesselJ()),
    "j1": _bessel_of_order(1, bessel.BesselJ()),
    "yv": _bessel(bessel.BesselY()),
    "yn": _bessel_of_whole_order(bessel.BesselY()),
    "y0": _bessel_of_order(0, bessel.BesselY()),
    "y1": _bessel_of_order(1, bessel.BesselY()),
    "iv": _bessel(bessel.BesselI()),
    "i0": _bessel_of_order(0, bessel.BesselI()),
    "i1": _bessel_of_order(1, bessel.BesselI()),
    "ive": _bessel(bessel.BesselIe()),
    "i0e": _bessel_of_order(0, bessel.BesselIe()),
    "i1e": op_rule(bessel.BesselI1e()),
    "kv": _bessel(bessel.BesselK()),
    "kn": _bessel_of_whole_order(bessel.BesselK()),
    "k0": _bessel_of_order(0, bessel.BesselK()),
    "k1": _bessel_of_order(1, bessel.BesselK()),
    "kve": _bessel(bessel.BesselKe()),
    "k0e": _bessel_of_order(0, bessel.BesselKe()),
    "k1e": _bessel_of_order(1, bessel.BesselKe()),
    "_zeta": op_rule(special.Zeta()),
    "betainc": op_rule(incomplete.IncompleteBeta()),
    "betaincc": _incomplete_beta_complement,
}
