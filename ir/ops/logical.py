"""Bits, truth values and choice: bitwise ops, shifts, comparison, select."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rematc.ir.batches import Batch
from rematc.ir.core import Emitter, Op
from rematc.ir.errors import TypeMismatchError
from rematc.ir.facts import Storage, Weight
from rematc.ir.ops.batching import batch_alike
from rematc.ir.ops.elementwise import (
    INTEGERS,
    INTEGRAL,
    NO_TANGENT,
    NOT_LINEAR,
    Elementwise,
    Numeric,
    check_arity,
    check_same,
    widened,
)
from rematc.ir.registry import register
from rematc.ir.types import BOOL, TensorType, dtype_of_numpy
from rematc.ir.values import Array, Derivatives, LinearOperand, Operands, Primals, Tangents, Types, Value, known


class Bitwise(Elementwise):
    """Family base: the result's bits from the operands' bits at the same place; on booleans, logic."""

    __slots__ = ()
    weight = Weight.LIGHT
    kinds = INTEGRAL
    no_jvp = NO_TANGENT
    function: ClassVar[Callable[..., Any]]

    def evaluate(self, *operands: Numeric) -> Any:
        return type(self).function(*operands)

    def commutes(self, operands: Types) -> bool:
        return len(operands) == 2


@register
@dataclass(frozen=True, slots=True)
class And(Bitwise):
    """x and y."""

    name = "and"
    arity = 2
    function = np.bitwise_and


@register
@dataclass(frozen=True, slots=True)
class Or(Bitwise):
    """x or y."""

    name = "or"
    arity = 2
    function = np.bitwise_or


@register
@dataclass(frozen=True, slots=True)
class Xor(Bitwise):
    """x exclusive-or y."""

    name = "xor"
    arity = 2
    function = np.bitwise_xor


@register
@dataclass(frozen=True, slots=True)
class Not(Bitwise):
    """not x."""

    name = "not"
    arity = 1
    function = np.invert


_COMPARISONS: dict[str, Callable[..., Any]] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "GE": np.greater_equal,
    "GT": np.greater,
    "LE": np.less_equal,
    "LT": np.less,
}


@register
@dataclass(frozen=True, slots=True)
class Compare(Op):
    """Whether x `direction` y, element by element. A NaN is unequal to everything.

    Attributes:
        direction: EQ, NE, GE, GT, LE or LT. Complex numbers have only EQ and NE.
    """

    name = "compare"
    storage = Storage.FUSED
    weight = Weight.LIGHT
    is_elementwise = True
    direction: str
    no_transpose = NOT_LINEAR

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 2)
        check_same(self, operands)
        if self.direction not in _COMPARISONS:
            raise TypeMismatchError(f"'compare' has the directions {', '.join(_COMPARISONS)}, got {self.direction!r}")
        if operands[0].dtype.is_complex and self.direction not in ("EQ", "NE"):
            raise TypeMismatchError(f"'compare' {self.direction} takes real operands, got {operands[0]}")
        return (operands[0].with_dtype(BOOL),)

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        x, y = operands
        return (np.asarray(_COMPARISONS[self.direction](widened(x), widened(y))),)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        return (None,)

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        return batch_alike(self, b, batch)

    def flops(self, operands: Types, results: Types) -> int:
        return results[0].size if operands[0].dtype.is_inexact else 0

    def commutes(self, operands: Types) -> bool:
        return self.direction in ("EQ", "NE")


@register
@dataclass(frozen=True, slots=True)
class Select(Op):
    """Where the predicate holds the second operand, elsewhere the third. A scalar predicate chooses for all elements.

    Linear in the second and third operand.
    """

    name = "select"
    storage = Storage.FUSED
    weight = Weight.LIGHT
    is_elementwise = True

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 3)
        predicate, on_true, on_false = operands
        if predicate.dtype is not BOOL or predicate.shape not in ((), on_true.shape):
            raise TypeMismatchError(
                f"'select' takes a predicate of type {on_true.with_dtype(BOOL)} or bool[], got {predicate}"
            )
        check_same(self, (on_true, on_false))
        return (on_true,)

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (np.where(*operands),)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        _, on_true, on_false = tangents
        if on_true is None and on_false is None:
            return (None,)
        zero = b.zeros(results[0].type)
        return (b.select(primals[0], zero if on_true is None else on_true, zero if on_false is None else on_false),)

    def transpose(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        (ct,), (predicate, on_true, on_false) = cts, operands
        if ct is None:
            return (None, None, None)
        predicate = known(predicate, "select is not linear in its predicate")
        zero = b.zeros(ct.type)
        return (
            None,
            b.select(predicate, ct, zero) if isinstance(on_true, LinearOperand) else None,
            b.select(predicate, zero, ct) if isinstance(on_false, LinearOperand) else None,
        )

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        predicate, *choices = batch.all_batched(b)
        if not batch.is_batched[0] and not batch.operands[0].type.rank:
            predicate = batch.operands[0]
        elif predicate.type.shape != choices[0].type.shape:
            predicate = b.broadcast_in_dim(predicate, choices[0].type.shape, (0,))
        return b.emit(self, predicate, *choices)


def _bits(x: Array) -> int:
    dtype = dtype_of_numpy(x.dtype)
    assert dtype is not None, f"{x.dtype} is the element type of no tensor"
    return dtype.bits


class Shift(Elementwise):
    """Family base: x shifted by y bits, y read as unsigned. By as many bits as x has or more, nothing of x is left."""

    __slots__ = ()
    weight = Weight.LIGHT
    arity = 2
    kinds = INTEGERS
    no_jvp = NO_TANGENT

    def shifted(self, x: Numeric, y: Numeric, bits: int) -> Numeric:
        """x shifted by y, 0 <= y < bits."""
        raise NotImplementedError

    def beyond(self, x: Numeric, bits: int) -> Numeric:
        """What is left of x when all its bits are shifted out."""
        return np.zeros_like(x)

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        bits = _bits(operands[0])
        x, y = (widened(operand) for operand in operands)
        is_inside = (y >= 0) & (y < bits)
        inside = self.shifted(x, np.where(is_inside, y, 0).astype(x.dtype), bits)
        return (np.where(is_inside, inside, self.beyond(x, bits)).astype(operands[0].dtype),)


@register
@dataclass(frozen=True, slots=True)
class ShiftLeft(Shift):
    """x shifted left by y bits, zeros in."""

    name = "shift_left"

    def shifted(self, x: Numeric, y: Numeric, bits: int) -> Numeric:
        return np.left_shift(x, y)


@register
@dataclass(frozen=True, slots=True)
class ShiftRightArithmetic(Shift):
    """x shifted right by y bits, copies of the sign bit in."""

    name = "shift_right_arithmetic"

    def shifted(self, x: Numeric, y: Numeric, bits: int) -> Numeric:
        shifted: Numeric = np.right_shift(_signed(x, bits), y.view(f"i{x.dtype.itemsize}"))
        return shifted.view(x.dtype)

    def beyond(self, x: Numeric, bits: int) -> Numeric:
        return np.right_shift(_signed(x, bits), x.dtype.itemsize * 8 - 1).view(x.dtype)


@register
@dataclass(frozen=True, slots=True)
class ShiftRightLogical(Shift):
    """x shifted right by y bits, zeros in."""

    name = "shift_right_logical"

    def shifted(self, x: Numeric, y: Numeric, bits: int) -> Numeric:
        return np.right_shift(_unsigned(x, bits), _unsigned(y, bits)).view(x.dtype)


def _signed(x: Numeric, bits: int) -> Numeric:
    """The bits of x as a signed number."""
    unused = x.dtype.itemsize * 8 - bits
    signed: Numeric = x.view(f"i{x.dtype.itemsize}")
    return np.right_shift(np.left_shift(signed, unused), unused)


def _unsigned(x: Numeric, bits: int) -> Numeric:
    """The bits of x, those above `bits` cleared."""
    unsigned: Numeric = x.view(f"u{x.dtype.itemsize}")
    mask: Numeric = np.asarray((1 << bits) - 1, unsigned.dtype)
    return unsigned & mask


@register
@dataclass(frozen=True, slots=True)
class Popcnt(Elementwise):
    """The number of bits set."""

    name = "popcnt"
    weight = Weight.LIGHT
    arity = 1
    kinds = INTEGERS
    no_jvp = NO_TANGENT

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        (x,) = operands
        return (np.bitwise_count(_unsigned(widened(x), _bits(x))).astype(x.dtype),)


@register
@dataclass(frozen=True, slots=True)
class CountLeadingZeros(Elementwise):
    """The number of zero bits above the highest bit set."""

    name = "count_leading_zeros"
    weight = Weight.LIGHT
    arity = 1
    kinds = INTEGERS
    no_jvp = NO_TANGENT

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        (x,) = operands
        bits = _bits(x)
        smeared: Numeric = _unsigned(widened(x), bits)
        step = 1
        while step < bits:
            smeared = smeared | (smeared >> smeared.dtype.type(step))
            step *= 2
        return ((bits - np.bitwise_count(smeared).astype(np.int64)).astype(x.dtype),)
