"""Functions whose result has a shape that depends on data, at a size that the caller names: `size=`.

They are the names of `rematc.numpy`. What is found beyond the size is left out; what is missing is filled up with
`fill_value`. On concrete arrays the size may be left out, and they are NumPy's functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rematc.compiler.frontends.numpy.elementwise import is_nan, stopped, truth
from rematc.compiler.frontends.numpy.operands import (
    ArrayLike,
    broadcast_operand,
    enter,
    fail,
    here,
    is_traced,
    shape_of,
    static_int,
    value_of,
    wrap,
)
from rematc.compiler.frontends.numpy.sorting import flattened, order_along
from rematc.compiler.tracing.trace import Tracer
from rematc.ir.ops.cumulative import CumulativeSum
from rematc.ir.ops.gather_scatter import ScatterDimensions
from rematc.ir.ops.indexing import Scatter
from rematc.ir.ops.sorting import index_dtype, take_along
from rematc.ir.types import I64, TensorType
from rematc.ir.values import Array, Value

_POINTS = ScatterDimensions((), (0,), (0,), 1)


def required(size: object, what: str) -> int:
    """The size of the result of a function of traced arrays, which must be named."""
    if size is None:
        fail(
            f"{what} has a shape that depends on data; name the size of its result: {what}(..., size=n, fill_value=...)"
        )
    return static_int(size, f"size of {what}")


# -- traced ------------------------------------------------------------------------------------------------------------


def _numbered(mask: Value) -> Value:
    """For each element of a line of booleans how many before it hold, itself included."""
    b = here()
    return b.emit1(CumulativeSum(0), b.convert(mask, index_dtype(mask.type.size + 1)))


def _places(mask: Value, size: int, fill: int) -> Value:
    """The places in a line where it holds: the first `size`, or `fill`."""
    b, counts = here(), _numbered(mask)
    dtype = counts.type.dtype
    # An element where it does not hold is sent to the place `size`, which is outside and thus skipped.
    slots = b.select(mask, b.subtract(counts, b.full(counts.type, 1)), b.full(counts.type, size))
    places = b.iota(counts.type, 0)
    found = b.full(TensorType(dtype, (size,)), fill)
    if not size or not mask.type.size:
        return found
    vectors = b.reshape(slots, (*slots.type.shape, 1))
    return b.emit1(Scatter(_POINTS, unique_indices=False), found, vectors, places)


def _traced_flatnonzero(x: ArrayLike, size: int, fill: int) -> Value:
    b, line = here(), flattened(value_of(x))
    return b.convert(_places(truth(b, line), size, fill), I64)


def _traced_nonzero(x: ArrayLike, size: int, fills: Sequence[int]) -> tuple[Tracer, ...]:
    """The index along each dimension."""
    b, shape = here(), value_of(x).type.shape
    places = _traced_flatnonzero(x, size, -1)
    is_missing = b.compare(places, b.zeros(places.type), "LT")
    rest, found = b.maximum(places, b.zeros(places.type)), []
    for length, fill in list(zip(shape, fills, strict=True))[::-1]:
        divisor = b.full(rest.type, max(length, 1))
        above = b.divide(rest, divisor)
        index = b.subtract(rest, b.multiply(above, divisor))
        found.append(wrap(b.select(is_missing, b.full(index.type, fill), index)))
        rest = above
    return tuple(found[::-1])


def _traced_unique(x: ArrayLike, size: int, fill: ArrayLike, wanted: Sequence[bool]) -> list[Tracer]:
    """Values, then indices, inverse and counts as they are wanted."""
    b, value = here(), value_of(x)
    line = flattened(value)
    n = line.type.size
    if not n:
        fail("unique of an array without elements: there is nothing to fill up with")
    order = order_along(line, 0)
    ordered = take_along(b, line, order, 0)
    is_new = _differs_from_previous(stopped(b, ordered))
    bounds = _places(is_new, size + 1, n)
    starts, ends = b.slice(bounds, (0,), (size,)), b.slice(bounds, (1,), (size + 1,))
    is_missing = b.compare(starts, b.full(starts.type, n), "EQ")
    # What is missing is the least element once more.
    inside = b.select(is_missing, b.zeros(starts.type), starts)
    values = take_along(b, ordered, inside, 0)
    if fill is not None:
        values = b.select(is_missing, broadcast_operand(fill, line.type.dtype, (size,)), values)
    results = [values]
    if wanted[0]:
        results.append(b.convert(take_along(b, order, inside, 0), I64))
    if wanted[1]:
        results.append(b.convert(b.reshape(_ranks(order, is_new), value.type.shape), I64))
    if wanted[2]:
        results.append(b.convert(b.subtract(ends, starts), I64))
    return [wrap(result) for result in results]


def _differs_from_previous(ordered: Value) -> Value:
    """Whether an element of a sorted line is the first of its equals; all NaNs are equal."""
    b, n = here(), ordered.type.size
    earlier, later = b.slice(ordered, (0,), (n - 1,)), b.slice(ordered, (1,), (n,))
    differs = b.compare(earlier, later, "NE")
    if ordered.type.dtype.is_inexact:
        differs = b.logical_and(differs, b.logical_not(b.logical_and(is_nan(b, earlier), is_nan(b, later))))
    return b.concatenate([b.full(differs.type.with_shape((1,)), True), differs], 0)


def _ranks(order: Value, is_new: Value) -> Value:
    """For each element of the unsorted line how many different elements are less."""
    b, numbers = here(), _numbered(is_new)
    ranks = b.subtract(numbers, b.full(numbers.type, 1))
    vectors = b.reshape(order, (order.type.size, 1))
    return b.emit1(Scatter(_POINTS, unique_indices=True), b.zeros(ranks.type), vectors, ranks)


# -- the functions of rematc.numpy -------------------------------------------------------------------------------------


def flatnonzero(a: ArrayLike, *, size: int | None = None, fill_value: int = 0) -> Any:
    """The places of nonzero elements in the flattened array: as np.flatnonzero, the first `size` of them."""
    if not is_traced(a):
        found = np.flatnonzero(np.asarray(a))
        return found if size is None else filled(found, size, fill_value)
    enter(a)
    return wrap(_traced_flatnonzero(a, required(size, "rematc.numpy.flatnonzero"), fill_value))


def nonzero(a: ArrayLike, *, size: int | None = None, fill_value: int | Sequence[int] = 0) -> tuple[Any, ...]:
    """The indices of nonzero elements, one array a dimension: as np.nonzero, the first `size` of them.

    Args:
        a: the array.
        size: the length of the results; needed where `a` is traced.
        fill_value: what stands for indices that are missing, one for all dimensions or one for each.
    """
    rank = len(shape_of(a))
    fills = (fill_value,) * rank if isinstance(fill_value, int) else tuple(fill_value)
    if not is_traced(a):
        found = np.nonzero(np.asarray(a))
        if size is None:
            return found
        return tuple([filled(index, size, fill) for index, fill in zip(found, fills, strict=True)])
    enter(a)
    return _traced_nonzero(a, required(size, "rematc.numpy.nonzero"), fills)


def argwhere(a: ArrayLike, *, size: int | None = None, fill_value: int = 0) -> Any:
    """The indices of nonzero elements, one row an element: as np.argwhere, the first `size` of them."""
    if not is_traced(a) and size is None:
        return np.argwhere(np.asarray(a))
    return np.stack(nonzero(a, size=size, fill_value=fill_value), axis=-1)


def unique(
    ar: ArrayLike,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value: ArrayLike = None,
) -> Any:
    """The different elements in order: as np.unique of the flattened array, the first `size` of them.

    Args:
        ar: the array.
        return_index: whether to return where each stands first, too.
        return_inverse: whether to return for each element of `ar` which of the different ones it is.
        return_counts: whether to return how often each stands there; 0 for those filled up with.
        axis: on concrete arrays without a size, the axis whose slices are compared.
        equal_nan: whether NaNs are equal; on traced arrays they are.
        size: the length of the results; needed where `ar` is traced.
        fill_value: what stands for elements that are missing; by default the least one.
    """
    wanted = (return_index, return_inverse, return_counts)
    if size is None and not is_traced(ar):
        return np.unique(np.asarray(ar), *wanted, axis, equal_nan=equal_nan)  # type: ignore[call-overload]  # as NumPy
    if axis is not None or not equal_nan:
        raise _unsupported(ar, "axis=..." if axis is not None else "equal_nan=False")
    if is_traced(ar):
        enter(ar)
        results: list[Any] = [*_traced_unique(ar, required(size, "rematc.numpy.unique"), fill_value, wanted)]
    else:
        results = _concrete_unique(np.asarray(ar), size or 0, fill_value, wanted)
    return tuple(results) if any(wanted) else results[0]


def _unsupported(ar: ArrayLike, option: str) -> Exception:
    message = f"rematc.numpy.unique with {option} is not supported on traced arrays or together with size; leave it out"
    if is_traced(ar):
        enter(ar)
        fail(message)
    return ValueError(message)


def _concrete_unique(x: Array, size: int, fill: ArrayLike, wanted: Sequence[bool]) -> list[Any]:
    values, index, inverse, counts = np.unique(x, True, True, True)
    filler: Any = values[0] if fill is None else fill
    values, index, counts = filled(values, size, filler), filled(index, size, index[0]), filled(counts, size, 0)
    chosen = [found for found, is_wanted in zip((index, inverse, counts), wanted, strict=True) if is_wanted]
    return [values, *chosen]


def filled(found: Any, size: int, fill: Any) -> Any:
    """The first `size` slices along the first dimension, filled up where there are fewer."""
    result = np.full((size, *found.shape[1:]), fill, found.dtype)
    result[: len(found)] = found[:size]
    return result


FUNCTIONS: dict[str, Callable[..., object]] = {
    "argwhere": argwhere,
    "flatnonzero": flatnonzero,
    "nonzero": nonzero,
    "unique": unique,
}
