"""Sorts and what they are good for: ranks, medians, quantiles, places in a sorted array, membership.

Floats are sorted as the order of their indices, in which the elements are then read: so values and derivatives need
one sort. Equal elements keep their order.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rematc.compiler.frontends.numpy import elementwise
from rematc.compiler.frontends.numpy.elementwise import is_nan, stopped
from rematc.compiler.frontends.numpy.operands import (
    ArrayLike,
    as_operand,
    fail,
    here,
    normalize_axis,
    promote,
    value_of,
    wrap,
)
from rematc.compiler.tracing.trace import Tracer
from rematc.ir.ops.reduction import ReduceOr
from rematc.ir.ops.sorting import Sort, index_dtype, take_along
from rematc.ir.types import C64, C128, I64, TensorType
from rematc.ir.values import Value

#: So many elements are compared with one after the other rather than sorted.
_FEW = 16


def _along(a: ArrayLike, axis: object, what: str) -> tuple[Value, int]:
    """The operand and the dimension; with axis None all elements in one line."""
    x = value_of(a)
    if axis is None:
        return here().reshape(x, (x.type.size,)), 0
    return x, normalize_axis(axis, x.type.rank, what)


def _refuse_fields(order: object, what: str) -> None:
    if order is not None:
        fail(f"{what}(..., order=...) names fields of a structured array, which a traced array is not; leave order out")


def order_along(x: Value, dimension: int) -> Value:
    """Where each element of the sorted array comes from."""
    b, shape = here(), x.type.shape
    places = b.iota(TensorType(index_dtype(shape[dimension]), shape), dimension)
    return b.emit(Sort(dimension), stopped(b, x), places)[1]


def sorted_along(x: Value, dimension: int) -> Value:
    """The elements in order along a dimension."""
    b = here()
    if x.type.dtype.is_inexact:
        return take_along(b, x, order_along(x, dimension), dimension)
    return b.emit1(Sort(dimension), x)


def sort(
    a: ArrayLike, axis: object = -1, kind: object = None, order: object = None, *, stable: object = None
) -> Tracer:
    """As np.sort; every kind is stable."""
    _refuse_fields(order, "np.sort")
    return wrap(sorted_along(*_along(a, axis, "np.sort")))


def argsort(
    a: ArrayLike, axis: object = -1, kind: object = None, order: object = None, *, stable: object = None
) -> Tracer:
    """As np.argsort; every kind is stable."""
    _refuse_fields(order, "np.argsort")
    x, b = value_of(a), here()
    # A number is ordered as the vector that holds it.
    line = a if x.type.rank else wrap(b.reshape(x, (1,)))
    return wrap(b.convert(order_along(*_along(line, axis, "np.argsort")), I64))


def partition(a: ArrayLike, kth: object, axis: object = -1, kind: object = None, order: object = None) -> Tracer:
    """As np.partition, whose order beside the kth element is open: sorted."""
    return sort(a, axis, order=order)


def argpartition(a: ArrayLike, kth: object, axis: object = -1, kind: object = None, order: object = None) -> Tracer:
    """As np.argpartition, whose order beside the kth element is open: sorted."""
    return argsort(a, axis, order=order)


def lexsort(keys: ArrayLike, axis: object = -1) -> Tracer:
    """As np.lexsort: the last key decides first."""
    columns = [value_of(key) for key in (keys if isinstance(keys, (list, tuple)) else value_rows(keys))]
    if not columns:
        fail("np.lexsort takes at least one key")
    b, first = here(), columns[0].type
    dimension = normalize_axis(axis, first.rank, "np.lexsort")
    places = b.iota(TensorType(index_dtype(first.shape[dimension]), first.shape), dimension)
    keyed = [stopped(b, key) for key in reversed(columns)]
    return wrap(b.convert(b.emit(Sort(dimension, len(keyed)), *keyed, places)[-1], I64))


def value_rows(x: ArrayLike) -> list[Tracer]:
    """The elements along the first dimension."""
    b, value = here(), value_of(x)
    shape = value.type.shape
    whole = [0] * len(shape)
    rows = [b.slice(value, [i, *whole[1:]], [i + 1, *shape[1:]]) for i in range(shape[0])]
    return [wrap(b.reshape(row, shape[1:])) for row in rows]


def sort_complex(a: ArrayLike) -> Tracer:
    """As np.sort_complex: by the real part, then by the imaginary one."""
    x = value_of(a)
    if not x.type.rank:
        fail("np.sort_complex takes an array of one dimension or more, got a scalar")
    dtype = C64 if x.type.dtype.is_integer and x.type.dtype.bits <= 16 else C128
    return wrap(sorted_along(x if x.type.dtype.is_complex else here().convert(x, dtype), x.type.rank - 1))


# -- places in a sorted array ------------------------------------------------------------------------------------------


def searchsorted(a: ArrayLike, v: ArrayLike, side: str = "left", sorter: ArrayLike = None) -> Tracer:
    """As np.searchsorted, by bisection: one lookup for each bit of the array's length."""
    if side not in ("left", "right"):
        fail(f"np.searchsorted takes the sides left and right, got {side!r}")
    (line, targets), _ = promote(a, v)
    if line.type.rank != 1:
        fail(f"np.searchsorted takes a sorted vector, got shape {line.type.shape}")
    if sorter is not None:
        line = take_along(here(), line, value_of(sorter), 0)
    return wrap(here().convert(_places(line, targets, side), I64))


