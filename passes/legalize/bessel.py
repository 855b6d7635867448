"""Bessel functions: Temme's series, two continued fractions, recurrences, Hankel's expansion.

For x below 2 the second kind comes of Temme's series at a small order, above of a continued fraction (for the modified
functions of an integral); recurrences take it to the order asked for, upwards, where it is dominant. The first kind
follows from its own continued fraction and the Wronskian. Formulas by numbers of the NIST Digital Library of
Mathematical Functions (DLMF), chapter 10; the method is N. M. Temme's (J. Comput. Phys. 19 and 21, 1975-76).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

from scipy import special as scipy_special

from rematc.ir.ops.bessel import BesselI, BesselIe, BesselJ, BesselK, BesselKe, BesselY
from rematc.passes.legalize.incomplete_gamma import EPSILON, not_zero
from rematc.passes.legalize.numbers import (
    Number,
    as_complex,
    by_formula,
    cos,
    exp,
    floor,
    from_parts,
    imag,
    log,
    log_gamma,
    maximum,
    polynomial,
    real,
    repeat,
    sin,
    sqrt,
    where,
)
from rematc.passes.legalize.rules import expands

#: The first kind's continued fraction needs some x steps, recurrences one for each order.
MOST_STEPS = 1_000_000
#: Hankel's expansion is used above this x and half the order's square: there 30 terms are exact to the last digit.
FAR = 25.0
HANKEL_TERMS = 30
#: Below this x Temme's series is used.
NEAR = 2.0
#: The smallest normal number: what is less may count as 0 in one place and not in another.
LEAST = 2.0**-1022


def _times_exp(x: Number, exponent: Number) -> Number:
    """x e^exponent, in two steps, since e^exponent may overflow where the product does not."""
    half = exp(0.5 * exponent)
    return where(x.equals(0.0), x, x * half * half)


# -- all orders and arguments -----------------------------------------------------------------------------------------


def first_kind(v: Number, x: Number) -> Number:
    """J; of negative orders by DLMF 10.4.7 and 10.4.8, of negative x where the order is whole."""
    order, y, is_inside = _inside(v, x)
    j, y_kind = _cylinder_functions(order, y, is_inside)
    cosine, sine = _cos_sin_pi(order)
    found = where(v < 0, cosine * j - _product(sine, y_kind), j)
    return _of_any_sign(v, x, where(x.equals(0.0), _at_zero(v), found))


def second_kind(v: Number, x: Number) -> Number:
    """Y, for x > 0."""
    order, y, is_inside = _inside(v, x)
    j, y_kind = _cylinder_functions(order, y, is_inside)
    cosine, sine = _cos_sin_pi(order)
    found = where(v < 0, _product(sine, j) + _product(cosine, y_kind), y_kind)
    # Of order -v it is cos(pi v) times what it is of order v.
    at_zero = _product(_cos_sin_pi(maximum(-v, 0.0))[0], v.like(-math.inf))
    found = where(x.equals(0.0), at_zero, where(x.equals(math.inf), x.like(0.0), found))
    return where((x >= 0) & (abs(v) < math.inf), found, math.nan)


def modified_first_kind(v: Number, x: Number) -> Number:
    """I e^-|x|; of negative orders by DLMF 10.27.2."""
    order, y, is_inside = _inside(v, x)
    i, k = _modified_functions(order, y, is_inside)
    _, sine = _cos_sin_pi(order)
    found = where(v < 0, i + (2 / math.pi) * _product(sine, k * exp(-2 * y)), i)
    return _of_any_sign(v, x, where(x.equals(0.0), _at_zero(v), found))


def unscaled_first_kind(v: Number, x: Number) -> Number:
    """I: infinite with x."""
    scaled = modified_first_kind(v, x)
    is_at_infinity = abs(x).equals(math.inf) & scaled.equals(0.0)
    limit = where((x < 0) & _is_odd(v), x.like(-math.inf), math.inf)
    return where(is_at_infinity, limit, _times_exp(scaled, abs(x)))


def modified_second_kind(v: Number, x: Number) -> Number:
    """K e^x, for x > 0; the same for orders v and -v."""
    order, y, is_inside = _inside(v, x)
    _, k = _modified_functions(order, y, is_inside)
    found = where(x.equals(0.0), x.like(math.inf), where(x.equals(math.inf), x.like(0.0), k))
    return where((x >= 0) & (abs(v) < math.inf), found, math.nan)


def unscaled_second_kind(v: Number, x: Number) -> Number:
    """K: it vanishes with large x."""
    return _times_exp(modified_second_kind(v, x), -x)


def _inside(v: Number, x: Number) -> tuple[Number, Number, Number]:
    """|v| and |x| where both are finite and x is not 0, elsewhere harmless ones; and where that is."""
    is_inside = (abs(v) < math.inf) & (abs(x) > 0) & (abs(x) < math.inf)
    return where(is_inside, abs(v), 0.0), where(is_inside, maximum(abs(x), LEAST), 1.0), is_inside


def _is_whole(v: Number) -> Number:
    return floor(v).equals(v)


def _is_odd(v: Number) -> Number:
    """Whether floor(v) is odd."""
    half = 0.5 * floor(v)
    return ~_is_whole(half)


def _at_zero(v: Number) -> Number:
    """J and I at x = 0: (x/2)^v / gamma(v+1), which is infinite for negative orders that are not whole."""
    infinity = where(_is_odd(v), v.like(math.inf), -math.inf)
    return where(v.equals(0.0), v.like(1.0), where((v > 0) | _is_whole(v), v.like(0.0), infinity))


def _of_any_sign(v: Number, x: Number, found: Number) -> Number:
    """A function of |x| as one of x: even or odd where the order is whole, else NaN below 0; 0 at infinity."""
    found = where(abs(x).equals(math.inf), x.like(0.0), found)
    below = where(_is_whole(v), where(_is_odd(v), -found, found), math.nan)
    return where(abs(v) < math.inf, where(x < 0, below, where(x >= 0, found, math.nan)), math.nan)


def _cos_sin_pi(v: Number) -> tuple[Number, Number]:
    """cos(pi v) and sin(pi v) for v >= 0, exactly 0 where they are."""
    turn = v - 2 * floor(0.5 * v)
    cosine = where(turn.equals(0.5) | turn.equals(1.5), v.like(0.0), cos(math.pi * turn))
    return cosine, where(_is_whole(turn), v.like(0.0), sin(math.pi * turn))


def _product(x: Number, y: Number) -> Number:
    """x y, and 0 where x is, though y may be infinite."""
    is_zero = x.equals(0.0)
    return where(is_zero, x.like(0.0), x * where(is_zero, 0.0, y))


# -- J and Y for positive operands ------------------------------------------------------------------------------------


def _cylinder_functions(v: Number, x: Number, is_active: Number) -> tuple[Number, Number]:
    """J and Y of order v >= 0 at x > 0."""
    is_far = _is_far(v, x)
    is_near = x < NEAR
    is_stepped = is_active & ~is_far
    steps = where(is_near, floor(v + 0.5), maximum(floor(v - x + 1.5), 0.0))
    start = v - steps
    ratio, sign = _logarithmic_derivative(v, x, is_stepped)
    j, following, scale = _downwards(v, x, sign, sign * (v / x - ratio), steps, is_stepped)
    slope = start / x - following / not_zero(j)
    wronskian = 2 / (math.pi * x)

    near_y, near_next = _temme(where(is_near, start, 0.0), where(is_near, x, 1.0), is_stepped & is_near, math.pi)
    near_slope = start / x * near_y - near_next
    near_j = wronskian / (near_slope - slope * near_y)

    p, q = _steed(where(is_near, 0.0, start), where(is_near, NEAR, x), is_stepped & ~is_near)
    angle = (p - slope) / q
    far_j = where(j < 0, x.like(-1.0), 1.0) * sqrt(wronskian / ((p - slope) * angle + q))
    far_y = far_j * angle
    far_next = start / x * far_y - (p * far_y + q * far_j)

    first_j = where(is_near, near_j, far_j)
    y = _upwards(start, x, where(is_near, near_y, far_y), where(is_near, near_next, far_next), -1.0, steps, is_stepped)
    hankel_j, hankel_y = _hankel(where(is_far, v, 0.0), where(is_far, x, FAR), is_active & is_far)
    return where(is_far, hankel_j, first_j * (scale / not_zero(j))), where(is_far, hankel_y, y[0])


def _is_far(v: Number, x: Number) -> Number:
    return (x > FAR) & (x > 0.5 * v * v)


def _logarithmic_derivative(v: Number, x: Number, is_active: Number) -> tuple[Number, Number]:
    """J'/J, v/x - 1/(2(v+1)/x - 1/(2(v+2)/x - ...)) (DLMF 10.10.1), and the sign of J: it turns at negative factors."""

    def step(k: Number, consts: Sequence[Number], carry: Sequence[Number]) -> tuple[list[Number], Number]:
        (v, x), (c, d, found, sign) = consts, carry
        denominator = 2 * (v + k) / x
        d = 1 / not_zero(denominator - d)
        c = not_zero(denominator - 1 / c)
        # Near the smallest x the denominators overflow, and the rest of the fraction is nothing.
        factor = where(denominator < math.inf, c * d, 1.0)
        return [c, d, found * factor, where(d < 0, -sign, sign)], abs(factor - 1) > 2 * EPSILON

    first = not_zero(v / x)
    carry = [first, v.like(0.0), first, v.like(1.0)]
    _, _, found, sign = repeat(step, carry, [v, x], is_active, MOST_STEPS)
    return found, sign


