"""Functions that choose or replace elements: where, select, clip, rounding, NaN replacement, closeness, interpolation.

The parameters are those of the NumPy functions of the same names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from rematc.compiler.frontends.numpy.elementwise import is_finite, maximum, minimum, truncate, truth
from rematc.compiler.frontends.numpy.operands import (
    ArrayLike,
    as_ir_dtype,
    as_operand,
    broadcast_operand,
    broadcast_shape,
    dispatching,
    fail,
    here,
    shape_of,
    static_int,
    value_of,
    wrap,
)
from rematc.compiler.frontends.numpy.outputs import check_target, write
from rematc.compiler.frontends.numpy.promotion import default_dtype, ir_dtype, kind_of, result_dtype
from rematc.compiler.frontends.numpy.views import ImaginaryPart, ReadOnly, RealPart, itself, view_of
from rematc.compiler.tracing.trace import Tracer
from rematc.ir.ops import reduction, rounding
from rematc.ir.ops.inverse import Atan2
from rematc.ir.types import BOOL, F16, F64, DType
from rematc.ir.values import Value

#: The factorial that the last term of sinc's series is over.
_SINC_LAST = 21


def _together(what: str, *operands: ArrayLike) -> tuple[list[Value], DType, tuple[int, ...]]:
    """Operands converted to the dtype that holds them all and broadcast; that dtype, and the shape."""
    flat = [as_operand(x) for x in operands]
    dtype = ir_dtype(result_dtype(*[kind_of(x) for x in flat]))
    shape = broadcast_shape(what, [shape_of(x) for x in flat])
    return [broadcast_operand(x, dtype, shape) for x in flat], dtype, shape


def where(condition: ArrayLike, x: ArrayLike = None, y: ArrayLike = None, /) -> Tracer:
    """As np.where with three arguments."""
    if x is None or y is None:
        fail("np.where(condition) has a shape that depends on data; use np.where(condition, x, y)")
    b, flat = here(), [as_operand(item) for item in (condition, x, y)]
    dtype = ir_dtype(result_dtype(kind_of(flat[1]), kind_of(flat[2])))
    shape = broadcast_shape("np.where", [shape_of(item) for item in flat])
    mask = broadcast_operand(wrap(truth(b, value_of(flat[0]))), BOOL, shape)
    return wrap(b.select(mask, broadcast_operand(flat[1], dtype, shape), broadcast_operand(flat[2], dtype, shape)))


def select(condlist: Sequence[ArrayLike], choicelist: Sequence[ArrayLike], default: ArrayLike = 0) -> Tracer:
    """As np.select: the first choice whose condition holds."""
    if len(condlist) != len(choicelist) or not condlist:
        fail(f"np.select has {len(condlist)} conditions and {len(choicelist)} choices; they must be as many, and some")
    b = here()
    flat = [as_operand(item) for item in (*choicelist, default)]
    dtype = ir_dtype(result_dtype(*[kind_of(item) for item in flat]))
    shape = broadcast_shape("np.select", [shape_of(item) for item in (*condlist, *flat)])
    result = broadcast_operand(flat[-1], dtype, shape)
    for condition, choice in reversed(list(zip(condlist, flat[:-1], strict=True))):
        mask = broadcast_operand(condition, BOOL, shape)
        result = b.select(mask, broadcast_operand(choice, dtype, shape), result)
    return wrap(result)


def clip(
    a: ArrayLike,
    a_min: ArrayLike = None,
    a_max: ArrayLike = None,
    *,
    min: ArrayLike = None,
    max: ArrayLike = None,
    dtype: object = None,
) -> Tracer:
    """As np.clip."""
    low, high = a_min if min is None else min, a_max if max is None else max
    bounds = [bound for bound in (low, high) if bound is not None]
    # NumPy makes an array of what is clipped, so that a Python scalar is no weak operand; bounds are.
    given = as_operand(a)
    strong = wrap(value_of(given, ir_dtype(default_dtype(kind_of(given)))))
    values, _, _ = _together("np.clip", strong, *bounds)
    b, result = here(), values[0]
    if low is not None:
        result = maximum(b, result, values[1])
    if high is not None:
        result = minimum(b, result, values[-1])
    return wrap(result if dtype is None else b.convert(result, as_ir_dtype(dtype)))


def round_(a: ArrayLike, decimals: object = 0) -> Tracer:
    """As np.round: halves go to the even neighbour."""
    x, b, places = value_of(a), here(), static_int(decimals, "decimals of np.round")
    if x.type.dtype.is_bool:
        if places:
            fail(f"np.round of booleans to {places} places is not defined in NumPy either; convert with astype first")
        return wrap(b.convert(x, F16))
    if x.type.dtype.is_complex:
        return _of_parts(x, lambda part: round_(part, places))
    if not x.type.dtype.is_float:
        if places < 0:
            factor = b.full(x.type.with_dtype(F64), 10.0**-places)
            scaled = b.emit1(rounding.RoundNearestEven(), b.divide(b.convert(x, F64), factor))
            return wrap(b.convert(b.multiply(scaled, factor), x.type.dtype))
        return wrap(x)
    if places == 0:
        return wrap(b.emit1(rounding.RoundNearestEven(), x))
    factor = b.full(x.type, 10.0 ** abs(places))
    if places > 0:
        return wrap(b.divide(b.emit1(rounding.RoundNearestEven(), b.multiply(x, factor)), factor))
    return wrap(b.multiply(b.emit1(rounding.RoundNearestEven(), b.divide(x, factor)), factor))


def fix(x: ArrayLike) -> Tracer:
    """As np.fix: rounded towards zero."""
    return wrap(truncate(here(), value_of(x)))


def nan_to_num(
    x: ArrayLike,
    copy: bool = True,
    nan: ArrayLike = 0.0,
    posinf: ArrayLike = None,
    neginf: ArrayLike = None,
) -> Tracer:
    """As np.nan_to_num; without `copy` the numbers are written into `x`."""
    if not copy:
        return write(nan_to_num(x, True, nan, posinf, neginf), check_target(x, "np.nan_to_num"), "np.nan_to_num")
    b, value = here(), value_of(x)
    if value.type.dtype.is_complex:
        return _of_parts(value, lambda part: nan_to_num(part, True, nan, posinf, neginf))
    if not value.type.dtype.is_float:
        return wrap(value)
    dtype, shape = value.type.dtype, value.type.shape
    finfo: Any = ml_dtypes.finfo
    largest = float(finfo(dtype.numpy).max)
    result = b.select(b.compare(value, value, "NE"), broadcast_operand(nan, dtype, shape), value)
    for infinity, given, default in ((np.inf, posinf, largest), (-np.inf, neginf, -largest)):
        is_infinite = b.compare(value, b.full(value.type, infinity), "EQ")
        result = b.select(is_infinite, broadcast_operand(default if given is None else given, dtype, shape), result)
    return wrap(result)


def isclose(
    a: ArrayLike, b: ArrayLike, rtol: ArrayLike = 1e-05, atol: ArrayLike = 1e-08, equal_nan: bool = False
) -> Tracer:
    """As np.isclose."""
    (x, y), dtype, _ = _together("np.isclose", a, b)
    build = here()
    if not dtype.is_inexact:
        x, y = build.convert(x, F64), build.convert(y, F64)
    size = build.abs(y)
    slack = build.add(
        broadcast_operand(atol, size.type.dtype, x.type.shape),
        build.multiply(broadcast_operand(rtol, size.type.dtype, x.type.shape), size),
    )
    near = build.compare(build.abs(build.subtract(x, y)), slack, "LE")
    result = build.logical_or(build.logical_and(near, is_finite(build, y)), build.compare(x, y, "EQ"))
    if equal_nan:
        both = build.logical_and(build.compare(x, x, "NE"), build.compare(y, y, "NE"))
        result = build.logical_or(result, both)
    return wrap(result)


def allclose(a: ArrayLike, b: ArrayLike, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tracer:
    """As np.allclose, as a traced boolean."""
    close = isclose(a, b, rtol, atol, equal_nan).value
    return wrap(here().emit1(reduction.ReduceAnd(tuple(range(close.type.rank))), close))


def array_equal(a1: ArrayLike, a2: ArrayLike, equal_nan: bool = False) -> Tracer:
    """As np.array_equal, as a traced boolean."""
    build = here()
    if shape_of(as_operand(a1)) != shape_of(as_operand(a2)):
        return wrap(build.constant(np.asarray(False)))
    (x, y), dtype, _ = _together("np.array_equal", a1, a2)
    same = build.compare(x, y, "EQ")
    if equal_nan and dtype.is_inexact:
        same = build.logical_or(same, build.logical_and(build.compare(x, x, "NE"), build.compare(y, y, "NE")))
    return wrap(build.emit1(reduction.ReduceAnd(tuple(range(same.type.rank))), same))


def polyval(p: ArrayLike, x: ArrayLike) -> Tracer:
    """As np.polyval: the polynomial with coefficients `p`, the highest power first, by Horner's rule."""
    flat = [as_operand(p), as_operand(x)]
    dtype = ir_dtype(result_dtype(*[kind_of(item) for item in flat]))
    coefficients, at, b = value_of(flat[0], dtype), value_of(flat[1], dtype), here()
    if coefficients.type.rank != 1:
        fail(f"np.polyval takes a vector of coefficients, got shape {coefficients.type.shape}")
    result = b.zeros(at.type)
    for i in range(coefficients.type.size):
        coefficient = b.reshape(b.slice(coefficients, (i,), (i + 1,)), ())
        result = b.add(b.multiply(result, at), b.broadcast_in_dim(coefficient, at.type.shape, ()))
    return wrap(result)


