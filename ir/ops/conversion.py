"""Conversions between element types: by value, by bits, and rounding to fewer bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from rematc.ir.batches import Batch
from rematc.ir.core import Emitter, Op
from rematc.ir.errors import TypeMismatchError
from rematc.ir.facts import Storage, Weight
from rematc.ir.ops.batching import batch_alike
from rematc.ir.ops.elementwise import FLOATS, NOT_LINEAR, Numeric, Unary, check_arity, check_kind, widened
from rematc.ir.registry import register
from rematc.ir.slicings import Slicing, along_leading
from rematc.ir.types import BOOL, DType, Kind, TensorType, dtype_of_numpy
from rematc.ir.values import Array, Derivatives, LinearOperand, Operands, Primals, Tangents, Types, Value


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
    storage = Storage.FUSED
    weight = Weight.LIGHT
    is_elementwise = True
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

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        return batch_alike(self, b, batch)


def _converted(x: Array, dtype: DType) -> Array:
    wide = widened(x)
    if wide.dtype.kind == "c" and not dtype.is_complex:
        wide = wide.real
    if dtype is BOOL:
        return np.not_equal(wide, 0)
    if dtype.is_integer and wide.dtype.kind == "f":
        return _saturated(wide, dtype)
    return wide.astype(dtype.numpy)


def _saturated(x: Numeric, dtype: DType) -> Array:
    """Floats truncated to integers, to the nearest that fits."""
    is_signed = dtype.kind is Kind.INT
    lowest = -(2 ** (dtype.bits - 1)) if is_signed else 0
    highest = lowest + 2**dtype.bits - 1
    wide = np.int64 if is_signed else np.uint64
    is_low, is_high = x <= lowest, x >= highest
    inside = np.where(is_low | is_high | np.isnan(x), 0, x)
    result = np.where(is_low, wide(lowest), np.where(is_high, wide(highest), np.trunc(inside).astype(wide)))
    return result.astype(dtype.numpy)


@register
@dataclass(frozen=True, slots=True)
class BitcastConvert(Op):
    """The same bits read as another element type, least significant bits first.

    To a narrower type each element becomes a row of a new last dimension; to a wider type the last dimension is
    taken together.

    Attributes:
        dtype: element type of the result.
    """

    name = "bitcast_convert"
    storage = Storage.FUSED
    weight = Weight.LIGHT
    dtype: DType
    no_jvp = "does not exist: the bits of a number are no continuous function of it"
    no_transpose = NOT_LINEAR

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 1)
        (x,) = operands
        for dtype in (x.dtype, self.dtype):
            if dtype is BOOL:
                raise TypeMismatchError("'bitcast_convert' takes numbers, got bool; shift the bits and compare")
        if x.dtype.is_complex != self.dtype.is_complex:
            raise TypeMismatchError(f"'bitcast_convert' of {x} to {self.dtype}: both must be complex, or neither")
        return (TensorType(self.dtype, self._shape(x), x.on_host),)

    def _shape(self, x: TensorType) -> tuple[int, ...]:
        found, wanted = x.dtype.bits, self.dtype.bits
        if found >= wanted:
            return x.shape if found == wanted else (*x.shape, found // wanted)
        if not x.rank or x.shape[-1] * found != wanted:
            raise TypeMismatchError(
                f"'bitcast_convert' to {self.dtype} takes {wanted // found} elements a row, got {x}"
            )
        return x.shape[:-1]

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        (x,) = operands
        found = dtype_of_numpy(x.dtype)
        assert found is not None, f"{x.dtype} is the element type of no tensor"
        bits, wanted = found.bits, self.dtype.bits
        if bits == wanted:
            return (x.view(self.dtype.numpy),)
        rows = x if bits < wanted else x[..., np.newaxis]
        whole = _packed(rows, bits) if bits < 8 else np.ascontiguousarray(rows)
        result = _unpacked(whole, self.dtype) if wanted < 8 else whole.view(self.dtype.numpy)
        result = result[..., : max(bits // wanted, 1)]
        return (result[..., 0] if bits < wanted else result,)

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        return batch_alike(self, b, batch)

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        return along_leading(min(operands[0].rank, results[0].rank), operands, results)


def _packed(rows: Array, bits: int) -> Numeric:
    """Elements narrower than a byte, as many as fit in each byte: [..., n] to [..., n * bits / 8]."""
    each = 8 // bits
    raw = np.ascontiguousarray(rows).view(np.uint8) & np.uint8(2**bits - 1)
    grouped = raw.reshape(*rows.shape[:-1], -1, min(each, rows.shape[-1]))
    shifts = np.arange(grouped.shape[-1], dtype=np.uint8) * np.uint8(bits)
    packed: Numeric = np.bitwise_or.reduce(grouped << shifts, -1)
    return packed


def _unpacked(rows: Array, dtype: DType) -> Array:
    """The elements narrower than a byte that bytes hold: [..., n] to [..., n * 8 / bits]."""
    raw = rows.view(np.uint8)
    shifts = np.arange(0, 8, dtype.bits, dtype=np.uint8)
    parts = (raw[..., np.newaxis] >> shifts) & np.uint8(2**dtype.bits - 1)
    flat = parts.reshape(*raw.shape[:-1], -1)
    if dtype.kind is Kind.INT:
        # ml_dtypes keeps signed numbers with their sign spread over the byte.
        unused = np.int8(8 - dtype.bits)
        flat = np.right_shift(np.left_shift(flat.view(np.int8), unused), unused)
    return np.ascontiguousarray(flat).view(dtype.numpy)


@register
@dataclass(frozen=True, slots=True)
class ReducePrecision(Unary):
    """x rounded to a narrower floating format, and kept in its own.

    Numbers below the format's normal range become zeros, those above infinities. The tangent is rounded likewise.

    Attributes:
        exponent_bits: width of the format's exponent.
        mantissa_bits: width of its mantissa, without the leading 1.
    """

    name = "reduce_precision"
    weight = Weight.MODERATE
    exponent_bits: int
    mantissa_bits: int
    kinds = FLOATS

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 1)
        check_kind(self, operands[0], self.kinds)
        if self.exponent_bits < 1 or self.mantissa_bits < 0:
            found = f"{self.exponent_bits} and {self.mantissa_bits}"
            raise TypeMismatchError(
                f"'reduce_precision' takes at least 1 exponent bit and 0 mantissa bits, got {found}"
            )
        return (operands[0],)

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        (x,) = operands
        with np.errstate(all="ignore"):
            own = ml_dtypes.finfo(x.dtype)  # type: ignore[no-untyped-call]  # ml_dtypes leaves it unannotated
            return (self._rounded(x.astype(np.float64), own).astype(x.dtype),)

    def _rounded(self, x: Numeric, own: Any) -> Numeric:
        is_ordinary = np.isfinite(x) & (x != 0)
        ordinary = np.where(is_ordinary, x, 1)
        # The place of the last bit kept: subnormal numbers of x's own format share one.
        exponent = np.maximum(np.frexp(ordinary)[1] - 1, own.minexp)
        last = exponent - min(self.mantissa_bits, own.nmant)
        rounded = np.ldexp(np.rint(np.ldexp(ordinary, -last)), last)
        if self.exponent_bits < own.nexp:
            bias = 2 ** (self.exponent_bits - 1) - 1
            size = np.abs(rounded)
            rounded = np.where(size >= 2.0 ** (bias + 1), np.copysign(np.inf, x), rounded)
            rounded = np.where(size < 2.0 ** (1 - bias), np.copysign(0.0, x), rounded)
        return np.where(is_ordinary, rounded, x)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        return (None if tangents[0] is None else b.emit1(self, tangents[0]),)

    def transpose(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        return (None if cts[0] is None else b.emit1(self, cts[0]),)