def _downwards(
    v: Number, x: Number, j: Number, following: Number, steps: Number, is_active: Number
) -> tuple[Number, Number, Number]:
    """From J of orders v and v + 1, up to a factor, to those `steps` lower; and the first of them, by the same factor.

    DLMF 10.6.1, which is stable downwards. Where the numbers grow large, all are scaled.
    """

    def step(k: Number, consts: Sequence[Number], carry: Sequence[Number]) -> tuple[list[Number], Number]:
        (v, x, steps), (j, following, first) = consts, carry
        below = 2 * (v - k + 1) / x * j - following
        scale = where(abs(below) > 2.0**500, x.like(2.0**-500), 1.0)
        return [below * scale, j * scale, first * scale], k < steps

    found = repeat(step, [j, following, j], [v, x, steps], is_active & (steps > 0), MOST_STEPS)
    return found[0], found[1], found[2]


def _upwards(
    start: Number, x: Number, first: Number, following: Number, sign: float, steps: Number, is_active: Number
) -> tuple[Number, Number]:
    """From functions of orders start and start + 1 to those `steps` higher: f(o+1) = 2o/x f(o) + sign f(o-1)."""

    def step(k: Number, consts: Sequence[Number], carry: Sequence[Number]) -> tuple[list[Number], Number]:
        (start, x, steps), (first, following) = consts, carry
        above = 2 * (start + k) / x * following + sign * first
        # What has become infinite stays so.
        return [following, where(abs(following).equals(math.inf), following, above)], k < steps

    found = repeat(step, [first, following], [start, x, steps], is_active & (steps > 0), MOST_STEPS)
    return found[0], found[1]


