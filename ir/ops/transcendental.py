"""Transcendental functions and roots, under the names of StableHLO: exponentials, logarithms, circular functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from rematc.ir.core import Emitter
from rematc.ir.ops.arithmetic import Abs, IntegerPower
from rematc.ir.ops.elementwise import FLOATS, INEXACT, InverseFunction, Numeric, Unary, one_minus, one_plus, square
from rematc.ir.registry import register
from rematc.ir.values import Value


@register
@dataclass(frozen=True, slots=True)
class Exponential(Unary):
    """e^x.

    Attributes:
        is_accurate: whether it is asked for as accurately as the device can, however long that takes.
    """

    name = "exponential"
    kinds = INEXACT
    is_accurate: bool = False

    def evaluate(self, *operands: Numeric) -> Any:
        return np.exp(operands[0])

    def derivative(self, b: Emitter, x: Value, y: Value) -> Value:
        return y


@register
@dataclass(frozen=True, slots=True)
class ExponentialMinusOne(Unary):
    """e^x - 1, accurate near 0."""

    name = "exponential_minus_one"
    kinds = INEXACT

    def evaluate(self, *operands: Numeric) -> Any:
        return np.expm1(operands[0])

    def derivative(self, b: Emitter, x: Value, y: Value) -> Value:
        return one_plus(b, y)


@register
@dataclass(frozen=True, slots=True)
class Log(InverseFunction):
    """The natural logarithm."""

    name = "log"
    kinds = INEXACT

    def evaluate(self, *operands: Numeric) -> Any:
        return np.log(operands[0])

    def slope(self, b: Emitter, x: Value, y: Value) -> Value:
        return x


@register
@dataclass(frozen=True, slots=True)
class LogPlusOne(InverseFunction):
    """log(1 + x), accurate near 0."""

    name = "log_plus_one"
    kinds = INEXACT

    def evaluate(self, *operands: Numeric) -> Any:
        return np.log1p(operands[0])

    def slope(self, b: Emitter, x: Value, y: Value) -> Value:
        return one_plus(b, x)


@register
@dataclass(frozen=True, slots=True)
class Logistic(Unary):
    """1 / (1 + e^-x), with derivative y (1 - y)."""

    name = "logistic"
    kinds = INEXACT

    def evaluate(self, *operands: Numeric) -> Any:
        (x,) = operands
        return 1 / (1 + np.exp(-x)) if x.dtype.kind == "c" else special.expit(x)

    def derivative(self, b: Emitter, x: Value, y: Value) -> Value:
        return b.multiply(y, one_minus(b, y))


@register
@dataclass(frozen=True, slots=True)
class Sine(Unary):
    """sin x."""

    name = "sine"
    kinds = INEXACT

    def evaluate(self, *operands: Numeric) -> Any:
        return np.sin(operands[0])

    def derivative(self, b: Emitter, x: Value, y: Value) -> Value:
        return b.cosine(x)


@register
@dataclass(frozen=True, slots=True)
class Cosine(Unary):
    """cos x."""

    name = "cosine"
    kinds = INEXACT

    def evaluate(self, *operands: Numeric) -> Any:
        return np.cos(operands[0])

    def derivative(self, b: Emitter, x: Value, y: Value) -> Value:
        return b.negate(b.sine(x))


@register
@dataclass(frozen=True, slots=True)
class Tan(Unary):
    """tan x, with derivative 1 + y^2."""

    name = "tan"
    kinds = INEXACT

    def evaluate(self, *operands: Numeric) -> Any:
        return np.tan(operands[0])

    def derivative(self, b: Emitter, x: Value, y: Value) -> Value:
        return one_plus(b, square(b, y))


@register
@dataclass(frozen=True, slots=True)
class Tanh(Unary):
    """tanh x, with derivative (1 - y)(1 + y): 1 - y^2 without its cancellation where |y| is near 1."""

    name = "tanh"
    kinds = INEXACT

    def evaluate(self, *operands: Numeric) -> Any:
        return np.tanh(operands[0])

    def derivative(self, b: Emitter, x: Value, y: Value) -> Value:
        return b.multiply(one_minus(b, y), one_plus(b, y))


@register
@dataclass(frozen=True, slots=True)
class Sqrt(InverseFunction):
    """The square root."""

    name = "sqrt"
    kinds = INEXACT

    def evaluate(self, *operands: Numeric) -> Any:
        return np.sqrt(operands[0])

    def slope(self, b: Emitter, x: Value, y: Value) -> Value:
        return b.scale(y, 2)


@register
@dataclass(frozen=True, slots=True)
class Rsqrt(Unary):
    """1 / sqrt(x), with derivative -y^3 / 2, which needs no x. At -0, where y is -infinity, it falls as at 0."""

    name = "rsqrt"
    kinds = INEXACT

    def evaluate(self, *operands: Numeric) -> Any:
        return 1 / np.sqrt(operands[0])

    def derivative(self, b: Emitter, x: Value, y: Value) -> Value:
        magnitude = y if y.type.dtype.is_complex else b.emit1(Abs(), y)
        return b.multiply(b.scale(magnitude, -0.5), square(b, y))


@register
@dataclass(frozen=True, slots=True)
class Cbrt(Unary):
    """The real cube root, with derivative y^-2 / 3."""

    name = "cbrt"
    kinds = FLOATS

    def evaluate(self, *operands: Numeric) -> Any:
        return np.cbrt(operands[0])

    def derivative(self, b: Emitter, x: Value, y: Value) -> Value:
        return b.scale(b.emit1(IntegerPower(-2), y), 1 / 3)
