"""The regularized incomplete gamma functions: a series, a continued fraction, and Temme's expansion.

The formulas are those of the NIST Digital Library of Mathematical Functions (DLMF), chapters 5 and 8.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cache

from scipy import special as scipy_special

from rematc.ir.ops.incomplete import GammaDensity, IncompleteGamma, IncompleteGammaComplement, IncompleteGammaSlope
from rematc.passes.legalize.numbers import (
    Number,
    by_formula,
    erfc,
    exp,
    exp_minus_one,
    floor,
    log,
    log_gamma,
    maximum,
    minimum,
    polynomial,
    repeat,
    slope_of,
    sqrt,
    where,
)
from rematc.passes.legalize.rules import expands

#: Half a unit in the last place of 1.
EPSILON = 2.0**-53
#: A stand-in for 0 in continued fractions (the modified Lentz method).
TINY = 1e-300
MOST_STEPS = 2000
#: Temme's expansion is used for a above the first and |x - a| below the second times a. The numbers of powers of 1/a
#: and of eta are those after which its terms are below the last digit there.
LARGE, NEAR = 20.0, 0.3
POWERS_OF_A, POWERS_OF_ETA = 12, 22
#: Stirling's series for log gamma is used from here on.
STIRLING = 8.0


def slope(a: Number, x: Number) -> Number:
    """The derivative of P(a, x) in a."""
    # The continued fraction ends after a steps where a is whole, its derivative does not.
    is_defined = (a > 0) & (x >= 0)
    return where(is_defined, slope_of(lambda a, x: lower(a, x, 10 + minimum(a, 60.0) + 85 / x), (a, x), 0), math.nan)


def lower(a: Number, x: Number, least_steps: Number | None = None) -> Number:
    """P(a, x), from 0 at x = 0 to 1; the continued fraction of at least that many steps."""
    inside_a, inside_x, is_inside = _domain(a, x)
    is_near = _is_near(inside_a, inside_x)
    is_fraction = (inside_x > 1.1) & (inside_x > inside_a) & ~is_near
    factor = _power_factor(inside_a, inside_x)
    series = factor * _series(inside_a, inside_x, is_inside & ~is_fraction & ~is_near)
    fraction = 1 - factor * inside_a * _fraction(inside_a, inside_x, is_inside & is_fraction, least_steps)
    found = where(is_near, _near(inside_a, inside_x, -1.0), where(is_fraction, fraction, series))
    return where(is_inside, found, _edges(a, x, 0.0, 1.0))


def upper(a: Number, x: Number) -> Number:
    """Q(a, x) = 1 - P(a, x), accurate where it is small."""
    inside_a, inside_x, is_inside = _domain(a, x)
    is_near = _is_near(inside_a, inside_x)
    is_fraction = (inside_x > 1.1) & (inside_x > inside_a) & ~is_near
    # Where x and a are small, P is near 1, and 1 - P would cancel.
    bound = maximum(1.1 * inside_x, -0.4 / log(minimum(inside_x, 0.7)))
    is_small = (inside_x <= 1.1) & (inside_a < bound) & ~is_near
    factor = _power_factor(inside_a, inside_x)
    series = 1 - factor * _series(inside_a, inside_x, is_inside & ~is_fraction & ~is_near & ~is_small)
    fraction = factor * inside_a * _fraction(inside_a, inside_x, is_inside & is_fraction)
    small = _upper_of_small(inside_a, inside_x, is_inside & is_small)
    found = where(is_small, small, where(is_fraction, fraction, series))
    found = where(is_near, _near(inside_a, inside_x, 1.0), found)
    return where(is_inside, found, _edges(a, x, 1.0, 0.0))


def density(a: Number, x: Number) -> Number:
    """x^(a-1) e^-x / gamma(a), for any a."""
    is_between = (x > 0) & (x < math.inf)
    y = where(is_between, x, 1.0)
    half = 0.5 * floor(a)
    is_pole = (a <= 0) & floor(a).equals(a)
    # gamma alternates in sign between its poles.
    sign = where((a < 0) & ~floor(half).equals(half), a.like(-1.0), 1.0)
    is_large = a >= STIRLING
    large = where(is_large, a, STIRLING)
    plain = sign * exp((a - 1) * log(y) - y - log_gamma(a))
    between = where(is_large, _power_factor(large, y) * (large / y), plain)
    at_zero = where(a > 1, a.like(0.0), where(a < 1, sign * math.inf, a.like(1.0)))
    found = where(is_between, between, where(x.equals(0.0), at_zero, where(x.equals(math.inf), x.like(0.0), math.nan)))
    return where(is_pole & (x >= 0) & (a > -math.inf), x.like(0.0), found + 0.0 * a)


def _domain(a: Number, x: Number) -> tuple[Number, Number, Number]:
    """The operands, where they are positive and finite, elsewhere 1; and where that is."""
    is_inside = (a > 0) & (x > 0) & (a < math.inf) & (x < math.inf)
    return where(is_inside, a, 1.0), where(is_inside, x, 1.0), is_inside


def _edges(a: Number, x: Number, at_zero: float, at_infinity: float) -> Number:
    """The limits where an operand is 0 or infinite; NaN where both are, and outside."""
    rises = (a.equals(0.0) & (x > 0)) | ((a >= 0) & (a < math.inf) & x.equals(math.inf))
    stays = (x.equals(0.0) & (a > 0)) | (a.equals(math.inf) & (x >= 0) & (x < math.inf))
    return where(rises, a.like(at_infinity), where(stays, a.like(at_zero), math.nan))


def _is_near(a: Number, x: Number) -> Number:
    return (a > LARGE) & (abs(x - a) < NEAR * a)


def _series(a: Number, x: Number, is_active: Number) -> Number:
    """1 + x/(a+1) + x^2/((a+1)(a+2)) + ..., DLMF 8.11.4: all terms are positive."""

    def step(k: Number, consts: Sequence[Number], carry: Sequence[Number]) -> tuple[list[Number], Number]:
        (a, x), (term, total) = consts, carry
        term = term * x / (a + k)
        total = total + term
        return [term, total], term > EPSILON * total

    one = a.like(1.0)
    return repeat(step, [one, one], [a, x], is_active, MOST_STEPS)[1]


def _fraction(a: Number, x: Number, is_active: Number, least_steps: Number | None = None) -> Number:
    """1/(x+1-a - 1(1-a)/(x+3-a - 2(2-a)/(x+5-a - ...))), DLMF 8.9.2, by the modified Lentz method."""

    def step(k: Number, consts: Sequence[Number], carry: Sequence[Number]) -> tuple[list[Number], Number]:
        (a, x, least), (c, d, found) = consts, carry
        numerator = k * (a - k)
        denominator = x + 2 * k + 1 - a
        d = 1 / not_zero(denominator + numerator * d)
        c = not_zero(denominator + numerator / c)
        factor = c * d
        return [c, d, found * factor], (abs(factor - 1) > 2 * EPSILON) | (k < least)

    first = 1 / not_zero(x + 1 - a)
    consts = [a, x, a.like(0.0) if least_steps is None else least_steps]
    return repeat(step, [a.like(1 / TINY), first, first], consts, is_active, MOST_STEPS)[2]


def _upper_of_small(a: Number, x: Number, is_active: Number) -> Number:
    """Q = 1 - x^a / gamma(1+a) (1 + a S), S = sum of (-x)^n / (n! (a+n)) (DLMF 8.7.1), without cancellation."""

    def step(k: Number, consts: Sequence[Number], carry: Sequence[Number]) -> tuple[list[Number], Number]:
        (a, x), (power, total) = consts, carry
        power = power * -x / k
        term = power / (a + k)
        total = total + term
        return [power, total], abs(term) > EPSILON * abs(total)

    zero = a.like(0.0)
    total = repeat(step, [a.like(1.0), zero], [a, x], is_active, MOST_STEPS)[1]
    exponent = a * log(x) - log_gamma_of_one_plus(a)
    return -exp_minus_one(exponent) - a * total * exp(exponent)


def log_gamma_of_one_plus(a: Number) -> Number:
    """log gamma(1 + a): for small a by DLMF 5.7.3, since the sum 1 + a has lost the digits of a."""
    near = where(a < 0.3, a, 0.1)
    zeta = [-0.57721566490153286, *[(-1) ** k * float(scipy_special.zeta(k)) / k for k in range(2, 32)]]
    return where(a < 0.3, near * polynomial(zeta, near), log_gamma(1 + a))


def _power_factor(a: Number, x: Number) -> Number:
    """x^a e^-x / gamma(a+1); for large a by Stirling's series, in the distance of x from a, where nothing cancels."""
    is_small = a < STIRLING
    large = where(is_small, STIRLING, a)
    stirling = exp(large * log_minus(x / large, (x - large) / large) - stirling_rest(large)) / sqrt(2 * math.pi * large)
    plain = exp(a * log(x) - x - log_gamma(a + 1))
    return where(is_small, plain, stirling)


