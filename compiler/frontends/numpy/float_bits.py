"""What is done with the bits of numbers: exponents of floats, neighbours, greatest common divisors, packed booleans."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from rematc.compiler.frontends.numpy.elementwise import bits_of, is_finite, stopped, truth
from rematc.compiler.frontends.numpy.operands import (
    ArrayLike,
    as_ir_dtype,
    fail,
    here,
    normalize_axis,
    slice_along,
    static_int,
    value_of,
    wrap,
)
from rematc.compiler.frontends.numpy.views import Bits, is_dense, itself, view_of
from rematc.compiler.tracing.trace import Tracer
from rematc.ir.builder import Builder
from rematc.ir.core import Graph
from rematc.ir.ops import logical, rounding
from rematc.ir.ops.conversion import BitcastConvert
from rematc.ir.ops.reduction import ReduceOr
from rematc.ir.ops.while_.op import While
from rematc.ir.types import BOOL, I32, U8, DType, TensorType, dtype_named
from rematc.ir.values import Value

# -- floats ------------------------------------------------------------------------------------------------------------


def _format_of(dtype: DType) -> tuple[int, int]:
    """Bits of the stored mantissa, and the bias of the exponent (IEEE 754)."""
    finfo: Any = ml_dtypes.finfo
    limits = finfo(dtype.numpy)
    return int(limits.nmant), int(limits.maxexp) - 1


def power_of_two(b: Builder, exponent: Value, dtype: DType) -> Value:
    """2^exponent, exactly: the exponent is written into the bits of a float, and must be in their range."""
    mantissa_bits, bias = _format_of(dtype)
    integer = dtype_named(f"i{dtype.bits}")
    biased = b.add(b.convert(exponent, integer), b.full(exponent.type.with_dtype(integer), bias))
    bits = b.emit1(logical.ShiftLeft(), biased, b.full(biased.type, mantissa_bits))
    return b.emit1(BitcastConvert(dtype), bits)


def scaled_by_power(b: Builder, x: Value, exponent: Value) -> Value:
    """x 2^exponent, rounded once: in three factors, for a power may be out of range where the product is not."""
    _, bias = _format_of(x.type.dtype)
    # The largest factor comes last: before it nothing leaves the range unless the product does.
    factors, rest = [], exponent
    for _ in range(3):
        part = b.maximum(b.minimum(rest, b.full(rest.type, bias)), b.full(rest.type, 1 - bias))
        rest = b.subtract(rest, part)
        factors.append(power_of_two(b, part, x.type.dtype))
    for factor in reversed(factors):
        x = b.multiply(x, factor)
    return x


def exponent_of(b: Builder, x: Value) -> Value:
    """The exponent e with |x| = m 2^e and 1/2 <= m < 1; 0 for zeros, infinities and NaN. int32."""
    dtype = x.type.dtype
    mantissa_bits, bias = _format_of(dtype)
    # Subnormal numbers are made normal first.
    lift, x = mantissa_bits + 1, stopped(b, x)
    is_small = b.compare(b.abs(x), b.full(x.type, 2.0 ** (1 - bias)), "LT")
    normal = b.select(is_small, b.multiply(x, b.full(x.type, 2.0**lift)), x)
    bits = bits_of(b, normal)
    field = b.emit1(logical.ShiftRightLogical(), bits, b.full(bits.type, mantissa_bits))
    field = b.emit1(logical.And(), field, b.full(bits.type, 2 * bias + 1))
    found = b.subtract(b.convert(field, I32), b.full(x.type.with_dtype(I32), bias - 1))
    found = b.select(is_small, b.subtract(found, b.full(found.type, lift)), found)
    has_one = b.logical_and(truth(b, x), is_finite(b, x))
    return b.select(has_one, found, b.zeros(found.type))


def frexp(b: Builder, x: Value) -> tuple[Value, Value]:
    """The mantissa, between 1/2 and 1, and the exponent of each element."""
    exponent = exponent_of(b, x)
    return scaled_by_power(b, x, b.negate(exponent)), exponent


def spacing(b: Builder, x: Value) -> Value:
    """The distance to the neighbour that is farther from zero."""
    x = stopped(b, x)
    is_below = b.compare(x, b.zeros(x.type), "LT")
    outwards = b.select(is_below, b.full(x.type, -math.inf), b.full(x.type, math.inf))
    gap = b.subtract(b.emit1(rounding.NextAfter(), x, outwards), x)
    return b.select(is_finite(b, x), gap, b.full(x.type, math.nan))


def view(a: Tracer, dtype: object) -> Tracer:
    """As x.view: the same bits in another dtype of as many bits; they have no derivative."""
    x = value_of(a)
    target = x.type.dtype if dtype is None else as_ir_dtype(dtype)
    if target is x.type.dtype:
        return itself(a, x)
    if (
        target.bits != x.type.dtype.bits
        or BOOL in (target, x.type.dtype)
        or target.is_complex
        or x.type.dtype.is_complex
    ):
        fail(f"x.view of {x.type} as {target.numpy} is not supported; the dtypes must be real and of as many bits")
    step = Bits(lambda whole: here().emit1(BitcastConvert(target), stopped(here(), whole)))
    return view_of(a, step.read(x), step, is_dense=is_dense(a))


# -- integers ----------------------------------------------------------------------------------------------------------


def _magnitude(b: Builder, x: Value) -> Value:
    """|x| as an unsigned integer, which has room for the least one's."""
    return b.convert(b.abs(x), dtype_named(f"u{x.type.dtype.bits}")) if x.type.dtype.name.startswith("i") else x


