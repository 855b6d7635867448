"""Writing into traced arrays: `x[i] = y`, `x += y`, `out=`, and `where=`, which writes only where a mask holds.

The tracer that stands for the array takes the new value, and so do its views and the arrays that it is a view of. A
concrete array, and an array of an enclosing function, cannot be written: those are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rematc.compiler.frontends.numpy.operands import (
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
from rematc.compiler.frontends.numpy.promotion import kind_of
from rematc.compiler.tracing.trace import Tracer, require_trace
from rematc.ir.types import BOOL
from rematc.ir.values import Value

#: A number at which every ufunc, and its derivative, is finite: it stands where the mask does not hold.
_HARMLESS = {"arccosh": 2.0, "zeta": 2.0}


def given_out(out: object) -> tuple[object, ...]:
    """The arrays to write into, one a result; none where there are none."""
    outs = out if isinstance(out, tuple) else (out,)
    return () if all(item is None for item in outs) else outs


def check_target(out: object, what: str) -> Tracer:
    """`out`, if a traced function can write into it."""
    if not isinstance(out, Tracer):
        fail(
            f"{what}(..., out=...), or its operator with = on a NumPy array, writes into an array that is not traced, "
            f"which a traced function cannot; use the result: x = {what}(...)"
        )
    trace = require_trace()
    if out.owner is not trace or out.weak or (out.place is not None and out.place.memory.owner is not trace):
        fail(
            f"{what} writes into an array from outside the function that is traced, which would change it only while "
            "tracing; make a new array (x.copy()) and return it"
        )
    return out


def write(result: Tracer, out: Tracer, what: str, where: ArrayLike = True) -> Tracer:
    """`out`, with the elements of `result` where the mask holds, in the dtype and shape of `out`."""
    b, new = here(), result.value
    if not fits(result, out):
        fail(f"{what} gives {new.type}, which NumPy does not write into {out.value.type}; use the result instead")
    if not all(_fits(given, out.shape) for given in (result.shape, shape_of(where))):
        fail(f"{what} gives {new.type}, which does not fit into {out.value.type}; use the result instead")
    new = broadcast_value(b, b.convert(new, out.value.type.dtype), out.shape)
    if where is not True:
        mask = broadcast_value(b, value_of(where), out.shape)
        new = b.select(mask, new, out.value)
    out.assign(new)
    return out


def fits(result: Tracer, target: Tracer) -> bool:
    """Whether NumPy writes one dtype into the other (casting "same_kind")."""
    is_float = result.value.type.dtype.is_float and target.value.type.dtype.is_float
    return is_float or np.can_cast(result.dtype, target.dtype, "same_kind")


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
