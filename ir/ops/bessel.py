"""Bessel functions of real order, of both kinds, and the modified ones: functions of (order, x).

CHLO has only the scaled modified function of order 1, `bessel_i1e`. The others are lowered as continued fractions,
series and recurrences. Derivatives in x are differences of neighbouring orders (DLMF 10.6.1, 10.29.1); the order has no
derivative here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import special as scipy_special

from rematc.ir.core import Emitter
from rematc.ir.errors import MissingRuleError
from rematc.ir.facts import Storage
from rematc.ir.ops.arithmetic import Sign
from rematc.ir.ops.elementwise import FLOATS, Binary, Numeric, Unary
from rematc.ir.ops.incomplete import FLOPS_OF_ELEMENT, in_double
from rematc.ir.registry import register
from rematc.ir.values import Types, Value


class Bessel(Binary):
    """A function of (order, x) whose derivative in x is made of the functions of order - 1 and order + 1.

    A member gives the factors of these two in its derivative.
    """

    __slots__ = ()
    kinds = FLOATS
    storage = Storage.WRITTEN  # by loops
    below: ClassVar[float]
    above: ClassVar[float]

    def tangent_x(self, b: Emitter, t: Value, x: Value, y: Value, z: Value) -> Value | None:
        raise MissingRuleError(
            f"jvp of '{self.name}' in its operand 0, the order, does not exist; keep the order constant"
        )

    def tangent_y(self, b: Emitter, t: Value, x: Value, y: Value, z: Value) -> Value | None:
        return b.multiply(t, self.slope(b, x, y, z))

    def slope(self, b: Emitter, order: Value, x: Value, z: Value) -> Value:
        """The derivative in x."""
        one = b.full(order.type, 1)
        below, above = b.emit1(self, b.subtract(order, one), x), b.emit1(self, b.add(order, one), x)
        return b.add(b.scale(below, self.below), b.scale(above, self.above))

    def flops(self, operands: Types, results: Types) -> int:
        return FLOPS_OF_ELEMENT * results[0].size


def _with_limits(v: Numeric, x: Numeric, found: Numeric) -> Numeric:
    """`found` with the limit 0 at infinite x, where SciPy has NaN; NaN for infinite orders."""
    return np.where(np.isfinite(v), np.where(np.isposinf(x), 0.0, found), np.nan)


def _with_both_limits(v: Numeric, x: Numeric, found: Numeric) -> Numeric:
    """As `_with_limits`, of a function that is even or odd where the order is whole."""
    return _with_limits(v, x, np.where(np.isneginf(x) & (v == np.floor(v)), 0.0, found))


def _below_order_zero(v: Numeric) -> Numeric:
    """J and I at x = 0 for negative orders: 0 where they are whole, else infinite, with the sign of gamma(v + 1)."""
    return np.where(v == np.floor(v), 0.0, scipy_special.gammasgn(v + 1) * np.inf)


@register
@dataclass(frozen=True, slots=True)
class BesselJ(Bessel):
    """J of the first kind; NaN for x < 0 unless the order is whole."""

    name = "bessel_j"
    below, above = 0.5, -0.5

    def evaluate(self, *operands: Numeric) -> Any:
        v, x = in_double(operands)
        at_zero = (x == 0) & (v < 0)
        return _with_both_limits(v, x, np.where(at_zero, _below_order_zero(v), scipy_special.jv(v, x)))


@register
@dataclass(frozen=True, slots=True)
class BesselY(Bessel):
    """Y of the second kind, for x > 0; -infinity at 0."""

    name = "bessel_y"
    below, above = 0.5, -0.5

    def evaluate(self, *operands: Numeric) -> Any:
        v, x = in_double(operands)
        is_half = (v < 0) & (v - np.floor(v) == 0.5)
        at_zero = np.where(v < 0, np.where(is_half, 0.0, -np.cos(np.pi * v) * np.inf), -np.inf)
        return _with_limits(v, x, np.where((x == 0), at_zero, scipy_special.yv(v, x)))


@register
@dataclass(frozen=True, slots=True)
class BesselI(Bessel):
    """I, the modified function of the first kind; NaN for x < 0 unless the order is whole."""

    name = "bessel_i"
    below, above = 0.5, 0.5

    def evaluate(self, *operands: Numeric) -> Any:
        v, x = in_double(operands)
        found = np.where((x == 0) & (v < 0), _below_order_zero(v), scipy_special.iv(v, x))
        at_infinity = np.where((v % 2 == 1) & (x < 0), -np.inf, np.inf)
        is_limit = np.isinf(x) & ((x > 0) | (v == np.floor(v)))
        return np.where(np.isfinite(v), np.where(is_limit, at_infinity, found), np.nan)


@register
@dataclass(frozen=True, slots=True)
class BesselIe(Bessel):
    """I(x) e^-|x|, which does not overflow."""

    name = "bessel_ie"
    below, above = 0.5, 0.5

    def evaluate(self, *operands: Numeric) -> Any:
        v, x = in_double(operands)
        at_zero = (x == 0) & (v < 0)
        return _with_both_limits(v, x, np.where(at_zero, _below_order_zero(v), scipy_special.ive(v, x)))

    def slope(self, b: Emitter, order: Value, x: Value, z: Value) -> Value:
        # At 0, where e^-|x| has a kink, its slope is the mean of both sides'.
        away = b.multiply(b.emit1(Sign(), x), z)
        return b.subtract(Bessel.slope(self, b, order, x, z), away)


@register
@dataclass(frozen=True, slots=True)
class BesselK(Bessel):
    """K, the modified function of the second kind, for x > 0; infinity at 0."""

    name = "bessel_k"
    below, above = -0.5, -0.5

    def evaluate(self, *operands: Numeric) -> Any:
        v, x = in_double(operands)
        return _with_limits(v, x, scipy_special.kv(v, x))


@register
@dataclass(frozen=True, slots=True)
class BesselKe(Bessel):
    """K(x) e^x, which does not underflow."""

    name = "bessel_ke"
    below, above = -0.5, -0.5

    def evaluate(self, *operands: Numeric) -> Any:
        v, x = in_double(operands)
        return _with_limits(v, x, scipy_special.kve(v, x))

    def slope(self, b: Emitter, order: Value, x: Value, z: Value) -> Value:
        return b.add(Bessel.slope(self, b, order, x, z), z)


@register
@dataclass(frozen=True, slots=True)
class BesselI1e(Unary):
    """I(x) e^-|x| of order 1, CHLO's op; its derivative is the mean of those of orders 0 and 2, less it towards 0."""

    name = "bessel_i1e"
    kinds = FLOATS

    def evaluate(self, *operands: Numeric) -> Any:
        return scipy_special.i1e(operands[0].astype(np.float64))

    def derivative(self, b: Emitter, x: Value, y: Value) -> Value:
        return BesselIe().slope(b, b.full(x.type, 1), x, y)
