"""I and K for positive operands (see `rematc.passes.legalize.bessel`)."""

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
from rematc.passes.legalize.incomplete_gamma import EPSILON
from rematc.passes.legalize.numbers import Number, exp, floor, log, log_gamma, repeat, sqrt, where


def modified_functions(v: Number, x: Number, is_active: Number) -> tuple[Number, Number]:
    """I e^-x and K e^x of order v >= 0 at x > 0."""
    is_far = is_asymptotic(v, x)
    is_near = x < NEAR
    is_stepped = is_active & ~is_far
    steps = floor(v + 0.5)
    start = v - steps
    near_k, near_next = temme(start, where(is_near, x, 1.0), is_stepped & is_near, None)
    growth = exp(where(is_near, x, 0.0))
    far_k, far_next = _integrals(start, where(is_near, NEAR, x), is_stepped & ~is_near)
    first, following = where(is_near, near_k * growth, far_k), where(is_near, near_next * growth, far_next)
    k, above = upwards(start, x, first, following, 1.0, steps, is_stepped)
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
        term, sign = next_term(v, x, k, term), -sign
        return [term, sign, i + sign * term, k_sum + term], abs(term) > EPSILON * abs(i)

    one = x.like(1.0)
    *_, i, k = repeat(step, [one, one, one, one], [v, x], is_active, HANKEL_TERMS)
    root = sqrt(x)  # 2 pi x may overflow
    return i / (math.sqrt(2 * math.pi) * root), math.sqrt(0.5 * math.pi) / root * k
