"""Floating-point random numbers.

The recipes are those of `jax.random`, so that the numbers are the same for the same key, shape and element type.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from rematc.compiler.api.random.sampling import (
    FLOAT_DTYPES,
    UNSIGNED,
    Shape,
    apply,
    array_type,
    checked_broadcast,
    checked_dtype,
    checked_key,
    checked_shape,
    children,
    is_sampled_float,
    random_bits,
    spread,
)
from rematc.ir.builder import Builder
from rematc.ir.ops.conversion import BitcastConvert
from rematc.ir.ops.logical import Or, ShiftRightLogical
from rematc.ir.ops.rounding import NextAfter
from rematc.ir.ops.special import Erf, ErfInv
from rematc.ir.ops.structural import StopGradient
from rematc.ir.ops.transcendental import LogPlusOne
from rematc.ir.types import C128, F32, F64, DType, TensorType
from rematc.ir.values import Value


def uniform(
    key: object, shape: object = (), dtype: object = np.float32, minval: object = 0.0, maxval: object = 1.0
) -> Any:
    """Numbers from [minval, maxval), all equally likely.

    Args:
        key: u32[2].
        shape: of the result.
        dtype: of the result.
        minval: the least, an array that broadcasts to `shape`.
        maxval: the bound above. The result can be differentiated with respect to both.

    Raises:
        CompileError: for what is no key, a negative size, a dtype without bits to draw, bounds that do not broadcast.
    """
    sizes = checked_shape("uniform", shape)
    checked_broadcast("uniform", sizes, minval=minval, maxval=maxval)
    found = checked_dtype("uniform", dtype, is_sampled_float, FLOAT_DTYPES)
    return apply(draw_uniform, checked_key("uniform", key), minval, maxval, shape=sizes, dtype=found)


def normal(key: object, shape: object = (), dtype: object = np.float32) -> Any:
    """Numbers from the standard normal distribution; of complex ones both parts have variance 1/2.

    Args:
        key: u32[2].
        shape: of the result.
        dtype: of the result.

    Raises:
        CompileError: for what is no key, a negative size, a dtype that is neither float nor complex.
    """
    found = checked_dtype(
        "normal", dtype, lambda one: is_sampled_float(one) or one.is_complex, f"{FLOAT_DTYPES}, or complex numbers"
    )
    rule = _complex_normal if found.is_complex else draw_normal
    return apply(rule, checked_key("normal", key), shape=checked_shape("normal", shape), dtype=found)


def truncated_normal(
    key: object, lower: object, upper: object, shape: object = None, dtype: object = np.float32
) -> Any:
    """Numbers from the standard normal distribution between two bounds.

    Args:
        key: u32[2].
        lower: the bound below, an array that broadcasts to `shape`.
        upper: the bound above. The result can be differentiated with respect to both.
        shape: of the result; by default that of `lower` and `upper` together.
        dtype: of the result.

    Raises:
        CompileError: as `uniform`.
    """
    if shape is None:
        bounds = (array_type("truncated_normal", "bound", bound).shape for bound in (lower, upper))
        shape = np.broadcast_shapes(*bounds)
    sizes = checked_shape("truncated_normal", shape)
    checked_broadcast("truncated_normal", sizes, lower=lower, upper=upper)
    found = checked_dtype("truncated_normal", dtype, is_sampled_float, FLOAT_DTYPES)
    checked = checked_key("truncated_normal", key)
    return apply(_truncated_normal, checked, lower, upper, shape=sizes, dtype=found)


def exponential(key: object, shape: object = (), dtype: object = np.float32) -> Any:
    """Numbers from the exponential distribution of mean 1; arguments and errors as of `normal`."""
    found = checked_dtype("exponential", dtype, is_sampled_float, FLOAT_DTYPES)
    sizes = checked_shape("exponential", shape)
    return apply(_exponential, checked_key("exponential", key), shape=sizes, dtype=found)


def gumbel(key: object, shape: object = (), dtype: object = np.float32) -> Any:
    """Numbers from the standard Gumbel distribution; arguments and errors as of `normal`."""
    found = checked_dtype("gumbel", dtype, is_sampled_float, FLOAT_DTYPES)
    return apply(draw_gumbel, checked_key("gumbel", key), shape=checked_shape("gumbel", shape), dtype=found)


def laplace(key: object, shape: object = (), dtype: object = np.float32) -> Any:
    """Numbers from the standard Laplace distribution; arguments and errors as of `normal`."""
    found = checked_dtype("laplace", dtype, is_sampled_float, FLOAT_DTYPES)
    return apply(_laplace, checked_key("laplace", key), shape=checked_shape("laplace", shape), dtype=found)


# -- rules -------------------------------------------------------------------------------------------------------------


def draw_uniform(b: Builder, key: Value, minval: Value, maxval: Value, *, shape: Shape, dtype: DType) -> Value:
    """Random mantissas under the exponent of 1 are equally likely in [1, 2); from there they are moved."""
    type = TensorType(dtype, shape)
    bits = TensorType(UNSIGNED[dtype.bits], shape)
    mantissa = _info(dtype).nmant
    width = 8 if mantissa < 8 else dtype.bits
    drawn = b.convert(random_bits(b, key, shape, width), bits.dtype)
    drawn = b.emit1(ShiftRightLogical(), drawn, b.full(bits, width - mantissa))
    one = int(np.ones((), dtype.numpy).view(bits.dtype.numpy))
    from_one = b.emit1(BitcastConvert(dtype), b.emit1(Or(), drawn, b.full(bits, one)))
    from_zero = b.subtract(from_one, b.full(type, 1))
    low, high = b.convert(minval, dtype), b.convert(maxval, dtype)
    common = np.broadcast_shapes(low.type.shape, high.type.shape)
    span = b.subtract(spread(b, high, common), spread(b, low, common))
    low = spread(b, low, shape)
    return b.maximum(low, b.add(b.multiply(from_zero, spread(b, span, shape)), low))


def _within(b: Builder, key: Value, minval: float, maxval: float, shape: Shape, dtype: DType) -> Value:
    scalar = TensorType(dtype, ())
    return draw_uniform(b, key, b.full(scalar, minval), b.full(scalar, maxval), shape=shape, dtype=dtype)


def draw_normal(b: Builder, key: Value, *, shape: Shape, dtype: DType) -> Value:
    """The inverse of the distribution function at uniform numbers from (-1, 1)."""
    lowest = float(np.nextafter(dtype.numpy.type(-1), dtype.numpy.type(0)))
    u = _within(b, key, lowest, 1.0, shape, dtype)
    return b.multiply(b.full(u.type, math.sqrt(2)), b.emit1(ErfInv(), u))


def _complex_normal(b: Builder, key: Value, *, shape: Shape, dtype: DType) -> Value:
    part = F64 if dtype is C128 else F32
    parts = [draw_normal(b, own, shape=shape, dtype=part) for own in children(b, key, 2)]
    drawn = b.from_parts(*parts)
    return b.divide(drawn, b.full(drawn.type, math.sqrt(2)))


def _truncated_normal(b: Builder, key: Value, lower: Value, upper: Value, *, shape: Shape, dtype: DType) -> Value:
    bounds = [b.convert(bound, dtype) for bound in (lower, upper)]
    images = [b.emit1(Erf(), b.divide(x, b.full(x.type, math.sqrt(2)))) for x in bounds]
    u = draw_uniform(b, key, *images, shape=shape, dtype=dtype)
    drawn = b.multiply(b.full(u.type, math.sqrt(2)), b.emit1(ErfInv(), u))
    # Rounding must not lead out of the open interval.
    inner = []
    for bound, direction in zip(bounds, (math.inf, -math.inf), strict=True):
        fixed = b.emit1(StopGradient(), bound)
        inner.append(spread(b, b.emit1(NextAfter(), fixed, b.full(fixed.type, direction)), shape))
    return b.minimum(b.maximum(drawn, inner[0]), inner[1])


def _exponential(b: Builder, key: Value, *, shape: Shape, dtype: DType) -> Value:
    u = _within(b, key, 0.0, 1.0, shape, dtype)
    return b.negate(b.emit1(LogPlusOne(), b.negate(u)))


def draw_gumbel(b: Builder, key: Value, *, shape: Shape, dtype: DType) -> Value:
    """-log(-log(u)) of uniform numbers u that are not 0."""
    u = _within(b, key, float(_info(dtype).tiny), 1.0, shape, dtype)
    return b.negate(b.log(b.negate(b.log(u))))


def _laplace(b: Builder, key: Value, *, shape: Shape, dtype: DType) -> Value:
    u = _within(b, key, -1.0 + float(_info(dtype).epsneg), 1.0, shape, dtype)
    return b.multiply(b.sign(u), b.emit1(LogPlusOne(), b.negate(b.abs(u))))


def _info(dtype: DType) -> Any:
    """What `np.finfo` says, of the element types of ml_dtypes as well."""
    return ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]  # ml_dtypes
