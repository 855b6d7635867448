"""Conversions between element types: by value, by bits, and rounding to fewer bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rematc.ir.core import Array, Derivatives, Emitter, LinearOperand, Op, Operands, Primals, Tangents, Types, register
from rematc.ir.errors import TypeMismatchError
from rematc.ir.ops.elementwise import FLOATS, Unary, check_arity, widened
from rematc.ir.types import BOOL, DType, TensorType


@register
@dataclass(frozen=True, slots=True)
class Convert(Op):
    """The value in another element type.

    Floats become integers by truncation; what does not fit becomes the nearest integer that does, NaN becomes 0
    (StableHLO leaves both open; this is XLA's choice). Anything but zero becomes true. Complex numbers lose
    their imaginary part.

    Attributes:
        dtype: element type of the result.
    """

    name = "convert"
    dtype: DType

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 1)
        return (operands[0].with_dtype(self.dtype),)

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        with np.errstate(all="ignore"):
            return (np.asarray(_converted(operands[0], self.dtype)),)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        if tangents[0] is None or not self.dtype.is_inexact:
            return (None,)
        return (b.convert(tangents[0], self.dtype),)

    def transpose(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        assert isinstance(operands[0], LinearOperand)
        return (None if cts[0] is None else b.convert(cts[0], operands[0].type.dtype),)


def _converted(x: Array, dtype: DType) -> Array:
    if dtype is BOOL:
        return np.not_equal(widened(x), 0)
    wide = widened(x)
    if wide.dtype.kind == "c" and not dtype.is_complex:
        wide = wide.real
    if dtype.is_integer and wide.dtype.kind == "f":
        return _saturated(wide, dtype)
    return wide.astype(dtype.numpy)


def _saturated(x: Array, dtype: DType) -> Array:
    """Floats truncated to integers, the nearest that fits."""
    lowest, highest = (
        (0, 2**dtype.bits - 1) if dtype.kind.value == "uint" else (-(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1)
    )
    is_low, is_high = x <= lowest, x >= highest
    inside: Any = np.where(is_low | is_high | np.isnan(x), 0, x)
    wide = np.int64 if dtype.kind.value == "int" else np.uint64
    result = np.where(is_low, wide(lowest), np.where(is_high, wide(highest), np.trunc(inside).astype(wide)))
    return result.astype(dtype.numpy)
