"""Special functions under the names of CHLO: the error function and its relatives, the gamma function's logarithm."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from rematc.ir.core import Emitter
from rematc.ir.errors import MissingRuleError
from rematc.ir.ops.elementwise import COMPLEX, FLOATS, Binary, Numeric, Unary, square
from rematc.ir.registry import register
from rematc.ir.values import Derivatives, Primals, Tangents, Value


def _gauss(b: Emitter, x: Value, factor: float) -> Value:
    """factor e^(-x^2)."""
    return b.scale(b.exponential(b.negate(square(b, x))), factor)


@register
@dataclass(frozen=True, slots=True)
class Erf(Unary):
    """The error function, with derivative 2 / sqrt(pi) e^(-x^2)."""

    name = "erf"
    kinds = FLOATS

    def evaluate(self, *operands: Numeric) -> Any:
        return special.erf(operands[0])

    def derivative(self, b: Emitter, x: Value, y: Value) -> Value:
        return _gauss(b, x, 2 / math.sqrt(math.pi))


@register
@dataclass(frozen=True, slots=True)
class Erfc(Unary):
    """1 - erf x, accurate where erf x is near 1."""

    name = "erfc"
    kinds = FLOATS

    def evaluate(self, *operands: Numeric) -> Any:
        return special.erfc(operands[0])

    def derivative(self, b: Emitter, x: Value, y: Value) -> Value:
        return _gauss(b, x, -2 / math.sqrt(math.pi))


@register
@dataclass(frozen=True, slots=True)
class ComplexErf(Unary):
    """The error function of complex numbers, which CHLO's is not defined for; an entire function."""

    name = "complex_erf"
    kinds = COMPLEX

    def evaluate(self, *operands: Numeric) -> Any:
        return special.erf(operands[0])

    def derivative(self, b: Emitter, x: Value, y: Value) -> Value:
        return _gauss(b, x, 2 / math.sqrt(math.pi))


@register
@dataclass(frozen=True, slots=True)
class ComplexErfc(Unary):
    """1 - erf x of complex numbers, accurate where erf x is near 1."""

    name = "complex_erfc"
    kinds = COMPLEX

    def evaluate(self, *operands: Numeric) -> Any:
        return special.erfc(operands[0])

    def derivative(self, b: Emitter, x: Value, y: Value) -> Value:
        return _gauss(b, x, -2 / math.sqrt(math.pi))


@register
@dataclass(frozen=True, slots=True)
class ErfInv(Unary):
    """The inverse of the error function, with derivative sqrt(pi) / 2 e^(y^2)."""

    name = "erf_inv"
    kinds = FLOATS

    def evaluate(self, *operands: Numeric) -> Any:
        (x,) = operands
        return np.where(x == 0, x, special.erfinv(x))  # SciPy loses the sign of -0

    def derivative(self, b: Emitter, x: Value, y: Value) -> Value:
        return b.scale(b.exponential(square(b, y)), math.sqrt(math.pi) / 2)


@register
@dataclass(frozen=True, slots=True)
class ErfcInv(Unary):
    """The inverse of erfc, accurate where that is small, with derivative -sqrt(pi) / 2 e^(y^2)."""

    name = "erfc_inv"
    kinds = FLOATS

    def evaluate(self, *operands: Numeric) -> Any:
        return special.erfcinv(operands[0].astype(np.float64))

    def derivative(self, b: Emitter, x: Value, y: Value) -> Value:
        return b.scale(b.exponential(square(b, y)), -math.sqrt(math.pi) / 2)


@register
@dataclass(frozen=True, slots=True)
class Lgamma(Unary):
    """log |gamma(x)|, with derivative digamma(x)."""

    name = "lgamma"
    kinds = FLOATS

    def evaluate(self, *operands: Numeric) -> Any:
        (x,) = operands
        return np.where(np.isinf(x), np.inf, special.gammaln(x))

    def derivative(self, b: Emitter, x: Value, y: Value) -> Value:
        return b.emit1(Digamma(), x)


@register
@dataclass(frozen=True, slots=True)
class Digamma(Unary):
    """The derivative of log gamma(x); its own is polygamma(1, x). NaN at its poles 0, -1, -2, ..."""

    name = "digamma"
    kinds = FLOATS

    def evaluate(self, *operands: Numeric) -> Any:
        (x,) = operands
        return np.where((x <= 0) & (x == np.floor(x)), np.nan, special.digamma(x))

    def derivative(self, b: Emitter, x: Value, y: Value) -> Value:
        return b.emit1(Polygamma(), b.full(x.type, 1), x)


@register
@dataclass(frozen=True, slots=True)
class Zeta(Binary):
    """Hurwitz's zeta function, the sum of (q + k)^-s over k = 0, 1, ..., for s > 1.

    Its derivative in q is -s times the function at s + 1; in s it has none here.
    """

    name = "zeta"
    kinds = FLOATS

    def evaluate(self, *operands: Numeric) -> Any:
        return special.zeta(*operands)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        (s, q), (from_s, t) = primals, tangents
        if from_s is not None:
            raise MissingRuleError("jvp of 'zeta' in its operand 0, the exponent, does not exist; keep it constant")
        if t is None:
            return (None,)
        following = b.emit1(self, b.add(s, b.full(s.type, 1)), q)
        return (b.negate(b.multiply(t, b.multiply(s, following))),)


@register
@dataclass(frozen=True, slots=True)
class Polygamma(Binary):
    """The derivative of order n = 1, 2, ... of digamma at x: (-1)^(n+1) n! zeta(n + 1, x); for n = 0, digamma itself.

    The order is the first operand, an array of floats (CHLO's convention); NaN where it is no natural number.
    """

    name = "polygamma"
    kinds = FLOATS

    def evaluate(self, *operands: Numeric) -> Any:
        order, x = operands
        is_order = (order >= 0) & (order == np.floor(order))
        safe = np.where(is_order & np.isfinite(order), order, 1)
        derivative = np.where(safe % 2 == 0, -1, 1) * special.gamma(safe + 1) * special.zeta(safe + 1, x)
        return np.where(is_order, np.where(order == 0, Digamma().evaluate(x), derivative), np.nan)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        (order, x), (from_order, t) = primals, tangents
        if from_order is not None:
            raise MissingRuleError("jvp of 'polygamma' in its order does not exist: the order is a whole number")
        if t is None:
            return (None,)
        return (b.multiply(t, b.emit1(self, b.add(order, b.full(order.type, 1)), x)),)
