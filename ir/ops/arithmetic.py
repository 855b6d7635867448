"""Arithmetic: sums, products, quotients, powers, extrema."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rematc.ir.core import Array, Derivatives, Emitter, LinearOperand, Operands, Primals, Tangents, Value, register
from rematc.ir.ops.elementwise import ANY, NUMBERS, Binary, Unary


@register
@dataclass(frozen=True, slots=True)
class Negate(Unary):
    """-x."""

    name = "negate"
    kinds = NUMBERS

    def evaluate(self, *operands: Array) -> Any:
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
    kinds = ANY

    def evaluate(self, *operands: Array) -> Any:
        return np.add(*operands)

    def tangent_x(self, b: Emitter, t: Value, x: Value, y: Value, z: Value) -> Value | None:
        return t

    def tangent_y(self, b: Emitter, t: Value, x: Value, y: Value, z: Value) -> Value | None:
        return t

    def transpose(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        return tuple([cts[0] if isinstance(operand, LinearOperand) else None for operand in operands])


@register
@dataclass(frozen=True, slots=True)
class Subtract(Binary):
    """x - y."""

    name = "subtract"

    def evaluate(self, *operands: Array) -> Any:
        return np.subtract(*operands)

    def tangent_x(self, b: Emitter, t: Value, x: Value, y: Value, z: Value) -> Value | None:
        return t

    def tangent_y(self, b: Emitter, t: Value, x: Value, y: Value, z: Value) -> Value | None:
        return b.negate(t)

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
    kinds = ANY

    def evaluate(self, *operands: Array) -> Any:
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
            assert not isinstance(y, LinearOperand), "a product of two tangents is not linear"
            return (b.multiply(ct, y), None)
        return (None, b.multiply(x, ct))


@register
@dataclass(frozen=True, slots=True)
class Divide(Binary):
    """x / y; on integers, the quotient rounded towards zero. Linear in x: d(x/y) = dx/y - z dy/y."""

    name = "divide"

    def evaluate(self, *operands: Array) -> Any:
        x, y = operands
        if x.dtype.kind in "iu":
            return _divide_integers(x, y)
        return np.divide(x, y)

    def tangent_x(self, b: Emitter, t: Value, x: Value, y: Value, z: Value) -> Value | None:
        return b.divide(t, y)

    def tangent_y(self, b: Emitter, t: Value, x: Value, y: Value, z: Value) -> Value | None:
        return b.multiply(t, b.negate(b.divide(z, y)))

    def transpose(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        (ct,), (_, y) = cts, operands
        if ct is None:
            return (None, None)
        assert not isinstance(y, LinearOperand), "a quotient is not linear in its divisor"
        return (b.divide(ct, y), None)


def _divide_integers(x: Array, y: Array) -> Array:
    """Quotient towards zero; a zero divisor gives -1 (all bits set), as XLA does where StableHLO leaves it open."""
    safe = np.where(y == 0, 1, y).astype(x.dtype)
    quotient = np.where((x < 0) != (safe < 0), -(np.abs(x) // np.abs(safe)), np.abs(x) // np.abs(safe))
    return np.where(y == 0, np.asarray(-1).astype(x.dtype), quotient).astype(x.dtype)
