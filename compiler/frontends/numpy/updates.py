"""Arrays with some elements replaced or changed, as new arrays: the functional form of `x[index] = value`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rematc.compiler.frontends.numpy.index_entries import Entry, parse_index
from rematc.compiler.frontends.numpy.index_writes import Combine, replace, selected_shape, written
from rematc.compiler.frontends.numpy.indexing import Indexed
from rematc.compiler.frontends.numpy.operands import (
    ArrayLike,
    as_operand,
    broadcast_operand,
    dtype_of,
    enter,
    fail,
    here,
    is_traced,
    shape_of,
    value_of,
    wrap,
)
from rematc.compiler.frontends.numpy.outputs import check_target
from rematc.compiler.tracing.trace import Tracer
from rematc.ir.builder import Builder
from rematc.ir.ops import indexing
from rematc.ir.values import Array, Value


def _update(combine: Combine, scatter: type[indexing.Scattering]) -> Callable[..., Tracer]:
    def apply(x: ArrayLike, index: object, value: ArrayLike) -> Tracer:
        array = value_of(x)
        mask = _mask_of(index)
        if mask is not None:
            return wrap(_masked(array, mask, as_operand(value), combine))
        return wrap(written(array, parse_index(index, array.type.shape), value, combine, scatter))

    return apply


_traced_set = _update(replace, indexing.Scatter)
_traced_add = _update(Builder.add, indexing.ScatterAdd)
_traced_multiply = _update(Builder.multiply, indexing.ScatterMultiply)
_traced_min = _update(Builder.minimum, indexing.ScatterMinimum)
_traced_max = _update(Builder.maximum, indexing.ScatterMaximum)


def _mask_of(index: object) -> Tracer | None:
    """The traced mask that is the index, or its first item before nothing but whole slices."""
    items = index if isinstance(index, tuple) else (index,)
    if not items or not isinstance(items[0], Tracer) or not items[0].value.type.dtype.is_bool:
        return None
    is_all = all(item is Ellipsis or (isinstance(item, slice) and item == slice(None)) for item in items[1:])
    return items[0] if is_all else None


def _masked(x: Value, mask: Tracer, value: ArrayLike, combine: Combine) -> Value:
    """The update where a mask holds, by one value for all of the places: how many there are depends on data."""
    b, rank, shape = here(), mask.ndim, x.type.shape
    if shape[:rank] != mask.shape:
        fail(f"a boolean index of shape {mask.shape} does not match dimensions {shape[:rank]} of the array")
    given = shape_of(value)
    if len(given) > len(shape) - rank + 1 or (len(given) == len(shape) - rank + 1 and given[0] != 1):
        fail(
            f"a traced mask chooses a number of places that depends on data, so a value of shape {given} cannot be "
            "dealt out to them; use np.where(mask, y, x) with y of the shape of x"
        )
    rest = broadcast_operand(value, x.type.dtype, (1,) * (len(given) == len(shape) - rank + 1) + shape[rank:])
    new = b.broadcast_in_dim(b.reshape(rest, shape[rank:]), shape, range(rank, len(shape)))
    chosen = b.broadcast_in_dim(value_of(mask), shape, range(rank))
    return b.select(chosen, combine(b, x, new), x)


def setitem(x: Tracer, index: object, value: ArrayLike) -> None:
    """x[index] = value."""
    check_target(x, "an assignment")
    if not x.ndim and x.place is None:
        fail("NumPy's scalars cannot be assigned to; use an array without dimensions: x = rematc.numpy.array(x)")
    given, whole = as_operand(value), x.value
    if np.issubdtype(dtype_of(given), np.complexfloating) and not whole.type.dtype.is_complex:
        fail(f"complex numbers are assigned into {whole.type}, which drops their imaginary parts; assign y.real")
    mask = _mask_of(index)
    if mask is not None:
        x.assign(_masked(whole, mask, given, replace))
        return
    entries = parse_index(index, whole.type.shape)
    if isinstance(given, Tracer) and given.place is not None and given.place.parent is x.place:
        step = given.place.step
        # x[index] += y has written into the view before it assigns the view.
        if isinstance(step, Indexed) and step.is_at(entries):
            return
    x.assign(written(whole, entries, _without_leading_ones(given, entries), replace, indexing.Scatter))


def is_part(x: Tracer, value: object) -> bool:
    """Whether a value lies in the memory of `x`."""
    return (
        isinstance(value, Tracer)
        and value.place is not None
        and x.place is not None
        and value.place.memory is x.place.memory
        and value.place is not x.place
    )


def _without_leading_ones(value: ArrayLike, entries: list[Entry]) -> ArrayLike:
    """The value, of at most as many dimensions as it is assigned to: NumPy lets it have more, of size 1."""
    shape, rank = shape_of(value), len(selected_shape(entries))
    extra = len(shape) - rank
    if extra <= 0 or any(size != 1 for size in shape[:extra]):
        return value
    return wrap(here().reshape(value_of(value), shape[extra:]))


def _updated(update: Callable[..., Tracer], write: Callable[..., object]) -> Callable[[Any, Any, Any], Array]:
    """`update` for tracers, and for concrete arrays a copy on which `write(copy, index, value)` has worked.

    For type checkers the result is an array, as what it computes is when it runs.
    """

    def apply(x: Any, index: Any, value: Any) -> Array:
        if is_traced((x, index, value)):
            enter(x, index, value)
            result: Any = update(x, index, value)
            return result  # type: ignore[no-any-return]  # a tracer, which stands for an array
        copy = np.array(x)
        write(copy, index, value)
        return copy

    return apply


def _write(copy: Array, index: Any, value: Any) -> None:
    copy[index] = value


def _through(function: Callable[..., object]) -> Callable[..., object]:
    """An update of a concrete array by a ufunc's `at`."""

    def write(copy: Array, index: object, value: object) -> None:
        function(copy, index, value)

    return write


#: `at_set(x, index, value)` and its kin: a new array, `x` with x[index] replaced by, or combined with, `value`.
at_set = _updated(_traced_set, _write)
at_add = _updated(_traced_add, _through(np.add.at))
at_multiply = _updated(_traced_multiply, _through(np.multiply.at))
at_min = _updated(_traced_min, _through(np.minimum.at))
at_max = _updated(_traced_max, _through(np.maximum.at))
