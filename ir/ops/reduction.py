"""Reductions: sums, products and extrema over dimensions, which the result lacks.

The result over no elements is the op's neutral element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import ml_dtypes
import numpy as np

from rematc.ir.core import Array, Derivatives, Emitter, Op, Operands, Primals, Tangents, Types, Value, register
from rematc.ir.ops.elementwise import (
    NOT_LINEAR,
    NUMBERS,
    REALS,
    check_arity,
    check_kind,
    widened,
)
from rematc.ir.ops.shape import check_dimensions, others
from rematc.ir.types import DType, Kind, TensorType

ORDERED = REALS | {Kind.BOOL}


def lowest(dtype: DType) -> Any:
    """The neutral element of max: minus infinity, or the least value where there is no infinity."""
    return _extreme(dtype, "min", -np.inf)


def highest(dtype: DType) -> Any:
    """The neutral element of min: infinity, or the greatest value where there is no infinity."""
    return _extreme(dtype, "max", np.inf)


def _extreme(dtype: DType, which: str, infinity: float) -> Any:
    match dtype.kind:
        case Kind.BOOL:
            return which == "max"
        case Kind.INT | Kind.UINT:
            return getattr(ml_dtypes.iinfo(dtype.numpy), which)
        case _:
            with np.errstate(all="ignore"):
                rounded = np.asarray(infinity).astype(dtype.numpy)
            return rounded[()] if np.isinf(rounded.astype(np.float64)) else getattr(ml_dtypes.finfo(dtype.numpy), which)


class Reduction(Op):
    """Family base: one operand combined over `dimensions`. A member gives `combine` and `initial`."""

    __slots__ = ()
    dimensions: tuple[int, ...]
    kinds: ClassVar[frozenset[Kind]] = NUMBERS
    no_transpose: ClassVar[str] = NOT_LINEAR

    def combine(self, x: Array) -> Any:
        raise NotImplementedError

    def initial(self, dtype: DType) -> Any:
        """The neutral element, as a scalar that NumPy converts to the element type."""
        raise NotImplementedError

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 1)
        (x,) = operands
        check_kind(self, x, self.kinds)
        check_dimensions(self, self.dimensions, x.rank)
        return (x.with_shape(tuple([x.shape[d] for d in others(self.dimensions, x.rank)])),)

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        (x,) = operands
        with np.errstate(all="ignore"):
            combined = self.combine(widened(x))
        return (np.asarray(combined).astype(x.dtype),)

    def flops(self, operands: Types, results: Types) -> int:
        return operands[0].size if operands[0].dtype.is_inexact else 0

    def spread(self, b: Emitter, y: Value, x: TensorType) -> Value:
        """`y`, of the result's shape, repeated to the operand's shape."""
        return b.broadcast_in_dim(y, x.shape, others(self.dimensions, x.rank))


@register
@dataclass(frozen=True, slots=True)
class ReduceSum(Reduction):
    """Sum over `dimensions`."""

    name = "reduce_sum"
    dimensions: tuple[int, ...]

    def combine(self, x: Array) -> Any:
        return np.add.reduce(x, self.dimensions, dtype=x.dtype)

    def initial(self, dtype: DType) -> Any:
        return 0

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        return (None if tangents[0] is None else b.emit1(self, tangents[0]),)

    def transpose(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        return (None if cts[0] is None else self.spread(b, cts[0], operands[0].type),)


def _tangent_of_extremum(op: Reduction, b: Emitter, x: Value, y: Value, t: Value) -> Value:
    """Mean of the tangents at the places where x is the extremum.

    Selected by a boolean mask, so that the residuals are one byte an element and the counts.
    """
    is_extremum = b.compare(x, op.spread(b, y, x.type), "EQ")
    count = b.reduce_sum(b.convert(is_extremum, t.type.dtype), op.dimensions)
    return b.divide(b.reduce_sum(b.select(is_extremum, t, b.zeros(t.type)), op.dimensions), count)


@register
@dataclass(frozen=True, slots=True)
class ReduceMax(Reduction):
    """Maximum over `dimensions`; NaN if there is one. Equal maxima share the derivative equally."""

    name = "reduce_max"
    dimensions: tuple[int, ...]
    kinds = ORDERED

    def combine(self, x: Array) -> Any:
        return np.maximum.reduce(x, self.dimensions)

    def initial(self, dtype: DType) -> Any:
        return lowest(dtype)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        (t,) = tangents
        return (None if t is None else _tangent_of_extremum(self, b, primals[0], results[0], t),)
