"""Inverse circular functions, hyperbolic functions and their inverses, under the names of CHLO."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rematc.ir.core import Emitter
from rematc.ir.ops.elementwise import (
    FLOATS,
    INEXACT,
    Binary,
    InverseFunction,
    Numeric,
    Unary,
    one_minus,
    one_plus,
    square,
)
from rematc.ir.registry import register
from rematc.ir.values import Value


def _one_minus_square(b: Emitter, x: Value) -> Value:
    """1 - x^2 as (1 - x)(1 + x), without its cancellation where |x| is near 1."""
    return b.multiply(one_minus(b, x), one_plus(b, x))


@register
@dataclass(frozen=True, slots=True)
class Asin(InverseFunction):
    """The inverse sine; dx/dy = cos y = sqrt(1 - x^2)."""

    name = "asin"
    kinds = INEXACT

    def evaluate(self, *operands: Numeric) -> Any:
        return np.arcsin(operands[0])

    def slope(self, b: Emitter, x: Value, y: Value) -> Value:
        return b.sqrt(_one_minus_square(b, x))


@register
@dataclass(frozen=True, slots=True)
class Acos(InverseFunction):
    """The inverse cosine; dx/dy = -sin y = -sqrt(1 - x^2)."""

    name = "acos"
    kinds = INEXACT

    def evaluate(self, *operands: Numeric) -> Any:
        return np.arccos(operands[0])

    def slope(self, b: Emitter, x: Value, y: Value) -> Value:
        return b.negate(b.sqrt(_one_minus_square(b, x)))


@register
@dataclass(frozen=True, slots=True)
class Atan(InverseFunction):
    """The inverse tangent; dx/dy = 1 + x^2."""

    name = "atan"
    kinds = INEXACT

    def evaluate(self, *operands: Numeric) -> Any:
        return np.arctan(operands[0])

    def slope(self, b: Emitter, x: Value, y: Value) -> Value:
        return one_plus(b, square(b, x))


@register
@dataclass(frozen=True, slots=True)
class Atan2(Binary):
    """The angle of the point with ordinate x and abscissa y: dz = (y dx - x dy) / (x^2 + y^2)."""

    name = "atan2"
    kinds = FLOATS

    def evaluate(self, *operands: Numeric) -> Any:
        return np.arctan2(*operands)

    def tangent_x(self, b: Emitter, t: Value, x: Value, y: Value, z: Value) -> Value | None:
        return b.multiply(t, b.divide(y, b.add(square(b, x), square(b, y))))

    def tangent_y(self, b: Emitter, t: Value, x: Value, y: Value, z: Value) -> Value | None:
        return b.multiply(t, b.negate(b.divide(x, b.add(square(b, x), square(b, y)))))


@register
@dataclass(frozen=True, slots=True)
class Sinh(Unary):
    """The hyperbolic sine."""

    name = "sinh"
    kinds = INEXACT

    def evaluate(self, *operands: Numeric) -> Any:
        return np.sinh(operands[0])

    def derivative(self, b: Emitter, x: Value, y: Value) -> Value:
        return b.emit1(Cosh(), x)


@register
@dataclass(frozen=True, slots=True)
class Cosh(Unary):
    """The hyperbolic cosine."""

    name = "cosh"
    kinds = INEXACT

    def evaluate(self, *operands: Numeric) -> Any:
        return np.cosh(operands[0])

    def derivative(self, b: Emitter, x: Value, y: Value) -> Value:
        return b.emit1(Sinh(), x)


@register
@dataclass(frozen=True, slots=True)
class Asinh(InverseFunction):
    """The inverse hyperbolic sine; dx/dy = cosh y = sqrt(1 + x^2)."""

    name = "asinh"
    kinds = INEXACT

    def evaluate(self, *operands: Numeric) -> Any:
        return np.arcsinh(operands[0])

    def slope(self, b: Emitter, x: Value, y: Value) -> Value:
        return b.sqrt(one_plus(b, square(b, x)))


@register
@dataclass(frozen=True, slots=True)
class Acosh(InverseFunction):
    """The inverse hyperbolic cosine; dx/dy = sinh y = sqrt(x - 1) sqrt(x + 1), also off the real line."""

    name = "acosh"
    kinds = INEXACT

    def evaluate(self, *operands: Numeric) -> Any:
        return np.arccosh(operands[0])

    def slope(self, b: Emitter, x: Value, y: Value) -> Value:
        return b.multiply(b.sqrt(b.subtract(x, b.full(x.type, 1))), b.sqrt(one_plus(b, x)))


@register
@dataclass(frozen=True, slots=True)
class Atanh(InverseFunction):
    """The inverse hyperbolic tangent; dx/dy = 1 - x^2."""

    name = "atanh"
    kinds = INEXACT

    def evaluate(self, *operands: Numeric) -> Any:
        return np.arctanh(operands[0])

    def slope(self, b: Emitter, x: Value, y: Value) -> Value:
        return _one_minus_square(b, x)
