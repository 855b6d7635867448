"""Reductions: sums, products, extrema, logic and indices of extrema over axes.

The parameters are those of the NumPy functions of the same names.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable

import numpy as np

from rematc.compiler.frontends.numpy.elementwise import Rule, is_nan, maximum, minimum, truth
from rematc.compiler.frontends.numpy.operands import (
    ArrayLike,
    as_ir_dtype,
    broadcast_operand,
    converted,
    fail,
    here,
    normalize_axes,
    normalize_axis,
    value_of,
    wrap,
)
from rematc.compiler.frontends.numpy.sorting import order_along
from rematc.compiler.tracing.trace import Tracer
from rematc.ir.core import Op
from rematc.ir.ops import reduction
from rematc.ir.ops.sorting import take_along
from rematc.ir.types import BOOL, I64, U64, DType, Kind, TensorType
from rematc.ir.values import Value

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
        x = converted(b, x, accumulator(x.type.dtype) if dtype is None else as_ir_dtype(dtype))
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


def _extremum(
    what: str, make: ReductionOp, neutral: Callable[[DType], complex], combine: Rule
) -> Callable[..., Tracer]:
    def apply(
        a: ArrayLike, axis: Axis = None, keepdims: object = False, initial: ArrayLike = None, where: ArrayLike = True
    ) -> Tracer:
        x, b = value_of(a), here()
        if where is not True and initial is None:
            fail(f"{what}(..., where=...) needs initial=..., its result where nothing is selected")
        axes = normalize_axes(axis, x.type.rank, what)
        if initial is None and builtins.any(x.type.shape[axis] == 0 for axis in axes):
            fail(f"{what} over no elements: the array has shape {x.type.shape}; give initial=...")
        if x.type.dtype.is_complex:
            chosen = select_elements(x, where, -np.inf if combine is maximum else np.inf)
            result = _complex_extremum(chosen, axes, keepdims, combine is maximum)
        else:
            result = reduce_value(make, select_elements(x, where, neutral(x.type.dtype)), axes, keepdims)
        if initial is not None:
            result = combine(b, result, broadcast_operand(initial, x.type.dtype, result.type.shape))
        return wrap(result)

    return apply


def _complex_extremum(x: Value, axes: tuple[int, ...], keepdims: object, is_greatest: bool) -> Value:
    """The last or first of complex numbers in lexicographic order; one that is NaN, where there is one."""
    b, shape = here(), x.type.shape
    rest = [d for d in range(x.type.rank) if d not in axes]
    kept = [shape[d] for d in rest]
    lines = b.reshape(b.transpose(x, (*rest, *axes)), (*kept, count(shape, axes)))
    along = len(kept)
    place = _complex_index(lines, along, is_greatest)
    found = b.reshape(take_along(b, lines, b.reshape(place, (*kept, 1)), along), kept)
    return b.reshape(found, [1 if d in axes else size for d, size in enumerate(shape)]) if keepdims else found


def _complex_index(x: Value, dimension: int, is_greatest: bool) -> Value:
    """Where the first of the extreme elements stands along a dimension; NaN is more extreme than any number."""
    b, shape = here(), x.type.shape
    size = shape[dimension]
    # Sorting puts NaNs last and keeps equals in order: so the array is turned round to find the first of the greatest.
    order = order_along(b.reverse(x, (dimension,)) if is_greatest else x, dimension)
    last = size - 1 if is_greatest else 0
    place = b.slice(
        order,
        [last if d == dimension else 0 for d in range(len(shape))],
        [last + 1 if d == dimension else n for d, n in enumerate(shape)],
    )
    place = b.reshape(place, [n for d, n in enumerate(shape) if d != dimension])
    if is_greatest:
        return b.subtract(b.full(place.type, size - 1), place)
    nan = is_nan(b, x)
    first = b.convert(b.emit1(reduction.Argmax(dimension, I64), b.convert(nan, I64)), place.type.dtype)
    return b.select(b.emit1(reduction.ReduceOr((dimension,)), nan), first, place)


def _logical(what: str, make: ReductionOp, neutral: bool) -> Callable[..., Tracer]:
    def apply(a: ArrayLike, axis: Axis = None, keepdims: object = False, where: ArrayLike = True) -> Tracer:
        x = select_elements(truth(here(), value_of(a)), where, neutral)
        return wrap(reduce_value(make, x, normalize_axes(axis, x.type.rank, what), keepdims))

    return apply


sum = _accumulating("np.sum", reduction.ReduceSum, 0, "add")
prod = _accumulating("np.prod", reduction.ReduceProd, 1, "multiply")
max = _extremum("np.max", reduction.ReduceMax, reduction.lowest, maximum)
min = _extremum("np.min", reduction.ReduceMin, reduction.highest, minimum)
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
        shape = x.type.shape
        if axis is None:
            x = b.reshape(x, (x.type.size,))
        dimension = 0 if axis is None else normalize_axis(axis, x.type.rank, what)
        if x.type.shape[dimension] == 0:
            fail(f"{what} over no elements: the array has shape {shape}")
        if x.type.dtype.is_complex:
            result = b.convert(_complex_index(x, dimension, make is reduction.Argmax), I64)
        else:
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