def log_minus(ratio: Number, deviation: Number) -> Number:
    """log(ratio) - deviation, where the deviation is ratio - 1, given as exactly as it is known."""
    is_near = abs(deviation) < 0.5
    near = where(is_near, deviation, 0.25)
    return where(is_near, -0.5 * near * near * _curvature(near), log(ratio) - deviation)


def _curvature(x: Number) -> Number:
    """-2 (log(1 + x) - x) / x^2 for |x| below 0.5: smooth, 1 at 0. By log(1 + x) = 2 artanh r, r = x / (2 + x)."""
    ratio = x / (2 + x)
    artanh = polynomial([1 / (2 * k + 3) for k in range(18)], ratio * ratio)
    return 2 / (2 + x) - 4 * x * artanh / ((2 + x) * (2 + x) * (2 + x))


def stirling_rest(a: Number) -> Number:
    """log gamma(a) less (a - 1/2) log a - a + log(2 pi) / 2, for a from 8 on (DLMF 5.11.1)."""
    return polynomial(_stirling_terms(), 1 / (a * a)) / a


def stirling_rest_slope(a: Number) -> Number:
    """The derivative of `stirling_rest`."""
    square = a * a
    return polynomial([-(2 * k + 1) * term for k, term in enumerate(_stirling_terms())], 1 / square) / square


