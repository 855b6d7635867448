"""Bessel functions: Temme's series, two continued fractions, recurrences, Hankel's expansion.

For x below 2 the second kind comes of Temme's series at a small order, above of a continued fraction (for the modified
functions of an integral); recurrences take it to the order asked for, upwards, where it is dominant. The first kind
follows from its own continued fraction and the Wronskian. Formulas by numbers of the NIST Digital Library of
Mathematical Functions (DLMF), chapter 10; the method is N. M. Temme's (J. Comput. Phys. 19 and 21, 1975-76).
"""

from __future__ import annotations

import math

from rematc.ir.ops.bessel import BesselI, BesselIe, BesselJ, BesselK, BesselKe, BesselY
from rematc.passes.legalize.bessel_cylinder import cylinder_functions
from rematc.passes.legalize.bessel_modified import modified_functions
from rematc.passes.legalize.numbers import Number, by_formula, cos, exp, floor, maximum, sin, where
from rematc.passes.legalize.rules import expands

#: The smallest normal number: what is less may count as 0 in one place and not in another.
LEAST = 2.0**-1022


def _times_exp(x: Number, exponent: Number) -> Number:
    """x e^exponent, in two steps, since e^exponent may overflow where the product does not."""
    half = exp(0.5 * exponent)
    return where(x.equals(0.0), x, x * half * half)


def first_kind(v: Number, x: Number) -> Number:
    """J; of negative orders by DLMF 10.4.7 and 10.4.8, of negative x where the order is whole."""
    order, y, is_inside = _inside(v, x)
    j, y_kind = cylinder_functions(order, y, is_inside)
    cosine, sine = _cos_sin_pi(order)
    found = where(v < 0, cosine * j - _product(sine, y_kind), j)
    return _of_any_sign(v, x, where(x.equals(0.0), _at_zero(v), found))


def second_kind(v: Number, x: Number) -> Number:
    """Y, for x > 0."""
    order, y, is_inside = _inside(v, x)
    j, y_kind = cylinder_functions(order, y, is_inside)
    cosine, sine = _cos_sin_pi(order)
    found = where(v < 0, _product(sine, j) + _product(cosine, y_kind), y_kind)
    # Of order -v it is cos(pi v) times what it is of order v.
    at_zero = _product(_cos_sin_pi(maximum(-v, 0.0))[0], v.like(-math.inf))
    found = where(x.equals(0.0), at_zero, where(x.equals(math.inf), x.like(0.0), found))
    return where((x >= 0) & (abs(v) < math.inf), found, math.nan)


def modified_first_kind(v: Number, x: Number) -> Number:
    """I e^-|x|; of negative orders by DLMF 10.27.2."""
    order, y, is_inside = _inside(v, x)
    i, k = modified_functions(order, y, is_inside)
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
    _, k = modified_functions(order, y, is_inside)
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


expands(BesselJ)(by_formula(first_kind))
expands(BesselY)(by_formula(second_kind))
expands(BesselI)(by_formula(unscaled_first_kind))
expands(BesselIe)(by_formula(modified_first_kind))
expands(BesselK)(by_formula(unscaled_second_kind))
expands(BesselKe)(by_formula(modified_second_kind))
