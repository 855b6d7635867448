"""Reductions: sums, products, extrema, logic and indices of extrema over axes.

The parameters are those of the NumPy functions of the same names.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable

import numpy as np

from rematc.compiler.numpy.elementwise import truth
from rematc.compiler.numpy.operands import (
    ArrayLike,
    as_ir_dtype,
    broadcast_operand,
    fail,
    here,
    normalize_axes,
    normalize_axis,
    value_of,
    wrap,
)
from rematc.compiler.tracing.trace import Tracer
from rematc.ir.core import Op, Value
from rematc.ir.ops import reduction
from rematc.ir.types import BOOL, I64, U64, DType, Kind, TensorType

Axis = object
ReductionOp = Callable[[tuple[int, ...]], Op]


def reduce_value(make: ReductionOp, x: Value, axes: tuple[int, ...], keepdims: object = False) -> Value:
    """`x` reduced over `axes`; with `keepdims` they stay with size 1."""
    b = here()
    reduced = b.emit1(make(axes), x) if axes else x
    if not keepdims:
        return reduced
    return b.reshape(reduced, [1 if axis in axes else size for axis, size in enumerate(x.type.shape)])


def select_elements(x: Value, where: ArrayLike, neutral: complex) -> Value:
    """`x` with `neutral` where the mask `where` does not hold."""
    if where is True:
        return x
    b = here()
    return b.select(broadcast_operand(where, BOOL, x.type.shape), x, b.full(x.type, neutral))


def accumulator(dtype: DType) -> DType:
    """The dtype that NumPy sums and multiplies integers in: 64 bits."""
    match dtype.kind:
        case Kind.BOOL | Kind.INT:
            return I64
        case Kind.UINT:
            return U64
    return dtype


def _accumulating(what: str, make: ReductionOp, neutral: complex, combine: str) -> Callable[..., Tracer]:
    def apply(  # NumPy's signature
        a: ArrayLike,
        axis: Axis = None,
        dtype: object = None,
        keepdims: object = False,
        initial: ArrayLike = None,
        where: ArrayLike = True,
    ) -> Tracer:
        x, b = value_of(a), here()
        x = b.convert(x, accumulator(x.type.dtype) if dtype is None else as_ir_dtype(dtype))
        x = select_elements(x, where, neutral)
        if x.type.dtype.is_bool:
            return _wrapped_bool(make, x, normalize_axes(axis, x.type.rank, what), keepdims)
        result = reduce_value(make, x, normalize_axes(axis, x.type.rank, what), keepdims)
        if initial is not None:
            start = broadcast_operand(initial, x.type.dtype, result.type.shape)
            result = b.add(result, start) if combine == "add" else b.multiply(result, start)
        return wrap(result)

    return apply


def _wrapped_bool(make: ReductionOp, x: Value, axes: tuple[int, ...], keepdims: object) -> Tracer:
    """A sum or product with dtype=bool: logic on whether the elements are true."""
    b = here()
    return wrap(b.convert(reduce_value(make, b.convert(x, I64), axes, keepdims), BOOL))


def _extremum(what: str, make: ReductionOp, neutral: Callable[[DType], complex], combine: str) -> Callable[..., Tracer]:
    def apply(
        a: ArrayLike, axis: Axis = None, keepdims: object = False, initial: ArrayLike = None, where: ArrayLike = True
    ) -> Tracer:
        x, b = value_of(a), here()
        _require_order(what, x)
        if where is not True and initial is None:
            fail(f"{what}(..., where=...) needs initial=..., its result where nothing is selected")
        axes = normalize_axes(axis, x.type.rank, what)
        if initial is None and builtins.any(x.type.shape[axis] == 0 for axis in axes):
            fail(f"{what} over no elements: the array has shape {x.type.shape}; give initial=...")
        result = reduce_value(make, select_elements(x, where, neutral(x.type.dtype)), axes, keepdims)
        if initial is not None:
            start = broadcast_operand(initial, x.type.dtype, result.type.shape)
            result = b.maximum(result, start) if combine == "max" else b.minimum(result, start)
        return wrap(result)

    return apply


def _require_order(what: str, x: Value) -> None:
    if x.type.dtype.is_complex:
        fail(f"{what} of complex numbers, which have no order; use np.abs(x), or the real part x.real")


def _logical(what: str, make: ReductionOp, neutral: bool) -> Callable[..., Tracer]:
    def apply(a: ArrayLike, axis: Axis = None, keepdims: object = False, where: ArrayLike = True) -> Tracer:
        x = select_elements(truth(here(), value_of(a)), where, neutral)
        return wrap(reduce_value(make, x, normalize_axes(axis, x.type.rank, what), keepdims))

    return apply


sum = _accumulating("np.sum", reduction.ReduceSum, 0, "add")
prod = _accumulating("np.prod", reduction.ReduceProd, 1, "multiply")
max = _extremum("np.max", reduction.ReduceMax, reduction.lowest, "max")
min = _extremum("np.min", reduction.ReduceMin, reduction.highest, "min")
all = _logical("np.all", reduction.ReduceAnd, True)
any = _logical("np.any", reduction.ReduceOr, False)


def ptp(a: ArrayLike, axis: Axis = None, keepdims: object = False) -> Tracer:
    """Maximum minus minimum."""
    high, low = max(a, axis=axis, keepdims=keepdims), min(a, axis=axis, keepdims=keepdims)
    return wrap(here().subtract(high.value, low.value))


def count_nonzero(a: ArrayLike, axis: Axis = None, *, keepdims: object = False) -> Tracer:
    """How many elements are not zero."""
    x = here().convert(truth(here(), value_of(a)), I64)
    return wrap(reduce_value(reduction.ReduceSum, x, normalize_axes(axis, x.type.rank, "np.count_nonzero"), keepdims))


def _index_of_extremum(what: str, make: Callable[[int, DType], Op]) -> Callable[..., Tracer]:
    def apply(a: ArrayLike, axis: Axis = None, *, keepdims: object = False) -> Tracer:
        x, b = value_of(a), here()
        _require_order(what, x)
        shape = x.type.shape
        if axis is None:
            x = b.reshape(x, (x.type.size,))
        dimension = 0 if axis is None else normalize_axis(axis, x.type.rank, what)
        if x.type.shape[dimension] == 0:
            fail(f"{what} over no elements: the array has shape {shape}")
        result = b.emit1(make(dimension, I64), x)
        if keepdims:
            kept = [1] * len(shape) if axis is None else [*shape[:dimension], 1, *shape[dimension + 1 :]]
            result = b.reshape(result, kept)
        return wrap(result)

    return apply


argmax = _index_of_extremum("np.argmax", reduction.Argmax)
argmin = _index_of_extremum("np.argmin", reduction.Argmin)


def count(shape: tuple[int, ...], axes: tuple[int, ...]) -> int:
    """Number of elements that a reduction over `axes` combines into one."""
    return int(np.prod([shape[axis] for axis in axes], dtype=np.int64))


def ones_counted(where: ArrayLike, x: TensorType, axes: tuple[int, ...], keepdims: object) -> Value:
    """How many elements the mask `where` selects, in the dtype of `x`."""
    b = here()
    mask = b.convert(broadcast_operand(where, BOOL, x.shape), x.dtype)
    return reduce_value(reduction.ReduceSum, mask, axes, keepdims)


FUNCTIONS: dict[Callable[..., object], Callable[..., object]] = {
    np.sum: sum,
    np.prod: prod,
    np.max: max,
    np.amax: max,
    np.min: min,
    np.amin: min,
    np.all: all,
    np.any: any,
    np.ptp: ptp,
    np.count_nonzero: count_nonzero,
    np.argmax: argmax,
    np.argmin: argmin,
}