def gcd(b: Builder, x: Value, y: Value) -> Value:
    """The greatest common divisor, by Euclid's algorithm on all elements until the last one is done."""
    left, right = _magnitude(b, x), _magnitude(b, y)
    found = b.emit(While(_has_rest(left.type), _euclid_step(left.type)), left, right)[0]
    return b.convert(found, x.type.dtype)


def _has_rest(type: TensorType) -> Graph:
    b = Builder("has_rest")
    b.parameter(type)
    rest = truth(b, b.parameter(type))
    return b.build(b.emit1(ReduceOr(tuple(range(type.rank))), rest) if type.rank else rest)


def _euclid_step(type: TensorType) -> Graph:
    b = Builder("euclid")
    x, y = b.parameter(type), b.parameter(type)
    is_done = b.compare(y, b.zeros(type), "EQ")
    rest = b.emit1(rounding.Remainder(), x, b.select(is_done, b.full(type, 1), y))
    return b.build(b.select(is_done, x, y), b.select(is_done, y, rest))


def lcm(b: Builder, x: Value, y: Value) -> Value:
    """The least common multiple; 0 where an operand is."""
    divisor = gcd(b, x, y)
    safe = b.select(truth(b, divisor), divisor, b.full(divisor.type, 1))
    left, right, common = [_magnitude(b, value) for value in (x, y, safe)]
    return b.convert(b.multiply(b.divide(left, common), right), x.type.dtype)


# -- bits in bytes -----------------------------------------------------------------------------------------------------


def _places(bitorder: str, what: str) -> Any:
    if bitorder not in ("big", "little"):
        fail(f"{what} takes the bit orders big and little, got {bitorder!r}")
    return np.arange(8, dtype=np.uint8)[:: -1 if bitorder == "big" else 1]


def _line_along(a: ArrayLike, axis: object, what: str) -> tuple[Value, int]:
    x = value_of(a)
    if axis is None:
        return here().reshape(x, (x.type.size,)), 0
    return x, normalize_axis(axis, x.type.rank, what)


def packbits(a: ArrayLike, /, axis: object = None, bitorder: str = "big") -> Tracer:
    """As np.packbits: eight truth values a byte, the last byte filled up with zeros."""
    places, b = _places(bitorder, "np.packbits"), here()
    x, along = _line_along(a, axis, "np.packbits")
    if x.type.dtype.is_inexact:
        fail(f"np.packbits takes booleans or integers, got {x.type}")
    bits = b.convert(truth(b, x), U8)
    rank, size = bits.type.rank, bits.type.shape[along]
    tail = [(-size) % 8 if d == along else 0 for d in range(rank)]
    bits = b.pad(bits, b.zeros(TensorType(U8, ())), [0] * rank, tail)
    outer, inner = bits.type.shape[:along], bits.type.shape[along + 1 :]
    rows = b.reshape(bits, (*outer, -(-size // 8), 8, *inner))
    weights = value_of(np.left_shift(np.uint8(1), places))
    return wrap(
        b.reduce_sum(b.multiply(rows, b.broadcast_in_dim(weights, rows.type.shape, (along + 1,))), (along + 1,))
    )


def unpackbits(a: ArrayLike, /, axis: object = None, count: object = None, bitorder: str = "big") -> Tracer:
    """As np.unpackbits: eight bits a byte, cut or filled up with zeros to `count`."""
    places, b = _places(bitorder, "np.unpackbits"), here()
    x, along = _line_along(a, axis, "np.unpackbits")
    if x.type.dtype is not U8:
        fail(f"np.unpackbits takes bytes (uint8), got {x.type}")
    outer, size, inner = x.type.shape[:along], x.type.shape[along], x.type.shape[along + 1 :]
    shape = (*outer, size, 8, *inner)
    spread = b.broadcast_in_dim(x, shape, [d for d in range(len(shape)) if d != along + 1])
    shifts = b.broadcast_in_dim(value_of(places), shape, (along + 1,))
    bits = b.emit1(logical.And(), b.emit1(logical.ShiftRightLogical(), spread, shifts), b.full(spread.type, 1))
    line = b.reshape(bits, (*outer, 8 * size, *inner))
    if count is None:
        return wrap(line)
    wanted = static_int(count, "count of np.unpackbits")
    stop = min(wanted, 8 * size) if wanted >= 0 else max(8 * size + wanted, 0)
    line, rank = slice_along(line, along, 0, stop), line.type.rank
    tail = [max(wanted - stop, 0) if d == along else 0 for d in range(rank)]
    return wrap(b.pad(line, b.zeros(TensorType(U8, ())), [0] * rank, tail))


FUNCTIONS: dict[Callable[..., object], Callable[..., object]] = {
    np.packbits: packbits,
    np.unpackbits: unpackbits,
}