def sinc(x: ArrayLike) -> Tracer:
    """As np.sinc: sin(pi x) / (pi x), and 1 at 0."""
    b, value = here(), value_of(x)
    if not value.type.dtype.is_inexact:
        value = b.convert(value, F64)
    angle = b.scale(value, np.pi)
    size = b.abs(angle)
    is_small = b.compare(size, b.full(size.type, 1), "LT")
    # Each branch is at a place of its own where the other one is taken, so that its derivatives are finite.
    near = b.select(is_small, angle, b.zeros(angle.type))
    far = b.select(is_small, b.full(angle.type, 1), angle)
    return wrap(b.select(is_small, _sinc_near_zero(near), b.divide(b.sine(far), far)))


def _sinc_near_zero(angle: Value) -> Value:
    """sin(y) / y of |y| < 1 by its Taylor series in y^2, derivatives of which lose no digits as those of quotients do.

    What is left out is below 1 / 23!, and of second derivatives below 22 * 21 / 23!.
    """
    b = here()
    square = b.multiply(angle, angle)
    result = b.full(angle.type, 1 / math.factorial(_SINC_LAST))
    for power in range(_SINC_LAST - 2, 0, -2):
        sign = -1 if power // 2 % 2 else 1
        result = b.add(b.multiply(result, square), b.full(angle.type, sign / math.factorial(power)))
    return result