def _steed(v: Number, x: Number, is_active: Number) -> tuple[Number, Number]:
    """p + iq = (J' + iY') / (J + iY) = -1/(2x) + i + i/x (1/2^2 - v^2)/(2(x+i) + (3/2^2 - v^2)/(2(x+2i) + ...)).

    For x above 2 and above v it converges in some tens of steps (A. R. Barnett, Comput. Phys. Commun. 8, 1974).
    """

    def step(k: Number, consts: Sequence[Number], carry: Sequence[Number]) -> tuple[list[Number], Number]:
        (v, x), (c, d, found) = consts, carry
        numerator = as_complex((k - 0.5) * (k - 0.5) - v * v)
        denominator = from_parts(2 * x, 2 * k)
        d = 1 / (denominator + numerator * d)
        c = denominator + numerator / c
        factor = c * d
        return [c, d, found * factor], abs(real(factor) - 1) + abs(imag(factor)) > 4 * EPSILON

    tiny = as_complex(v.like(1e-150))
    found = repeat(step, [tiny, as_complex(v.like(0.0)), tiny], [v, x], is_active, MOST_STEPS)[2]
    return -0.5 / x - imag(found) / x, 1 + real(found) / x


def _hankel(v: Number, x: Number, is_active: Number) -> tuple[Number, Number]:
    """J and Y for large x by DLMF 10.17.3 and 10.17.4."""

    def step(k: Number, consts: Sequence[Number], carry: Sequence[Number]) -> tuple[list[Number], Number]:
        (v, x), (term, cosine, sine, even, odd) = consts, carry
        term = _next_term(v, x, k, term)
        # cos and sin of k pi/2 sort the terms and give them their signs.
        cosine, sine = -sine, cosine
        return [term, cosine, sine, even + cosine * term, odd + sine * term], abs(term) > EPSILON * abs(even)

    one, zero = x.like(1.0), x.like(0.0)
    *_, even, odd = repeat(step, [one, one, zero, one, zero], [v, x], is_active, HANKEL_TERMS)
    # cos and sin of x - (v/2 + 1/4) pi, where the second part is reduced on its own.
    turn = 0.5 * v + 0.25
    shift = 2 * math.pi * (0.5 * turn - floor(0.5 * turn))
    cosine = cos(x) * cos(shift) + sin(x) * sin(shift)
    sine = sin(x) * cos(shift) - cos(x) * sin(shift)
    scale = math.sqrt(2 / math.pi) / sqrt(x)
    return scale * (even * cosine - odd * sine), scale * (even * sine + odd * cosine)


