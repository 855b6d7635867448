"""What all Bessel functions have in common: Temme's series, the recurrence upwards, the terms of Hankel's expansion."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

from scipy import special as scipy_special

from rematc.passes.legalize.incomplete_gamma import EPSILON
from rematc.passes.legalize.numbers import Number, exp, log, polynomial, repeat, sin, where

#: The first kind's continued fraction needs some x steps, recurrences one for each order.
MOST_STEPS = 1_000_000
#: Hankel's expansion is used above this x and half the order's square: there 30 terms are exact to the last digit.
FAR = 25.0
HANKEL_TERMS = 30
#: Below this x Temme's series is used.
NEAR = 2.0


def is_asymptotic(v: Number, x: Number) -> Number:
    """Where Hankel's expansion is used."""
    return (x > FAR) & (x > 0.5 * v * v)


def next_term(v: Number, x: Number, k: Number, term: Number) -> Number:
    """a_k(v) / x^k from the one before (DLMF 10.17.1)."""
    odd = 2 * k - 1
    return term * (4 * v * v - odd * odd) / (8 * k * x)


def upwards(
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


def temme(v: Number, x: Number, is_active: Number, period: float | None) -> tuple[Number, Number]:
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
