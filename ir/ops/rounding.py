"""Integer parts of floats, remainders, neighbours, finiteness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rematc.ir.batches import Batch
from rematc.ir.core import Emitter, Op
from rematc.ir.errors import MissingRuleError
from rematc.ir.facts import Storage, Weight
from rematc.ir.ops.batching import batch_alike
from rematc.ir.ops.elementwise import (
    FLOATS,
    NOT_LINEAR,
    REALS,
    Binary,
    Numeric,
    StepUnary,
    check_arity,
    check_kind,
    widened,
)
from rematc.ir.registry import register
from rematc.ir.types import BOOL, TensorType
from rematc.ir.values import Array, Derivatives, Primals, Tangents, Types, Value


@register
@dataclass(frozen=True, slots=True)
class Floor(StepUnary):
    """The greatest integer not above x."""

    name = "floor"
    kinds = FLOATS

    def evaluate(self, *operands: Numeric) -> Any:
        return np.floor(operands[0])


@register
@dataclass(frozen=True, slots=True)
class Ceil(StepUnary):
    """The smallest integer not below x."""

    name = "ceil"
    kinds = FLOATS

    def evaluate(self, *operands: Numeric) -> Any:
        return np.ceil(operands[0])


@register
@dataclass(frozen=True, slots=True)
class RoundNearestEven(StepUnary):
    """The nearest integer; halves go to the even one."""

    name = "round_nearest_even"
    kinds = FLOATS

    def evaluate(self, *operands: Numeric) -> Any:
        return np.rint(operands[0])


@register
@dataclass(frozen=True, slots=True)
class RoundNearestAfz(StepUnary):
    """The nearest integer; halves go away from zero."""

    name = "round_nearest_afz"
    kinds = FLOATS

    def evaluate(self, *operands: Numeric) -> Any:
        (x,) = operands
        whole = np.trunc(x)
        # The difference is exact; where x is infinite it is NaN, and nothing is added.
        return np.copysign(np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(1, x), whole), x)


@register
@dataclass(frozen=True, slots=True)
class Remainder(Binary):
    """x - y q for the quotient q = x / y rounded towards zero, so with the sign of x: dz = dx - q dy.

    A zero divisor leaves integers as they are (StableHLO leaves it open; this is XLA's choice) and makes floats NaN.
    """

    name = "remainder"
    kinds = REALS

    def evaluate(self, *operands: Numeric) -> Any:
        x, y = operands
        if x.dtype.kind not in "iu":
            return np.fmod(x, y)
        return np.where(y == 0, x, np.fmod(x, np.where(y == 0, np.ones_like(y), y)))

    def tangent_x(self, b: Emitter, t: Value, x: Value, y: Value, z: Value) -> Value | None:
        return t

    def tangent_y(self, b: Emitter, t: Value, x: Value, y: Value, z: Value) -> Value | None:
        # x - z is a multiple of y but for its rounding, which the nearest integer takes away. Where z is NaN the
        # quotient may be infinite.
        multiple = b.select(b.compare(z, z, "EQ"), b.subtract(x, z), x)
        quotient = b.emit1(RoundNearestEven(), b.divide(multiple, y))
        return b.multiply(t, b.negate(quotient))


@register
@dataclass(frozen=True, slots=True)
class NextAfter(Binary):
    """The neighbour of x, in its element type, in the direction of y (CHLO)."""

    name = "next_after"
    weight = Weight.MODERATE
    kinds = FLOATS
    no_jvp = "does not exist: the result is a function of the bits of x"

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        with np.errstate(all="ignore"):
            return (np.asarray(np.nextafter(*operands)),)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        raise MissingRuleError(f"jvp of '{self.name}' {self.no_jvp}")


@register
@dataclass(frozen=True, slots=True)
class IsFinite(Op):
    """Whether x is neither infinite nor NaN."""

    name = "is_finite"
    storage = Storage.FUSED
    weight = Weight.LIGHT
    is_elementwise = True
    no_transpose = NOT_LINEAR

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 1)
        check_kind(self, operands[0], FLOATS)
        return (operands[0].with_dtype(BOOL),)

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (np.asarray(np.isfinite(widened(operands[0]))),)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        return (None,)

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        return batch_alike(self, b, batch)

    def flops(self, operands: Types, results: Types) -> int:
        return results[0].size