def _places(line: Value, targets: Value, side: str) -> Value:
    """How many elements of the sorted line stand before each target; those equal to it only on the right side."""
    b, n = here(), line.type.size
    flat = stopped(b, b.reshape(targets, (targets.type.size,)))
    line = stopped(b, line)
    place = b.zeros(flat.type.with_dtype(index_dtype(n + 1)))
    for bit in reversed(range(n.bit_length())):
        further = b.add(place, b.full(place.type, 1 << bit))
        is_inside = b.compare(further, b.full(place.type, n), "LE")
        last = b.subtract(b.minimum(further, b.full(place.type, n)), b.full(place.type, 1))
        element = take_along(b, line, last, 0)
        before = _is_less(element, flat) if side == "left" else b.logical_not(_is_less(flat, element))
        place = b.select(b.logical_and(is_inside, before), further, place)
    return b.reshape(place, targets.type.shape)


def _is_less(x: Value, y: Value) -> Value:
    """x < y, a NaN being greater than any number."""
    b = here()
    less = elementwise.RULES["less"](b, x, y)
    if not x.type.dtype.is_inexact:
        return less
    return b.logical_or(less, b.logical_and(is_nan(b, y), b.logical_not(is_nan(b, x))))


def digitize(x: ArrayLike, bins: ArrayLike, right: bool = False) -> Tracer:
    """As np.digitize, for bins that are known while tracing."""
    if isinstance(as_operand(bins), Tracer):
        fail("np.digitize takes bins that are known while tracing; for traced, rising ones use np.searchsorted")
    edges = np.asarray(bins)
    steps = np.diff(edges)
    side = "left" if right else "right"
    if (steps >= 0).all():
        return searchsorted(edges, x, side)
    if not (steps <= 0).all():
        fail("np.digitize takes bins in rising or falling order")
    b, found = here(), searchsorted(edges[::-1], x, side).value
    return wrap(b.subtract(b.full(found.type, edges.size), found))


def isin(
    element: ArrayLike,
    test_elements: ArrayLike,
    assume_unique: bool = False,
    invert: bool = False,
    *,
    kind: object = None,
) -> Tracer:
    """As np.isin: every element compared with few others, or found among many that are sorted."""
    (x, known), dtype = promote(element, test_elements)
    b, line = here(), flattened(known)
    if dtype.is_complex or line.type.size <= _FEW:
        shape = (*x.type.shape, line.type.size)
        left, right = b.broadcast_in_dim(x, shape, range(x.type.rank)), b.broadcast_in_dim(line, shape, (x.type.rank,))
        found = b.emit1(ReduceOr((x.type.rank,)), b.compare(left, right, "EQ"))
    else:
        line = sorted_along(stopped(b, line), 0)
        found = b.compare(_places(line, x, "left"), _places(line, x, "right"), "NE")
        found = b.logical_and(found, b.compare(x, x, "EQ"))
    return wrap(b.logical_not(found) if invert else found)


def flattened(x: Value) -> Value:
    """All elements in one line."""
    return here().reshape(x, (x.type.size,))


FUNCTIONS: dict[Callable[..., object], Callable[..., object]] = {
    np.sort: sort,
    np.argsort: argsort,
    np.partition: partition,
    np.argpartition: argpartition,
    np.lexsort: lexsort,
    np.sort_complex: sort_complex,
    np.searchsorted: searchsorted,
    np.digitize: digitize,
    np.isin: isin,
}