def _infinite(sign: float) -> Callable[..., Tracer]:
    def apply(x: ArrayLike) -> Tracer:
        b, value = here(), value_of(x)
        if not value.type.dtype.is_inexact:
            return wrap(b.full(value.type.with_dtype(BOOL), False))
        return wrap(b.compare(value, b.full(value.type, sign * np.inf), "EQ"))

    return apply


# -- parts of complex numbers ------------------------------------------------------------------------------------------


def _of_parts(x: Value, function: Callable[[Tracer], Tracer]) -> Tracer:
    """A function of reals, of both parts."""
    b = here()
    return wrap(b.from_parts(*[function(wrap(part)).value for part in (b.real(x), b.imag(x))]))


def real(val: ArrayLike) -> Tracer:
    """As np.real; real arrays are their own real parts."""
    x = value_of(val)
    return view_of(val, here().real(x), RealPart()) if x.type.dtype.is_complex else itself(val, x)


def imag(val: ArrayLike) -> Tracer:
    """As np.imag."""
    x, b = value_of(val), here()
    if x.type.dtype.is_complex:
        return view_of(val, b.imag(x), ImaginaryPart())
    step = ReadOnly("x.imag of real numbers", lambda whole: here().zeros(whole.type))
    return view_of(val, step.read(x), step)


def angle(z: ArrayLike, deg: bool = False) -> Tracer:
    """As np.angle."""
    x, b = value_of(z), here()
    # Real numbers have NumPy's promotion: the angle of small integers is a small float.
    is_complex = x.type.dtype.is_complex
    found = b.emit1(Atan2(), b.imag(x), b.real(x)) if is_complex else dispatching.arctan2(0, wrap(x)).value
    return wrap(b.scale(found, 180 / np.pi) if deg else found)


def isreal(x: ArrayLike) -> Tracer:
    """As np.isreal: whether the imaginary part is zero."""
    b, part = here(), imag(x).value
    return wrap(b.compare(part, b.zeros(part.type), "EQ"))


def iscomplex(x: ArrayLike) -> Tracer:
    """As np.iscomplex: whether there is an imaginary part."""
    return wrap(here().logical_not(isreal(x).value))


def real_if_close(a: ArrayLike, tol: float = 100) -> Tracer:
    """As np.real_if_close, of real arrays, which it leaves alone."""
    x = value_of(a)
    if x.type.dtype.is_complex:
        fail("np.real_if_close has a dtype that depends on data; use x.real")
    return itself(a, x)


FUNCTIONS: dict[Callable[..., object], Callable[..., object]] = {
    np.where: where,
    np.select: select,
    np.clip: clip,
    np.round: round_,
    np.around: round_,
    np.fix: fix,
    np.nan_to_num: nan_to_num,
    np.isclose: isclose,
    np.allclose: allclose,
    np.array_equal: array_equal,
    np.polyval: polyval,
    np.sinc: sinc,
    np.isposinf: _infinite(1.0),
    np.isneginf: _infinite(-1.0),
    np.real: real,
    np.imag: imag,
    np.angle: angle,
    np.isreal: isreal,
    np.iscomplex: iscomplex,
    np.real_if_close: real_if_close,
}