def _stirling_terms() -> list[float]:
    bernoulli = scipy_special.bernoulli(22)
    return [float(bernoulli[2 * k]) / (2 * k * (2 * k - 1)) for k in range(1, 12)]


def not_zero(x: Number) -> Number:
    """x, and the smallest number where it is 0."""
    return where(x.equals(0.0), x.like(TINY), x)


def _near(a: Number, x: Number, side: float) -> Number:
    """Temme's uniform expansion: Q for side 1, P for -1 (DLMF 8.12.3, 8.12.4, 8.12.7)."""
    is_near = _is_near(a, x)
    large = where(is_near, a, LARGE)
    deviation = where(is_near, (x - large) / large, 0.1)
    eta = deviation * sqrt(_curvature(deviation))
    total = a.like(0.0)
    for coefficients in reversed(_temme_coefficients()):
        total = total / large + polynomial(coefficients, eta)
    rest = exp(-0.5 * large * eta * eta) / sqrt(2 * math.pi * large) * total
    return 0.5 * erfc(side * eta * sqrt(0.5 * large)) + side * rest


@cache
def _temme_coefficients() -> tuple[tuple[float, ...], ...]:
    """d(k, n) of DLMF 8.12.8 and 8.12.12, exactly, then rounded.

    With mu = x/a - 1 the series mu = eta + alpha_2 eta^2 + ... follows from eta deta/dmu = mu / (1 + mu).
    """
    count = POWERS_OF_ETA + 2 * POWERS_OF_A + 2
    alpha = [Fraction(0), Fraction(1)]
    for n in range(2, count + 1):
        mixed = sum((k * alpha[k] * alpha[n + 1 - k] for k in range(2, n)), Fraction(0))
        alpha.append((alpha[n - 1] - mixed) / (n + 1))
    first = [Fraction(-1, 3), *[(n + 2) * alpha[n + 2] for n in range(1, count - 1)]]
    rows = [first]
    for k, gamma in enumerate(_gamma_coefficients(POWERS_OF_A), start=1):
        before = rows[-1]
        rows.append([(-1) ** k * gamma * first[n] + (n + 2) * before[n + 2] for n in range(len(before) - 2)])
    return tuple([tuple([float(one) for one in row[:POWERS_OF_ETA]]) for row in rows[:POWERS_OF_A]])


def _gamma_coefficients(count: int) -> list[Fraction]:
    """g_1, ..., of DLMF 5.11.3: the exponential of Stirling's series."""
    logarithm = [Fraction(0)] * (count + 1)
    for k in range(1, count + 1, 2):
        logarithm[k] = _bernoulli(k + 1)[k + 1] / (k * (k + 1))
    found = [Fraction(1)]
    for n in range(1, count + 1):
        found.append(sum((k * logarithm[k] * found[n - k] for k in range(1, n + 1)), Fraction(0)) / n)
    return found[1:]


def _bernoulli(count: int) -> list[Fraction]:
    """The Bernoulli numbers to B_count (DLMF 24.5.3)."""
    found = [Fraction(1)]
    for n in range(1, count + 1):
        found.append(-sum((math.comb(n + 1, k) * found[k] for k in range(n)), Fraction(0)) / (n + 1))
    return found


expands(IncompleteGamma)(by_formula(lower))
expands(IncompleteGammaComplement)(by_formula(upper))
expands(GammaDensity)(by_formula(density))
expands(IncompleteGammaSlope)(by_formula(slope))
