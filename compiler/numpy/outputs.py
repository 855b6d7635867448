"""`out=` and `where=`: results written into a traced array, and only where a mask holds.

NumPy writes into the array; here the tracer that stands for it takes the new value, so that whoever holds the array
sees it. That cannot be done for a part of another array (its base would keep the old elements), for a concrete array,
or for an array of an enclosing function: those are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rematc.compiler.numpy.operands import (
    ArrayLike,
    as_operand,
    broadcast_value,
    dispatching,
    fail,
    here,
    shape_of,
    value_of,
    wrap,
)
from rematc.compiler.numpy.promotion import kind_of
from rematc.compiler.tracing.trace import Tracer, require_trace
from rematc.ir.core import Op, Value
from rematc.ir.ops import complex_parts, dynamic, shape
from rematc.ir.types import BOOL

#: What makes NumPy's views: arrays on the elements of another one.
_VIEWS: tuple[type[Op], ...] = (
    *(shape.Slice, shape.Reshape, shape.Transpose, shape.Reverse, dynamic.DynamicSlice),
    *(complex_parts.Real, complex_parts.Imag),
)
#: A number at which every ufunc, and its derivative, is finite: it stands where the mask does not hold.
_HARMLESS = {"arccosh": 2.0, "zeta": 2.0}


def given_out(out: object) -> tuple[object, ...]:
    """The arrays to write into, one a result; none where there are none."""
    outs = out if isinstance(out, tuple) else (out,)
    return () if all(item is None for item in outs) else outs


def check_target(out: object, what: str) -> Tracer:
    """`out`, if a traced function can write into it."""
    use = f"use the result: x = {what}(...)"
    if not isinstance(out, Tracer):
        fail(
            f"{what}(..., out=...), or its operator with = on a NumPy array, writes into an array that is not traced, "
            f"which a traced function cannot; {use}"
        )
    trace = require_trace()
    if out.owner is not trace or out.weak:
        fail(f"{what}(..., out=...) writes into an array from outside the function that is traced; {use}")
    made = next((eqn for eqn in reversed(trace.builder.equations) if out.value in eqn.results), None)
    if made is not None and isinstance(made.op, _VIEWS):
        fail(
            f"{what}(..., out=...) writes into a part or view of another array, whose elements would not change; "
            f"{use}, and rematc.numpy.at_set(array, index, x) to put it in place"
        )
    return out


def write(result: Tracer, out: Tracer, what: str, where: ArrayLike = True) -> Tracer:
    """`out`, with the elements of `result` where the mask holds, in the dtype and shape of `out`."""
    b, new = here(), result.value
    is_float = new.type.dtype.is_float and out.value.type.dtype.is_float
    if not is_float and not np.can_cast(result.dtype, out.dtype, "same_kind"):
        fail(f"{what} gives {new.type}, which NumPy does not write into {out.value.type}; use the result instead")
    if not all(_fits(given, out.shape) for given in (result.shape, shape_of(where))):
        fail(f"{what} gives {new.type}, which does not fit into {out.value.type}; use the result instead")
    new = broadcast_value(b, b.convert(new, out.value.type.dtype), out.shape)
    if where is not True:
        mask = broadcast_value(b, value_of(where), out.shape)
        new = b.select(mask, new, out.value)
    out.value = new
    return out


def _fits(given: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether an array broadcasts to this shape."""
    pairs = zip(given[::-1], shape[::-1], strict=False)
    return len(given) <= len(shape) and all(size in (1, wanted) for size, wanted in pairs)


def masked_inputs(name: str, inputs: Sequence[ArrayLike], where: ArrayLike) -> list[ArrayLike]:
    """The inputs, with a harmless number where the mask does not hold.

    There NumPy does not compute; here it is computed and dropped, and the derivative of what is dropped must be finite.
    """
    mask = value_of(as_operand(where))
    if mask.type.dtype is not BOOL:
        fail(f"np.{name}(..., where=...) takes a mask of booleans, got {mask.type}")
    return [_masked(name, as_operand(x), mask) for x in inputs]


def _masked(name: str, x: ArrayLike, mask: Value) -> ArrayLike:
    if not np.issubdtype(np.dtype(kind_of(x)), np.inexact):
        return x
    kept: Any = dispatching.where(wrap(mask), x, _HARMLESS.get(name, 0.5))
    kept.weak = isinstance(kind_of(x), type)
    return kept
