"""Selections and sets at a size that the caller names: further names of `rematc.numpy`, as in `sized`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from rematc.compiler.frontends.numpy.indexing import getitem
from rematc.compiler.frontends.numpy.operands import (
    ArrayLike,
    as_operand,
    dispatching,
    enter,
    fail,
    is_traced,
    normalize_axis,
    shape_of,
    static_int,
    value_of,
    wrap,
)
from rematc.compiler.frontends.numpy.sized import filled, flatnonzero, nonzero, required, unique
from rematc.compiler.frontends.numpy.updates import at_set

# The arrays here are tracers, or arrays, which NumPy's types do not know to be either.
Traced = Any


def _ravel(x: ArrayLike) -> Traced:
    return dispatching.ravel(as_operand(x))


def compress(
    condition: ArrayLike, a: ArrayLike, axis: int | None = None, *, size: int | None = None, fill_value: ArrayLike = 0
) -> Traced:
    """The slices of `a` at which the condition holds: as np.compress, the first `size` of them.

    Args:
        condition: booleans, at most as many as the axis is long.
        a: the array; it is flattened where `axis` is None.
        axis: the axis along which slices are chosen.
        size: how many the result has; needed where the condition is traced.
        fill_value: what stands for slices that are missing.
    """
    if not is_traced((condition, a)) or (not is_traced(condition) and size is None):
        found = dispatching.compress(np.asarray(condition), as_operand(a), axis)
        return found if size is None else filled(found, size, fill_value)
    enter(condition, a)
    x: Traced = _ravel(a) if axis is None else wrap(value_of(a))
    along = normalize_axis(0 if axis is None else axis, x.ndim, "rematc.numpy.compress")
    count = required(size, "rematc.numpy.compress")
    places = flatnonzero(condition, size=count, fill_value=-1)
    shape = [count if d == along else 1 for d in range(x.ndim)]
    is_found = np.reshape(np.asarray(places) >= 0 if not is_traced(places) else places >= 0, shape)
    kept = getitem(x, (*[slice(None)] * along, np.maximum(places, 0)))
    filler = np.asarray(fill_value, x.dtype) if not is_traced(fill_value) else fill_value
    return dispatching.where(is_found, kept, filler)


def extract(condition: ArrayLike, arr: ArrayLike, *, size: int | None = None, fill_value: ArrayLike = 0) -> Traced:
    """The elements at which the condition holds: as np.extract, the first `size` of them."""
    return compress(_ravel(condition), _ravel(arr), size=size, fill_value=fill_value)


def where(
    condition: ArrayLike,
    x: ArrayLike = None,
    y: ArrayLike = None,
    /,
    *,
    size: int | None = None,
    fill_value: int | Sequence[int] = 0,
) -> Traced:
    """As np.where; of a condition alone, the indices where it holds, the first `size` of them."""
    if x is None and y is None:
        return nonzero(condition, size=size, fill_value=fill_value)
    return dispatching.where(as_operand(condition), as_operand(x), as_operand(y))


def _of_sets(name: str, function: Callable[..., Traced], choose: Callable[[Traced, Traced, Traced], Traced]) -> Any:
    """A set operation: which of the different elements of both arrays belong to the result."""

    def apply(
        ar1: ArrayLike,
        ar2: ArrayLike,
        assume_unique: bool = False,
        *,
        size: int | None = None,
        fill_value: ArrayLike = 0,
    ) -> Traced:
        if not is_traced((ar1, ar2)):
            found = function(ar1, ar2)
            return found if size is None else filled(found, size, fill_value)
        enter(ar1, ar2)
        count = required(size, f"rematc.numpy.{name}")
        both = np.concatenate([_ravel(ar1), _ravel(ar2)])
        if not both.size:
            return dispatching.full(count, fill_value, both.dtype)
        values, counts = unique(both, return_counts=True, size=both.size)
        chosen = choose(values, _ravel(ar1), _ravel(ar2)) & (counts > 0)
        return compress(chosen, values, size=count, fill_value=fill_value)

    apply.__name__ = name
    apply.__doc__ = f"As np.{name}: the first `size` of its elements, filled up with `fill_value`."
    return apply


union1d = _of_sets("union1d", np.union1d, lambda values, x, y: np.ones(values.shape, np.bool_))
intersect1d = _of_sets("intersect1d", np.intersect1d, lambda values, x, y: np.isin(values, x) & np.isin(values, y))
setdiff1d = _of_sets("setdiff1d", np.setdiff1d, lambda values, x, y: np.isin(values, x) & ~np.isin(values, y))
setxor1d = _of_sets("setxor1d", np.setxor1d, lambda values, x, y: np.isin(values, x) ^ np.isin(values, y))


def repeat(
    a: ArrayLike, repeats: ArrayLike, axis: int | None = None, *, total_repeat_length: int | None = None
) -> Traced:
    """As np.repeat; by traced numbers, to a length that is named.

    Args:
        a: the array; it is flattened where `axis` is None.
        repeats: how often each element comes, or all of them.
        axis: the axis along which elements are repeated.
        total_repeat_length: the length of the result; needed where `repeats` is traced. What goes beyond is left out,
            and the last element fills up what is missing.
    """
    if not is_traced(repeats) and total_repeat_length is None:
        return dispatching.repeat(as_operand(a), repeats, axis)
    if total_repeat_length is None:
        enter(repeats)
        fail("rematc.numpy.repeat by traced numbers has a length that depends on data: name total_repeat_length=n")
    x: Traced = _ravel(a) if axis is None else as_operand(a)
    x = x if is_traced(x) else np.asarray(x)
    along = 0 if axis is None else range(x.ndim)[axis]
    length = static_int(total_repeat_length, "total_repeat_length")
    if not x.shape[along]:
        return np.take(x, np.zeros(0, np.int64), along) if not length else _refuse_nothing(repeats)
    ends: Traced = dispatching.cumsum(dispatching.broadcast_to(as_operand(repeats), (x.shape[along],)))
    place = np.searchsorted(ends, np.arange(length), "right")
    return np.take(x, np.minimum(place, x.shape[along] - 1), along)


def _refuse_nothing(repeats: ArrayLike) -> NoReturn:
    enter(repeats)
    fail("rematc.numpy.repeat of no elements: there is nothing to fill up with")


def put_along_axis(arr: ArrayLike, indices: ArrayLike, values: ArrayLike, axis: int | None = -1) -> Traced:
    """A new array: `arr` with the elements that take_along_axis reads replaced. NumPy's own writes into `arr`."""
    x: Traced = as_operand(arr)
    x = x if is_traced(x) else np.asarray(x)
    if axis is None:
        return np.reshape(put_along_axis(np.ravel(x), _ravel(indices), _ravel(values), 0), x.shape)
    along = range(x.ndim)[axis]
    chosen: Traced = as_operand(indices)
    rank = len(shape_of(chosen))
    if rank != x.ndim:
        if is_traced((arr, indices, values)):
            enter(arr, indices, values)
            fail(f"rematc.numpy.put_along_axis: indices of {rank} dimensions for an array of {x.ndim}")
        raise ValueError(f"indices of {rank} dimensions for an array of {x.ndim}")
    mesh = [
        chosen if d == along else np.reshape(np.arange(size), [-1 if axis == d else 1 for axis in range(rank)])
        for d, size in enumerate(x.shape)
    ]
    return at_set(x, tuple(mesh), values)


def fill_diagonal(a: ArrayLike, val: ArrayLike, wrap: bool = False) -> Traced:  # NumPy's name
    """A new array: `a` with this diagonal. NumPy's own writes into `a`."""
    x: Traced = as_operand(a)
    x = x if is_traced(x) else np.asarray(x)
    # NumPy tells where its diagonal goes.
    marked = np.zeros(x.shape, np.bool_)
    np.fill_diagonal(marked, True, wrap)
    places = np.flatnonzero(marked)
    values: Traced = dispatching.resize(as_operand(val), places.size)
    return np.reshape(at_set(np.ravel(x), places, values), x.shape)


FUNCTIONS: dict[str, Callable[..., object]] = {
    "compress": compress,
    "extract": extract,
    "where": where,
    "union1d": union1d,
    "intersect1d": intersect1d,
    "setdiff1d": setdiff1d,
    "setxor1d": setxor1d,
    "repeat": repeat,
    "put_along_axis": put_along_axis,
    "fill_diagonal": fill_diagonal,
}
