"""The regularized incomplete beta function: a power series and a continued fraction (DLMF 8.17)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rematc.ir.builder import Builder
from rematc.ir.ops.incomplete import BetaDensity, IncompleteBeta, IncompleteBetaSlope
from rematc.ir.values import Value
from rematc.passes.legalize.incomplete_gamma import (
    EPSILON,
    STIRLING,
    log_gamma_of_one_plus,
    log_minus,
    not_zero,
    stirling_rest,
    stirling_rest_slope,
)
from rematc.passes.legalize.numbers import (
    Number,
    by_formula,
    exp,
    exp_minus_one,
    log,
    log_gamma,
    log_one_plus,
    maximum,
    repeat,
    slope_of,
    sqrt,
    where,
)
from rematc.passes.legalize.rules import expands

#: The continued fraction needs some sqrt(max(a, b)) steps.
MOST_STEPS = 100_000
#: Below it a parameter is small: Simpson's rule over its length is exact to the last digit.
SMALL = 0.02


def density(a: Number, b: Number, x: Number) -> Number:
    """x^(a-1) (1-x)^(b-1) / B(a, b)."""
    is_inside = (a > 0) & (b > 0) & (x >= 0) & (x <= 1) & (a < math.inf) & (b < math.inf)
    is_between, one, other, y = _inside(a, b, x)
    between = _power_factor(one, other, y, 1 - y) / (y * (1 - y))
    edge = where(x.equals(0.0), _at_edge(a, b), _at_edge(b, a))
    return where(is_between, between, where(is_inside, edge, math.nan))


def _at_edge(near: Number, far: Number) -> Number:
    """The density at the edge to which the exponent `near` - 1 belongs."""
    return where(near > 1, near.like(0.0), where(near < 1, near.like(math.inf), far))


def distribution(a: Number, b: Number, x: Number) -> Number:
    """I_x(a, b)."""
    is_inside, one, other, y = _inside(a, b, x)
    found = _between(one, other, y, is_inside)
    # All mass lies at 0 where b is infinite or a is 0, at 1 where a is infinite or b is 0.
    is_low, is_high = a.equals(0.0) | b.equals(math.inf), b.equals(0.0) | a.equals(math.inf)
    limit = where(is_low, where(x > 0, x.like(1.0), 0.0), where(x < 1, x.like(0.0), 1.0))
    is_edge = (is_low | is_high) & ~(is_low & is_high) & (x >= 0) & (x <= 1) & (a >= 0) & (b >= 0)
    is_end = (a > 0) & (b > 0) & (x.equals(0.0) | x.equals(1.0))
    return where(is_inside, found, where(is_edge, limit, where(is_end & ~(is_low & is_high), x, math.nan)))


def _for_slope(a: Number, b: Number, x: Number) -> Number:
    """The distribution, summed on where the sum ends of itself for whole a or b, but its derivative does not."""
    is_inside, one, other, y = _inside(a, b, x)
    found = _between(one, other, y, is_inside, is_for_slope=True)
    is_edge = (a > 0) & (b > 0) & (x.equals(0.0) | x.equals(1.0))
    return where(is_inside, found, where(is_edge, 0.0 * a * b, math.nan * a * b))


def _inside(a: Number, b: Number, x: Number) -> tuple[Number, Number, Number, Number]:
    """Where all operands are between the edges; and the operands there, elsewhere harmless ones."""
    is_inside = (a > 0) & (b > 0) & (x > 0) & (x < 1) & (a < math.inf) & (b < math.inf)
    return is_inside, where(is_inside, a, 1.0), where(is_inside, b, 1.0), where(is_inside, x, 0.5)


def _between(a: Number, b: Number, x: Number, is_active: Number, *, is_for_slope: bool = False) -> Number:
    """I_x(a, b) between the edges, directly or as 1 - I_(1-x)(b, a)."""
    rest = 1 - x
    is_series = (b * x <= 1) & (x <= 0.95)
    is_mirrored_series = (a * rest <= 1) & (rest <= 0.95)
    is_past = x > (a + 1) / (a + b + 2)
    is_mirrored = ~is_series & (is_past | (is_mirrored_series & (x > a / (a + b))))
    is_sum = is_series | (is_mirrored & is_mirrored_series)
    one, other = where(is_mirrored, b, a), where(is_mirrored, a, b)
    y, z = where(is_mirrored, rest, x), where(is_mirrored, x, rest)
    zero = a.like(0.0)
    total = _series(one, other, y, is_active & is_sum, -40 / log(y) if is_for_slope else zero)
    least_steps = 40 + sqrt(maximum(one, other)) if is_for_slope else zero
    fraction = _fraction(one, other, y, is_active & ~is_sum, least_steps)
    factor = _power_factor(one, other, y, z)
    # Where the first parameter is small, the sum's is a power near 1, and its complement small.
    is_small = one < SMALL
    exponent = _log_power(where(is_small, one, SMALL), other, y)
    power = where(is_small, exp(exponent), factor / (one * exp(other * log_one_plus(-y))))
    found = where(is_sum, power + power * one * total, factor * fraction)
    complement = where(is_sum & is_small, -exp_minus_one(exponent) - power * one * total, 1 - found)
    return where(is_mirrored, complement, found)


def _series(a: Number, b: Number, x: Number, is_active: Number, least_steps: Number) -> Number:
    """(1-b) x/(a+1) + (1-b)(2-b)/2! x^2/(a+2) + ... (DLMF 8.17.7): I_x(a, b) is x^a / (a B(a, b)) (1 + a sum)."""

    def step(k: Number, consts: Sequence[Number], carry: Sequence[Number]) -> tuple[list[Number], Number]:
        (a, b, x, least), (power, total) = consts, carry
        power = power * x * (k - b) / k
        term = power / (a + k)
        total = total + term
        return [power, total], (abs(term) > EPSILON * abs(total)) | (k < least)

    return repeat(step, [a.like(1.0), a.like(0.0)], [a, b, x, least_steps], is_active, MOST_STEPS)[1]


def _log_power(a: Number, b: Number, x: Number) -> Number:
    """log(x^a gamma(a+b) / (gamma(a+1) gamma(b))) for small a, to the relative accuracy of a.

    The quotient of gamma functions is that at b + 8, by Stirling's series, over (1 + a/b) ... (1 + a/(b+7)). Stirling's
    rest at b + 8 + a less that at b + 8 is the integral of its derivative, by Simpson's rule.
    """
    shifted = b + STIRLING
    rests = stirling_rest_slope(shifted) + 4 * stirling_rest_slope(shifted + 0.5 * a) + stirling_rest_slope(shifted + a)
    quotient = (shifted - 0.5) * log_one_plus(a / shifted) + a * (log(shifted + a) - 1 + rests / 6)
    for k in range(int(STIRLING)):
        quotient = quotient - log_one_plus(a / (b + k))
    return a * log(x) + quotient - log_gamma_of_one_plus(a)


def _fraction(a: Number, b: Number, x: Number, is_active: Number, least_steps: Number) -> Number:
    """1/a times the continued fraction of DLMF 8.17.22, two of its steps at a time (the modified Lentz method).

    With x^a (1-x)^b / B(a, b) before it, it is I_x(a, b); it converges fast for x below (a + 1)/(a + b + 2).
    """

    def step(k: Number, consts: Sequence[Number], carry: Sequence[Number]) -> tuple[list[Number], Number]:
        (a, b, x, least), (c, d, found) = consts, carry
        for numerator in (
            k * (b - k) * x / ((a + 2 * k - 1) * (a + 2 * k)),
            -(a + k) * (a + b + k) * x / ((a + 2 * k) * (a + 2 * k + 1)),
        ):
            d = 1 / not_zero(1 + numerator * d)
            c = not_zero(1 + numerator / c)
            factor = c * d
            found = found * factor
        return [c, d, found], (abs(factor - 1) > 2 * EPSILON) | (k < least)

    first = 1 / not_zero(1 - (a + b) * x / (a + 1))
    carry = [a.like(1.0), first, first]
    return repeat(step, carry, [a, b, x, least_steps], is_active, MOST_STEPS)[2] / a


def _power_factor(a: Number, b: Number, x: Number, rest: Number) -> Number:
    """x^a rest^b / B(a, b), in the distance of x from a / (a + b), where for large a and b nothing cancels."""
    total = a + b
    # a log((a+b) x / a) + b log((a+b) rest / b): in each the linear part is left out, since the two add to 0.
    gap = where(x < 0.5, total * x - a, b - total * rest)
    exponent = a * log_minus(total * x / a, gap / a) + b * log_minus(total * rest / b, -gap / b)
    corrections = _stirling_rest(total) - _stirling_rest(a) - _stirling_rest(b)
    return exp(exponent + corrections) * sqrt(a / (2 * math.pi)) * sqrt(b / total)


def _stirling_rest(a: Number) -> Number:
    """What Stirling's formula lacks of log gamma(a)."""
    is_small = a < STIRLING
    small, large = where(is_small, a, 1.0), where(is_small, STIRLING, a)
    plain = log_gamma(small) - (small - 0.5) * log(small) + small - 0.5 * math.log(2 * math.pi)
    return where(is_small, plain, stirling_rest(large))


expands(IncompleteBeta)(by_formula(distribution))
expands(BetaDensity)(by_formula(density))


@expands(IncompleteBetaSlope)
def incomplete_beta_slope(b: Builder, op: IncompleteBetaSlope, *operands: Value) -> Sequence[Value]:
    """The formula, differentiated."""
    index = "ab".index(op.parameter)
    return by_formula(lambda a, b, x: slope_of(_for_slope, (a, b, x), index))(b, op, *operands)
