"""J and Y for positive operands (see `rematc.passes.legalize.bessel`)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rematc.passes.legalize.bessel_series import (
    FAR,
    HANKEL_TERMS,
    MOST_STEPS,
    NEAR,
    is_asymptotic,
    next_term,
    temme,
    upwards,
)
from rematc.passes.legalize.incomplete_gamma import EPSILON, not_zero
from rematc.passes.legalize.numbers import (
    Number,
    as_complex,
    cos,
    floor,
    from_parts,
    imag,
    maximum,
    real,
    repeat,
    sin,
    sqrt,
    where,
)


def cylinder_functions(v: Number, x: Number, is_active: Number) -> tuple[Number, Number]:
    """J and Y of order v >= 0 at x > 0."""
    is_far = is_asymptotic(v, x)
    is_near = x < NEAR
    is_stepped = is_active & ~is_far
    steps = where(is_near, floor(v + 0.5), maximum(floor(v - x + 1.5), 0.0))
    start = v - steps
    ratio, sign = _logarithmic_derivative(v, x, is_stepped)
    j, following, scale = _downwards(v, x, sign, sign * (v / x - ratio), steps, is_stepped)
    slope = start / x - following / not_zero(j)
    wronskian = 2 / (math.pi * x)

    near_y, near_next = temme(where(is_near, start, 0.0), where(is_near, x, 1.0), is_stepped & is_near, math.pi)
    near_slope = start / x * near_y - near_next
    near_j = wronskian / (near_slope - slope * near_y)

    p, q = _steed(where(is_near, 0.0, start), where(is_near, NEAR, x), is_stepped & ~is_near)
    angle = (p - slope) / q
    far_j = where(j < 0, x.like(-1.0), 1.0) * sqrt(wronskian / ((p - slope) * angle + q))
    far_y = far_j * angle
    far_next = start / x * far_y - (p * far_y + q * far_j)

    first_j = where(is_near, near_j, far_j)
    y = upwards(start, x, where(is_near, near_y, far_y), where(is_near, near_next, far_next), -1.0, steps, is_stepped)
    hankel_j, hankel_y = _hankel(where(is_far, v, 0.0), where(is_far, x, FAR), is_active & is_far)
    return where(is_far, hankel_j, first_j * (scale / not_zero(j))), where(is_far, hankel_y, y[0])


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
        term = next_term(v, x, k, term)
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
