"""Arithmetic: sums, products, quotients, powers, extrema."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rematc.ir.batches import Batch
from rematc.ir.core import Emitter, Op
from rematc.ir.errors import TypeMismatchError
from rematc.ir.facts import Storage, Weight
from rematc.ir.ops.complex_parts import Complex, Conj, Imag, Real, part_dtype
from rematc.ir.ops.elementwise import (
    ANY,
    INEXACT,
    NOT_LINEAR,
    NUMBERS,
    ORDERED,
    SIGNED,
    Binary,
    Numeric,
    StepUnary,
    Unary,
    check_arity,
    check_kind,
)
from rematc.ir.registry import register
from rematc.ir.types import TensorType
from rematc.ir.values import Array, Derivatives, LinearOperand, Operands, Primals, Tangents, Types, Value, known


@register
@dataclass(frozen=True, slots=True)
class Negate(Unary):
    """-x."""

    name = "negate"
    weight = Weight.LIGHT
    kinds = NUMBERS

    def evaluate(self, *operands: Numeric) -> Any:
        return np.negative(operands[0])

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        return (None if tangents[0] is None else b.negate(tangents[0]),)

    def transpose(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        return (None if cts[0] is None else b.negate(cts[0]),)


@register
@dataclass(frozen=True, slots=True)
class Add(Binary):
    """x + y; on booleans, or."""

    name = "add"
    weight = Weight.LIGHT
    kinds = ANY

    def evaluate(self, *operands: Numeric) -> Any:
        return np.add(*operands)

    def tangent_x(self, b: Emitter, t: Value, x: Value, y: Value, z: Value) -> Value | None:
        return t

    def tangent_y(self, b: Emitter, t: Value, x: Value, y: Value, z: Value) -> Value | None:
        return t

    def transpose(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        return tuple([cts[0] if isinstance(operand, LinearOperand) else None for operand in operands])

    def commutes(self, operands: Types) -> bool:
        return True


@register
@dataclass(frozen=True, slots=True)
class Subtract(Binary):
    """x - y."""

    name = "subtract"
    weight = Weight.LIGHT

    def evaluate(self, *operands: Numeric) -> Any:
        return np.subtract(*operands)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        from_x, from_y = tangents
        if from_y is None:
            return (from_x,)
        return (b.negate(from_y) if from_x is None else b.subtract(from_x, from_y),)

    def transpose(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        (ct,), (x, y) = cts, operands
        if ct is None:
            return (None, None)
        return (
            ct if isinstance(x, LinearOperand) else None,
            b.negate(ct) if isinstance(y, LinearOperand) else None,
        )


@register
@dataclass(frozen=True, slots=True)
class Multiply(Binary):
    """x y; on booleans, and. Bilinear."""

    name = "multiply"
    weight = Weight.LIGHT
    kinds = ANY

    def evaluate(self, *operands: Numeric) -> Any:
        return np.multiply(*operands)

    def tangent_x(self, b: Emitter, t: Value, x: Value, y: Value, z: Value) -> Value | None:
        return b.multiply(t, y)

    def tangent_y(self, b: Emitter, t: Value, x: Value, y: Value, z: Value) -> Value | None:
        return b.multiply(x, t)

    def transpose(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        (ct,), (x, y) = cts, operands
        if ct is None:
            return (None, None)
        if isinstance(x, LinearOperand):
            y = known(y, "a product of two tangents is not linear")
            return (b.multiply(ct, y), None)
        return (None, b.multiply(x, ct))

    def commutes(self, operands: Types) -> bool:
        # Fused into a sum, one of the four products of complex numbers is not rounded; which one depends on the order.
        return not operands[0].dtype.is_complex


@register
@dataclass(frozen=True, slots=True)
class Divide(Binary):
    """x / y; on integers, the quotient rounded towards zero. Linear in x: d(x/y) = dx/y - z dy/y."""

    name = "divide"

    def evaluate(self, *operands: Numeric) -> Any:
        x, y = operands
        if x.dtype.kind in "iu":
            return _divide_integers(x, y)
        return np.divide(x, y)

    def tangent_x(self, b: Emitter, t: Value, x: Value, y: Value, z: Value) -> Value | None:
        return b.divide(t, y)

    def tangent_y(self, b: Emitter, t: Value, x: Value, y: Value, z: Value) -> Value | None:
        # The tangent first: what it meets is y and z, and not one more value to save that follows from them.
        return b.negate(b.multiply(b.divide(t, y), z))

    def transpose(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        (ct,), (_, y) = cts, operands
        if ct is None:
            return (None, None)
        y = known(y, "a quotient is not linear in its divisor")
        return (b.divide(ct, y), None)

    @property
    def is_exact(self) -> bool:
        return True


def _divide_integers(x: Numeric, y: Numeric) -> Numeric:
    """Quotient towards zero; a zero divisor gives -1 (all bits set), as XLA does where StableHLO leaves it open."""
    one, minus_one = np.asarray([1, -1]).astype(x.dtype)
    safe = np.where(y == 0, one, y)
    return np.where(y == 0, minus_one, (x - np.fmod(x, safe)) // safe)


@register
@dataclass(frozen=True, slots=True)
class Power(Binary):
    """x^y. dz = y x^(y-1) dx + z log(x) dy.

    The limits are taken where the terms have them: the first is 0 where x and y are, the second is 0 where x is 0.
    """

    name = "power"

    def evaluate(self, *operands: Numeric) -> Any:
        x, y = operands
        return _integer_power(x, y) if x.dtype.kind in "iu" else np.power(x, y)

    def tangent_x(self, b: Emitter, t: Value, x: Value, y: Value, z: Value) -> Value | None:
        # Elsewhere the product is 0 where y is, and its derivative in y is there.
        zero = b.zeros(y.type)
        is_limit = b.logical_and(b.compare(y, zero, "EQ"), b.compare(x, zero, "EQ"))
        slope = b.multiply(y, b.power(x, b.subtract(y, b.full(y.type, 1))))
        return b.multiply(t, b.select(is_limit, zero, slope))

    def tangent_y(self, b: Emitter, t: Value, x: Value, y: Value, z: Value) -> Value | None:
        is_zero = b.compare(x, b.zeros(x.type), "EQ")
        return b.multiply(t, b.multiply(z, b.log(b.select(is_zero, b.full(x.type, 1), x))))


def _integer_power(x: Numeric, y: Numeric) -> Numeric:
    """x^y modulo 2^bits by squaring; a negative y gives the reciprocal rounded to zero where there is one."""
    zero, one, minus_one = np.asarray([0, 1, -1]).astype(x.dtype)
    is_odd = (y & one).astype(bool)
    result, base, rest = np.ones_like(x), x, np.where(y < 0, zero, y)
    while rest.any():
        result = np.where(rest & one, result * base, result)
        base, rest = base * base, rest >> one
    unit = np.where(is_odd, x, one)
    reciprocal = np.where((x == one) | (x == minus_one), unit, zero)
    return np.where(y < 0, reciprocal, result)


@register
@dataclass(frozen=True, slots=True)
class IntegerPower(Unary):
    """x^n for a fixed integer n, as a product of squares of x. StableHLO has no such op; it keeps n in sight.

    Attributes:
        exponent: n; negative only for floating and complex x.
    """

    name = "integer_power"
    weight = Weight.MODERATE
    exponent: int

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 1)
        (x,) = operands
        check_kind(self, x, NUMBERS if self.exponent >= 0 else INEXACT)
        return (x,)

    def evaluate(self, *operands: Numeric) -> Any:
        (x,) = operands
        result, base, rest = np.ones_like(x), x, abs(self.exponent)
        while rest:
            result = result * base if rest & 1 else result
            base, rest = base * base, rest >> 1
        return 1 / result if self.exponent < 0 else result

    @property
    def is_exact(self) -> bool:
        return self.exponent == 2  # one product, rounded once

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        (t,) = tangents
        if t is None or self.exponent == 0:
            return (None,)
        if self.exponent == 1:
            return (t,)
        below = primals[0] if self.exponent == 2 else b.emit1(IntegerPower(self.exponent - 1), primals[0])
        return (b.multiply(t, b.scale(below, self.exponent)),)

    def flops(self, operands: Types, results: Types) -> int:
        products = abs(self.exponent).bit_length() + abs(self.exponent).bit_count() - 2 if self.exponent else 0
        divisions = int(self.exponent < 0)
        return (products + divisions) * results[0].size if results[0].dtype.is_inexact else 0


class Extremum(Binary):
    """Family base: the greater or the smaller operand, NaN if either is.

    Equal operands share the tangent in halves. Where one wins, the other has the derivative 0 whatever the tangent is;
    where an operand is NaN both have it times 0, so that a NaN is not lost (JAX's choice).
    """

    __slots__ = ()
    weight = Weight.LIGHT
    kinds = ORDERED
    #: the direction in which x compares to y where it is the result, alone or with y; and that for y
    x_stays: ClassVar[str]
    y_stays: ClassVar[str]

    def tangent_x(self, b: Emitter, t: Value, x: Value, y: Value, z: Value) -> Value | None:
        return self._share(b, t, b.compare(x, y, self.x_stays), b.compare(x, y, self.y_stays))

    def tangent_y(self, b: Emitter, t: Value, x: Value, y: Value, z: Value) -> Value | None:
        return self._share(b, t, b.compare(x, y, self.y_stays), b.compare(x, y, self.x_stays))

    def _share(self, b: Emitter, t: Value, mine: Value, other: Value) -> Value:
        # Choices rather than a product with a weight: the residuals are booleans, the same two for both operands.
        kept = b.select(other, b.scale(t, 0.5), t)
        lost = b.select(other, b.zeros(t.type), b.scale(t, 0))
        return b.select(mine, kept, lost)

    def commutes(self, operands: Types) -> bool:
        # Which of two zeros of different sign is the greater is left open.
        return not operands[0].dtype.is_inexact


@register
@dataclass(frozen=True, slots=True)
class Maximum(Extremum):
    """The greater of x and y; on booleans, or."""

    name = "maximum"
    x_stays, y_stays = "GE", "LE"

    def evaluate(self, *operands: Numeric) -> Any:
        x, y = operands
        if x.dtype.kind != "f":
            return np.maximum(x, y)
        # The sum of 0 and -0 is 0, which is the greater.
        return np.where((x == 0) & (y == 0), x + y, np.maximum(x, y))


@register
@dataclass(frozen=True, slots=True)
class Minimum(Extremum):
    """The smaller of x and y; on booleans, and."""

    name = "minimum"
    x_stays, y_stays = "LE", "GE"

    def evaluate(self, *operands: Numeric) -> Any:
        x, y = operands
        if x.dtype.kind != "f":
            return np.minimum(x, y)
        return np.where((x == 0) & (y == 0), -(-x - y), np.minimum(x, y))


@register
@dataclass(frozen=True, slots=True)
class Sign(StepUnary):
    """-1, 0 or 1 as x is negative, zero or positive; zeros keep their sign, NaN stays. Of complex numbers x / |x|.

    Off the real line it has a slope: what of t / |x| is at right angles to y, i y Im(conj(y) t) / |x|.
    """

    name = "sign"
    kinds = SIGNED

    def evaluate(self, *operands: Numeric) -> Any:
        (x,) = operands
        return np.where(x == 0, x, np.sign(x))

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        (x,), (y,), (t,) = primals, results, tangents
        if t is None or not x.type.dtype.is_complex:
            return (None,)
        turned = b.emit1(Imag(), b.multiply(t, b.emit1(Conj(), y)))
        angle = b.divide(turned, _one_if_zero(b, b.abs(x)))
        return (b.multiply(b.emit1(Complex(), b.zeros(angle.type), angle), y),)


@register
@dataclass(frozen=True, slots=True)
class Abs(Unary):
    """|x|; at 0, where it has a kink, with the derivative 1 (JAX's choice).

    Of complex numbers the magnitude, a real number: d|x| = Re(t conj(x)) / |x|, and 0 at 0.
    """

    name = "abs"
    weight = Weight.LIGHT
    kinds = SIGNED

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        (type,) = Unary.infer(self, operands)
        return (type.with_dtype(part_dtype(type.dtype)),)

    def evaluate(self, *operands: Numeric) -> Any:
        return np.abs(operands[0])

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        if operands[0].dtype.kind != "c":
            return Unary.reference(self, operands)
        with np.errstate(all="ignore"):
            return (np.asarray(np.abs(operands[0])),)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        (x,), (y,), (t,) = primals, results, tangents
        if t is None:
            return (None,)
        if not x.type.dtype.is_complex:
            return (b.select(b.compare(x, b.zeros(x.type), "GE"), t, b.negate(t)),)
        along = b.emit1(Real(), b.multiply(t, b.emit1(Conj(), x)))
        return (b.divide(along, _one_if_zero(b, y)),)


def _one_if_zero(b: Emitter, x: Value) -> Value:
    return b.select(b.compare(x, b.zeros(x.type), "EQ"), b.full(x.type, 1), x)


@register
@dataclass(frozen=True, slots=True)
class Clamp(Op):
    """The second operand, kept between the first and the third: minimum(maximum(x, low), high).

    The bounds have x's shape or are scalars. Where x is at a bound its tangent is zero.
    """

    name = "clamp"
    storage = Storage.FUSED
    weight = Weight.LIGHT
    is_elementwise = True
    no_transpose = NOT_LINEAR

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 3)
        low, x, high = operands
        check_kind(self, x, ORDERED)
        for bound in (low, high):
            if bound.with_shape(x.shape) != x or bound.shape not in ((), x.shape):
                raise TypeMismatchError(f"'clamp' of {x} takes bounds of type {x} or {x.with_shape(())}, got {bound}")
        return (x,)

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        low, x, high = operands
        (raised,) = Maximum().reference((x, np.broadcast_to(low, x.shape)))
        return Minimum().reference((raised, np.broadcast_to(high, x.shape)))

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        type = results[0].type
        low, x, high = [b.broadcast_in_dim(value, type.shape, ()) for value in primals]
        from_low, from_x, from_high = tangents
        parts: list[tuple[Value, Value]] = []
        if from_low is not None:
            parts.append((from_low, b.logical_and(b.compare(x, low, "LT"), b.compare(low, high, "LT"))))
        if from_x is not None:
            parts.append((from_x, b.logical_and(b.compare(x, low, "GT"), b.compare(x, high, "LT"))))
        if from_high is not None:
            parts.append((from_high, b.compare(x, high, "GT")))
        zero = b.zeros(type)
        chosen = [b.select(where, b.broadcast_in_dim(t, type.shape, ()), zero) for t, where in parts]
        total = chosen[0]
        for part in chosen[1:]:
            total = b.add(total, part)
        return (total,)

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        low, x, high = batch.operands
        x = batch.batched(b, x, batch.is_batched[1])
        bounds = []
        for bound, is_set in ((low, batch.is_batched[0]), (high, batch.is_batched[2])):
            is_scalar = not is_set and not bound.type.rank
            full = bound if is_scalar else batch.batched(b, bound, is_set)
            bounds.append(bound if is_scalar else b.broadcast_in_dim(full, x.type.shape, range(full.type.rank)))
        return b.emit(self, bounds[0], x, bounds[1])

    def flops(self, operands: Types, results: Types) -> int:
        return 2 * results[0].size if results[0].dtype.is_float else 0