# -- I and K for positive operands ------------------------------------------------------------------------------------


def _modified_functions(v: Number, x: Number, is_active: Number) -> tuple[Number, Number]:
    """I e^-x and K e^x of order v >= 0 at x > 0."""
    is_far = _is_far(v, x)
    is_near = x < NEAR
    is_stepped = is_active & ~is_far
    steps = floor(v + 0.5)
    start = v - steps
    near_k, near_next = _temme(start, where(is_near, x, 1.0), is_stepped & is_near, None)
    growth = exp(where(is_near, x, 0.0))
    far_k, far_next = _integrals(start, where(is_near, NEAR, x), is_stepped & ~is_near)
    first, following = where(is_near, near_k * growth, far_k), where(is_near, near_next * growth, far_next)
    k, above = _upwards(start, x, first, following, 1.0, steps, is_stepped)
    ratio = _ratio(v, x, is_stepped)
    # Where K overflows, x is so small that two terms of the series of I are all.
    i = where(above < math.inf, 1 / (x * (above + ratio * k)), _small_first_kind(v, x))
    hankel_i, hankel_k = _hankel_modified(where(is_far, v, 0.0), where(is_far, x, FAR), is_active & is_far)
    return where(is_far, hankel_i, i), where(is_far, hankel_k, k)


def _small_first_kind(v: Number, x: Number) -> Number:
    """I e^-x for small x (DLMF 10.25.2)."""
    return exp(v * log(0.5 * x) - log_gamma(v + 1) - x + 0.25 * x * x / (v + 1))


def _ratio(v: Number, x: Number, is_active: Number) -> Number:
    """I of order v + 1 over that of v, 1/(2(v+1)/x + 1/(2(v+2)/x + ...)) (DLMF 10.33.1): all terms are positive."""

    def step(k: Number, consts: Sequence[Number], carry: Sequence[Number]) -> tuple[list[Number], Number]:
        (v, x), (c, d, found) = consts, carry
        denominator = 2 * (v + k) / x
        d = 1 / (denominator + d)
        c = denominator + 1 / c
        factor = where(denominator < math.inf, c * d, 0.0)
        return [c, d, found * factor], abs(factor - 1) > 2 * EPSILON

    tiny = v.like(1e-300)
    return repeat(step, [tiny, v.like(0.0), tiny], [v, x], is_active, MOST_STEPS)[2]


def _integrals(v: Number, x: Number, is_active: Number) -> tuple[Number, Number]:
    """K e^x of orders v and v + 1, the integral of e^(-x (cosh t - 1)) cosh(vt) over t > 0 (DLMF 10.32.9).

    The trapezoidal rule converges exponentially, since the integrand is even and smooth and falls doubly exponentially;
    it is cut off where it has fallen to e^-42.
    """
    points = 32
    root = sqrt(21 / x)
    width = 2 * log(root + sqrt(root * root + 1)) / points

    def step(k: Number, consts: Sequence[Number], carry: Sequence[Number]) -> tuple[list[Number], Number]:
        (v, x, width), (first, following) = consts, carry
        t = k * width
        half = exp(0.5 * t)
        sinh = 0.5 * (half - 1 / half)
        weight = 0.5 * exp(-2 * x * sinh * sinh)
        one, other = exp(v * t), exp((v + 1) * t)
        first = first + weight * (one + 1 / one)
        following = following + weight * (other + 1 / other)
        return [first, following], k < points

    half = x.like(0.5)
    first, following = repeat(step, [half, half], [v, x, width], is_active, points)
    return first * width, following * width


def _hankel_modified(v: Number, x: Number, is_active: Number) -> tuple[Number, Number]:
    """I e^-x and K e^x for large x by DLMF 10.40.1 and 10.40.2."""

    def step(k: Number, consts: Sequence[Number], carry: Sequence[Number]) -> tuple[list[Number], Number]:
        (v, x), (term, sign, i, k_sum) = consts, carry
        term, sign = _next_term(v, x, k, term), -sign
        return [term, sign, i + sign * term, k_sum + term], abs(term) > EPSILON * abs(i)

    one = x.like(1.0)
    *_, i, k = repeat(step, [one, one, one, one], [v, x], is_active, HANKEL_TERMS)
    root = sqrt(x)  # 2 pi x may overflow
    return i / (math.sqrt(2 * math.pi) * root), math.sqrt(0.5 * math.pi) / root * k


