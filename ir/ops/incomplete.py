"""Incomplete gamma and beta functions, regularized: distribution functions of the gamma and the beta distribution.

CHLO has none of them; they are lowered as series and continued fractions. Their derivatives with respect to the last
operand are the densities. Those with respect to the parameters of the distribution are integrals of the density times
a logarithm: ops of their own, which can be differentiated once more, with respect to the last operand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special as scipy_special

from rematc.ir.core import Emitter
from rematc.ir.errors import MissingRuleError, TypeMismatchError
from rematc.ir.facts import Storage
from rematc.ir.ops.elementwise import FLOATS, Binary, Elementwise, Numeric, one_minus
from rematc.ir.ops.special import Digamma
from rematc.ir.ops.transcendental import LogPlusOne
from rematc.ir.registry import register
from rematc.ir.values import Derivatives, Primals, Tangents, Types, Value

#: Floating-point operations of an element: some tens of steps of a series or a continued fraction.
FLOPS_OF_ELEMENT = 500


def in_double(operands: Sequence[Numeric]) -> list[Numeric]:
    """Floats as float64, in which SciPy computes, of one shape."""
    return [operand.astype(np.float64) for operand in np.broadcast_arrays(*operands)]


def sum_of(b: Emitter, terms: Sequence[Value | None]) -> Derivatives:
    """The sum of the tangents that there are."""
    total = None
    for term in terms:
        if term is not None:
            total = term if total is None else b.add(total, term)
    return (total,)


def _times_where_nonzero(b: Emitter, x: Value, y: Value) -> Value:
    """x y, and 0 where x is 0, whatever y: x has the stronger zero."""
    zero = b.zeros(x.type)
    is_zero = b.compare(x, zero, "EQ")
    return b.select(is_zero, zero, b.multiply(x, b.select(is_zero, zero, y)))


def _refuse(name: str, parameter: str) -> None:
    raise MissingRuleError(
        f"jvp of '{name}' in its operand {parameter} does not exist: it would be a second derivative with respect to a "
        "parameter of the distribution; differentiate with respect to its last operand"
    )


class _OfGamma(Binary):
    """A function of (a, x), computed element by element in many steps."""

    __slots__ = ()
    kinds = FLOATS
    storage = Storage.WRITTEN  # by loops

    def flops(self, operands: Types, results: Types) -> int:
        return FLOPS_OF_ELEMENT * results[0].size


@register
@dataclass(frozen=True, slots=True)
class GammaDensity(_OfGamma):
    """x^(a-1) e^-x / gamma(a), for x >= 0: the density of the gamma distribution; 0 for a = 0, -1, -2, ...

    The derivative in x is the density at a - 1 less the density; that in a is the density times log x - digamma(a).
    """

    name = "gamma_density"
    storage = Storage.FUSED

    def evaluate(self, *operands: Numeric) -> Any:
        a, x = in_double(operands)
        sign = np.where((a <= 0) & (a == np.floor(a)), 0, scipy_special.gammasgn(a))
        power = scipy_special.xlogy(a - 1, x) - x
        plain = sign * np.exp(np.where(np.isinf(x), -np.inf, power) - scipy_special.gammaln(a))
        plain = np.where(x < 0, np.nan, np.where((sign == 0) & (x >= 0), 0.0, plain))
        return np.where(np.isfinite(a), plain, np.nan)

    def tangent_x(self, b: Emitter, t: Value, x: Value, y: Value, z: Value) -> Value | None:
        return b.multiply(t, _times_where_nonzero(b, z, b.subtract(b.log(y), b.emit1(Digamma(), x))))

    def tangent_y(self, b: Emitter, t: Value, x: Value, y: Value, z: Value) -> Value | None:
        below = b.emit1(self, b.subtract(x, b.full(x.type, 1)), y)
        return b.multiply(t, b.subtract(below, z))


@register
@dataclass(frozen=True, slots=True)
class IncompleteGamma(_OfGamma):
    """P(a, x), the integral of the density of the gamma distribution from 0 to x; for a >= 0 and x >= 0, else NaN."""

    name = "incomplete_gamma"

    def evaluate(self, *operands: Numeric) -> Any:
        return scipy_special.gammainc(*in_double(operands))

    def tangent_x(self, b: Emitter, t: Value, x: Value, y: Value, z: Value) -> Value | None:
        return b.multiply(t, b.emit1(IncompleteGammaSlope(), x, y))

    def tangent_y(self, b: Emitter, t: Value, x: Value, y: Value, z: Value) -> Value | None:
        return b.multiply(t, b.emit1(GammaDensity(), x, y))


@register
@dataclass(frozen=True, slots=True)
class IncompleteGammaComplement(_OfGamma):
    """Q(a, x) = 1 - P(a, x), the integral of the density of the gamma distribution from x on."""

    name = "incomplete_gamma_complement"

    def evaluate(self, *operands: Numeric) -> Any:
        return scipy_special.gammaincc(*in_double(operands))

    def tangent_x(self, b: Emitter, t: Value, x: Value, y: Value, z: Value) -> Value | None:
        return b.negate(b.multiply(t, b.emit1(IncompleteGammaSlope(), x, y)))

    def tangent_y(self, b: Emitter, t: Value, x: Value, y: Value, z: Value) -> Value | None:
        return b.negate(b.multiply(t, b.emit1(GammaDensity(), x, y)))


@register
@dataclass(frozen=True, slots=True)
class IncompleteGammaSlope(_OfGamma):
    """The derivative of P(a, x) in a, for a > 0: the integral from 0 to x of the density times log t - digamma(a).

    The integral to infinity is 0, so that from x to infinity is its negative; of the two, the one whose integrand has
    one sign loses no digits.
    """

    name = "incomplete_gamma_slope"

    def evaluate(self, *operands: Numeric) -> Any:
        a, x = in_double(operands)
        center, normal = scipy_special.digamma(a), scipy_special.gammaln(a)
        scale = 1 / (np.abs(a - x) + np.sqrt(a))

        def log_density(log_t: Numeric) -> Any:
            return a * log_t - np.exp(log_t) - normal

        below = _tail(lambda s: log_density(np.log(x) - s), lambda s: np.log(x) - s - center, scale)
        above = _tail(lambda s: log_density(np.log(x) + s), lambda s: np.log(x) + s - center, scale)
        found = np.where(np.log(x) < center, below, -above)
        is_edge = (a > 0) & ((x == 0) | np.isposinf(x))
        return np.where(is_edge, 0.0, np.where((a > 0) & (x > 0) & np.isfinite(a), found, np.nan))

    def tangent_x(self, b: Emitter, t: Value, x: Value, y: Value, z: Value) -> Value | None:
        _refuse(self.name, "0 (a)")
        return None

    def tangent_y(self, b: Emitter, t: Value, x: Value, y: Value, z: Value) -> Value | None:
        weight = b.subtract(b.log(y), b.emit1(Digamma(), x))
        return b.multiply(t, _times_where_nonzero(b, b.emit1(GammaDensity(), x, y), weight))


Integrand = Callable[[Numeric], Any]


def _tail(log_density: Integrand, weight: Integrand, scale: Numeric) -> Numeric:
    """The integral of exp(log_density(s)) weight(s) over s > 0.

    By the double exponential rule for integrands that decay exponentially, s = exp(u - exp(-u)) (Takahasi and Mori).
    """
    total = np.zeros_like(scale)
    step = 1 / 128
    for u in np.arange(-5, 7, step):
        s = scale * np.exp(u - np.exp(-u))
        term = np.exp(log_density(s)) * weight(s) * s * (1 + np.exp(-u)) * step
        total = total + np.where(np.isfinite(term), term, 0)
    return total


class _OfBeta(Elementwise):
    """A function of (a, b, x), computed element by element in many steps."""

    __slots__ = ()
    arity = 3
    kinds = FLOATS
    storage = Storage.WRITTEN  # by loops

    def flops(self, operands: Types, results: Types) -> int:
        return FLOPS_OF_ELEMENT * results[0].size


@register
@dataclass(frozen=True, slots=True)
class BetaDensity(_OfBeta):
    """x^(a-1) (1-x)^(b-1) / B(a, b), for a, b > 0 and 0 <= x <= 1: the density of the beta distribution.

    The derivatives are the density times (a-1)/x - (b-1)/(1-x), log x - digamma(a) + digamma(a+b), and its mirror.
    """

    name = "beta_density"
    storage = Storage.FUSED

    def evaluate(self, *operands: Numeric) -> Any:
        a, b, x = in_double(operands)
        exponent = scipy_special.xlogy(a - 1, x) + scipy_special.xlog1py(b - 1, -x) - scipy_special.betaln(a, b)
        is_inside = (a > 0) & (b > 0) & (x >= 0) & (x <= 1) & np.isfinite(a) & np.isfinite(b)
        return np.where(is_inside, np.exp(exponent), np.nan)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        (one, other, x), (z,) = primals, results
        weights = []
        if tangents[0] is not None:
            weights.append((tangents[0], _score(b, b.log(x), one, other)))
        if tangents[1] is not None:
            weights.append((tangents[1], _score(b, _log_of_rest(b, x), other, one)))
        if tangents[2] is not None:
            weights.append((tangents[2], b.subtract(_pull(b, one, x), _pull(b, other, one_minus(b, x)))))
        return sum_of(b, [b.multiply(t, _times_where_nonzero(b, z, weight)) for t, weight in weights])


def _score(b: Emitter, logarithm: Value, one: Value, other: Value) -> Value:
    """logarithm - digamma(one) + digamma(one + other)."""
    difference = b.subtract(b.emit1(Digamma(), b.add(one, other)), b.emit1(Digamma(), one))
    return b.add(logarithm, difference)


def _log_of_rest(b: Emitter, x: Value) -> Value:
    """log(1 - x)."""
    from_zero = b.negate(x)
    return b.emit1(LogPlusOne(), from_zero)


def _pull(b: Emitter, exponent: Value, x: Value) -> Value:
    """(exponent - 1) / x, and 0 where the exponent is 1."""
    power = b.subtract(exponent, b.full(exponent.type, 1))
    return _times_where_nonzero(b, power, b.divide(b.full(x.type, 1), x))


@register
@dataclass(frozen=True, slots=True)
class IncompleteBeta(_OfBeta):
    """I_x(a, b), the integral of the density of the beta distribution from 0 to x; for a, b > 0, 0 <= x <= 1."""

    name = "incomplete_beta"

    def evaluate(self, *operands: Numeric) -> Any:
        return scipy_special.betainc(*in_double(operands))

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        ops = (IncompleteBetaSlope("a"), IncompleteBetaSlope("b"), BetaDensity())
        pairs = zip(ops, tangents, strict=True)
        return sum_of(b, [b.multiply(t, b.emit1(op, *primals)) for op, t in pairs if t is not None])


@register
@dataclass(frozen=True, slots=True)
class IncompleteBetaSlope(_OfBeta):
    """The derivative of I_x(a, b) in a, or in b: the integral of the density times its logarithm's derivative.

    Attributes:
        parameter: which one, `a` or `b`.
    """

    name = "incomplete_beta_slope"
    parameter: str

    def infer(self, operands: Types) -> Any:
        if self.parameter not in ("a", "b"):
            raise TypeMismatchError(f"'{self.name}' with respect to '{self.parameter}'; expected a or b")
        return Elementwise.infer(self, operands)

    def evaluate(self, *operands: Numeric) -> Any:
        a, b, x = in_double(operands)
        found = _slope_of_beta(a, b, x, 1 - x) if self.parameter == "a" else -_slope_of_beta(b, a, 1 - x, x)
        is_edge = (x == 0) | (x == 1)
        is_inside = (a > 0) & (b > 0) & (x >= 0) & (x <= 1)
        return np.where(is_inside, np.where(is_edge, 0.0, found), np.nan)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        for index, letter in enumerate("ab"):
            if tangents[index] is not None:
                _refuse(self.name, f"{index} ({letter})")
        one, other, x = primals
        weight = _score(b, b.log(x), one, other) if self.parameter == "a" else _score(b, _log_of_rest(b, x), other, one)
        t = tangents[2]
        return (
            None if t is None else b.multiply(t, _times_where_nonzero(b, b.emit1(BetaDensity(), *primals), weight)),
        )


def _slope_of_beta(a: Numeric, b: Numeric, x: Numeric, rest: Numeric) -> Numeric:
    """The derivative of I_x(a, b) in a, from x and 1 - x: one of two tails, as of the incomplete gamma function.

    They are integrals over s, where log(t / (1 - t)) is log(x / (1 - x)) less s in one, plus s in the other.
    """
    center, normal = scipy_special.digamma(a) - scipy_special.digamma(a + b), scipy_special.betaln(a, b)
    logit = np.log(x) - np.log(rest)
    scale = 1 / (np.abs(a * rest - b * x) + np.sqrt(a * b / (a + b)) * np.sqrt(x * rest) + np.minimum(a, b) / 4)

    def log_density(of_t: Numeric) -> Any:
        return -a * np.logaddexp(0, -of_t) - b * np.logaddexp(0, of_t) - normal

    def weight(of_t: Numeric) -> Any:
        return -np.logaddexp(0, -of_t) - center

    below = _tail(lambda s: log_density(logit - s), lambda s: weight(logit - s), scale)
    above = _tail(lambda s: log_density(logit + s), lambda s: weight(logit + s), scale)
    return np.where(np.log(x) < center, below, -above)