def _next_term(v: Number, x: Number, k: Number, term: Number) -> Number:
    """a_k(v) / x^k from the one before (DLMF 10.17.1)."""
    odd = 2 * k - 1
    return term * (4 * v * v - odd * odd) / (8 * k * x)


# -- Temme's series ---------------------------------------------------------------------------------------------------


def _temme(v: Number, x: Number, is_active: Number, period: float | None) -> tuple[Number, Number]:
    """Y of orders v and v + 1 (with period pi), or K (with None), for |v| <= 1/2 and x below 2: Temme's series.

    Y is -2/pi times the sum of (-x^2/4)^k/k! g_k, K the sum of (x^2/4)^k/k! f_k; f, p and q follow recurrences in k.
    """
    gamma_odd, gamma_even = _reciprocal_gammas(v)
    logarithm = log(2 / x)
    sigma = v * logarithm
    growth = exp(sigma)
    cosh, sinh = 0.5 * (growth + 1 / growth), 0.5 * (growth - 1 / growth)
    is_small = abs(sigma) < 1e-2
    square = sigma * sigma
    sinh_ratio = where(is_small, 1 + square / 6 * (1 + square / 20), sinh / where(is_small, 1.0, sigma))
    f = (gamma_odd * cosh + sinh_ratio * logarithm * gamma_even) / _sinc(math.pi * v)
    p = 0.5 * growth / (gamma_even - v * gamma_odd)
    q = 0.5 / (growth * (gamma_even + v * gamma_odd))
    is_second_kind = period is not None
    # Of the second kind g = f + 2/v sin^2(v pi/2) q in these units.
    mixed = _sinc(0.5 * math.pi * v)
    weight = 0.5 * math.pi * math.pi * v * mixed * mixed if is_second_kind else v.like(0.0)
    ratio = (-0.25 if is_second_kind else 0.25) * x * x

    def step(k: Number, consts: Sequence[Number], carry: Sequence[Number]) -> tuple[list[Number], Number]:
        (v, ratio, weight), (f, p, q, power, first, following) = consts, carry
        f = (k * f + p + q) / (k * k - v * v)
        p, q = p / (k - v), q / (k + v)
        power = power * ratio / k
        g = f + weight * q
        term = power * g
        first, following = first + term, following + power * (p - k * g)
        is_open = (abs(term) > EPSILON * abs(first)) | (abs(power * (p - k * g)) > EPSILON * abs(following))
        return [f, p, q, power, first, following], is_open & (k < 60)

    carry = [f, p, q, v.like(1.0), f + weight * q, p]
    *_, first, following = repeat(step, carry, [v, ratio, weight], is_active, MOST_STEPS)
    factor = -2 / math.pi if is_second_kind else 1.0
    return factor * first, factor * 2 / x * following


def _sinc(x: Number) -> Number:
    """sin(x) / x."""
    is_small = abs(x) < 1e-3
    square = x * x
    return where(is_small, 1 - square / 6 * (1 - square / 20), sin(x) / where(is_small, 1.0, x))


def _reciprocal_gammas(v: Number) -> tuple[Number, Number]:
    """1/gamma(1-v) less 1/gamma(1+v), over 2v; and half their sum; for |v| <= 1/2 by DLMF 5.7.1."""
    coefficients = _reciprocal_gamma_coefficients()
    square = v * v
    return -polynomial(coefficients[1::2], square), polynomial(coefficients[::2], square)


@cache
def _reciprocal_gamma_coefficients() -> tuple[float, ...]:
    """Those of 1/gamma(1+v) in powers of v, by DLMF 5.7.2."""
    euler = 0.57721566490153286061
    found = [1.0, euler]
    for k in range(3, 28):
        total = euler * found[-1]
        total += sum((-1) ** (j + 1) * float(scipy_special.zeta(j)) * found[k - 1 - j] for j in range(2, k))
        found.append(total / (k - 1))
    return tuple(found)


expands(BesselJ)(by_formula(first_kind))
expands(BesselY)(by_formula(second_kind))
expands(BesselI)(by_formula(unscaled_first_kind))
expands(BesselIe)(by_formula(modified_first_kind))
expands(BesselK)(by_formula(unscaled_second_kind))
expands(BesselKe)(by_formula(modified_second_kind))
