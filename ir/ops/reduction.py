"""Reductions: sums, products and extrema over dimensions, which the result lacks.

The result over no elements is the op's neutral element.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import ml_dtypes
import numpy as np

from rematc.ir.batches import Batch
from rematc.ir.core import Emitter, Op
from rematc.ir.errors import TypeMismatchError
from rematc.ir.ops.batching import shifted, with_fields
from rematc.ir.ops.elementwise import (
    INTEGRAL,
    NO_TANGENT,
    NOT_LINEAR,
    NUMBERS,
    ORDERED,
    Numeric,
    check_arity,
    check_kind,
    widened,
)
from rematc.ir.ops.shape import check_dimensions, inverse, others
from rematc.ir.registry import register
from rematc.ir.slicings import Part, Slicing, sum_dtype
from rematc.ir.types import DType, Kind, TensorType, dtype_of_numpy
from rematc.ir.values import Array, Derivatives, Operands, Primals, Tangents, Types, Value


def lowest(dtype: DType) -> Any:
    """The neutral element of max: minus infinity, or the least value where there is no infinity."""
    return False if dtype.is_bool else _infinite(dtype, -np.inf, _limits(dtype).min)


def highest(dtype: DType) -> Any:
    """The neutral element of min: infinity, or the greatest value where there is no infinity."""
    return True if dtype.is_bool else _infinite(dtype, np.inf, _limits(dtype).max)


def _limits(dtype: DType) -> Any:
    limits: Any = ml_dtypes.finfo if dtype.is_float else ml_dtypes.iinfo
    return limits(dtype.numpy)


def _infinite(dtype: DType, infinity: float, otherwise: Any) -> Any:
    if not dtype.is_float:
        return otherwise
    with np.errstate(all="ignore"):
        rounded = np.asarray(infinity).astype(dtype.numpy)
    return infinity if rounded.astype(np.float64) == infinity else otherwise


class Reduction(Op):
    """Family base: one operand combined over `dimensions` by a NumPy `function` with the neutral element `initial`."""

    __slots__ = ()
    dimensions: tuple[int, ...]
    function: ClassVar[np.ufunc]
    kinds: ClassVar[frozenset[Kind]] = NUMBERS
    no_transpose: ClassVar[str] = NOT_LINEAR

    def initial(self, dtype: DType) -> Any:
        """The neutral element, as a scalar that NumPy converts to the element type."""
        raise NotImplementedError

    def neutral(self, dtype: DType) -> Array:
        """The neutral element as a scalar array of this element type."""
        return np.asarray(self.initial(dtype)).astype(dtype.numpy)

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 1)
        (x,) = operands
        check_kind(self, x, self.kinds)
        check_dimensions(self, self.dimensions, x.rank)
        return (x.with_shape(tuple([x.shape[d] for d in others(self.dimensions, x.rank)])),)

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        x, dtype = widened(operands[0]), dtype_of_numpy(operands[0].dtype)
        assert dtype is not None, f"{operands[0].dtype} is the element type of no tensor"
        initial = widened(self.neutral(dtype))
        with np.errstate(all="ignore"):
            combined = type(self).function.reduce(x, self.dimensions, dtype=x.dtype, initial=initial[()])
        return (np.asarray(combined).astype(operands[0].dtype),)

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        return b.emit(with_fields(self, dimensions=shifted(self.dimensions)), *batch.operands)

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        kept = others(self.dimensions, operands[0].rank)
        return tuple([Slicing((d,), (place,)) for place, d in enumerate(kept)])

    def flops(self, operands: Types, results: Types) -> int:
        return operands[0].size if operands[0].dtype.is_inexact else 0

    def spread(self, b: Emitter, y: Value, x: TensorType) -> Value:
        """`y`, of the result's shape, broadcast to the operand's shape."""
        return b.broadcast_in_dim(y, x.shape, others(self.dimensions, x.rank))


@register
@dataclass(frozen=True, slots=True)
class ReduceSum(Reduction):
    """Sum over `dimensions`."""

    name = "reduce_sum"
    dimensions: tuple[int, ...]
    function = np.add

    def initial(self, dtype: DType) -> Any:
        return 0

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        return (None if tangents[0] is None else b.emit1(self, tangents[0]),)

    def transpose(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        return (None if cts[0] is None else self.spread(b, cts[0], operands[0].type),)

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        sums = [Slicing((d,), (None,)) for d in self.dimensions]
        return (*Reduction.slicings(self, operands, results), *sums)

    def part(self, b: Emitter, part: Part, operands: Primals) -> tuple[Value, ...]:
        (x,) = operands
        return b.emit(self, b.convert(x, sum_dtype(x.type.dtype)) if part.slicing.is_sum else x)


class Extremum(Reduction):
    """Family base of maximum and minimum. Equal extrema share the derivative equally."""

    __slots__ = ()
    kinds = ORDERED

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        # A boolean mask selects, so that the residuals are one byte an element and the counts.
        (x,), (y,), (t,) = primals, results, tangents
        if t is None:
            return (None,)
        is_extremum = b.compare(x, self.spread(b, y, x.type), "EQ")
        count = b.reduce_sum(b.convert(is_extremum, t.type.dtype), self.dimensions)
        return (b.divide(b.reduce_sum(b.select(is_extremum, t, b.zeros(t.type)), self.dimensions), count),)


@register
@dataclass(frozen=True, slots=True)
class ReduceMax(Extremum):
    """Maximum over `dimensions`; NaN if there is one."""

    name = "reduce_max"
    dimensions: tuple[int, ...]
    function = np.maximum

    def initial(self, dtype: DType) -> Any:
        return lowest(dtype)


@register
@dataclass(frozen=True, slots=True)
class ReduceMin(Extremum):
    """Minimum over `dimensions`; NaN if there is one."""

    name = "reduce_min"
    dimensions: tuple[int, ...]
    function = np.minimum

    def initial(self, dtype: DType) -> Any:
        return highest(dtype)


@register
@dataclass(frozen=True, slots=True)
class ReduceProd(Reduction):
    """Product over `dimensions`. dy = sum_i dx_i prod_{j != i} x_j, which is right where elements are zero."""

    name = "reduce_prod"
    dimensions: tuple[int, ...]
    function = np.multiply

    def initial(self, dtype: DType) -> Any:
        return 1

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        (x,), (t,) = primals, tangents
        if t is None:
            return (None,)
        order = self.dimensions + others(self.dimensions, x.type.rank)
        factors = b.transpose(x, order)
        kept = factors.type.shape[len(self.dimensions) :]
        flat = b.reshape(factors, (math.prod([x.type.shape[d] for d in self.dimensions]), *kept))
        rest = b.reshape(_products_of_others(b, flat), factors.type.shape)
        return (b.reduce_sum(b.multiply(t, b.transpose(rest, inverse(order))), self.dimensions),)


def _products_of_others(b: Emitter, x: Value) -> Value:
    """For each i along dimension 0 the product of all x_j, j != i, without a division.

    Upwards: halves are multiplied until one factor is left. Downwards: the others of an element are the others of
    its pair times the element it is paired with. O(n) products in O(log n) equations.
    """
    levels: list[tuple[Value, Value, int]] = []
    n, *kept = x.type.shape
    if n <= 1:
        return b.full(x.type, 1)
    none = [0] * len(kept)
    product = x
    while n > 1:
        even = b.pad(product, b.full(x.type.with_shape(()), 1), [0, *none], [n % 2, *none])
        half = (n + 1) // 2
        low = b.slice(even, [0, *none], [half, *kept])
        high = b.slice(even, [half, *none], [2 * half, *kept])
        levels.append((low, high, n))
        n = half
        product = b.multiply(low, high) if n > 1 else product
    found: Value | None = None
    for low, high, size in reversed(levels):
        pair = (high, low) if found is None else (b.multiply(found, high), b.multiply(found, low))
        found = b.slice(b.concatenate(pair, 0), [0, *none], [size, *kept])
    assert found is not None
    return found


class BitwiseReduction(Reduction):
    """Family base: booleans or the bits of integers combined."""

    __slots__ = ()
    kinds = INTEGRAL
    no_jvp = NO_TANGENT


@register
@dataclass(frozen=True, slots=True)
class ReduceAnd(BitwiseReduction):
    """Whether all elements over `dimensions` are true; on integers, bit by bit."""

    name = "reduce_and"
    dimensions: tuple[int, ...]
    function = np.bitwise_and

    def initial(self, dtype: DType) -> Any:
        return True if dtype.is_bool else highest(dtype) if dtype.kind is Kind.UINT else -1


@register
@dataclass(frozen=True, slots=True)
class ReduceOr(BitwiseReduction):
    """Whether any element over `dimensions` is true; on integers, bit by bit."""

    name = "reduce_or"
    dimensions: tuple[int, ...]
    function = np.bitwise_or

    def initial(self, dtype: DType) -> Any:
        return 0


class IndexOfExtremum(Op):
    """Family base: the index along `dimension` of the extremum; of several the first, and of a NaN if there is one."""

    __slots__ = ()
    dimension: int
    index_dtype: DType
    no_transpose: ClassVar[str] = NOT_LINEAR

    def find(self, x: Numeric) -> Any:
        raise NotImplementedError

    def initial(self, dtype: DType) -> Any:
        """A value that no element loses against."""
        raise NotImplementedError

    def neutral(self, dtype: DType) -> Array:
        """That value as a scalar array of this element type."""
        return np.asarray(self.initial(dtype)).astype(dtype.numpy)

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 1)
        (x,) = operands
        check_kind(self, x, ORDERED)
        check_dimensions(self, (self.dimension,), x.rank)
        size = x.shape[self.dimension]
        if size == 0:
            raise TypeMismatchError(f"'{self.name}' of {x} along dimension {self.dimension}, which has no elements")
        if not self.index_dtype.is_integer or size - 1 > highest(self.index_dtype):
            raise TypeMismatchError(
                f"'{self.name}' of {x} along dimension {self.dimension} takes an integer type for indices "
                f"up to {size - 1}, got {self.index_dtype}"
            )
        shape = (*x.shape[: self.dimension], *x.shape[self.dimension + 1 :])
        return (TensorType(self.index_dtype, shape, x.on_host),)

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (np.asarray(self.find(widened(operands[0]))).astype(self.index_dtype.numpy),)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        return (None,)

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        return b.emit(with_fields(self, dimension=self.dimension + 1), *batch.operands)

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        kept = others((self.dimension,), operands[0].rank)
        return tuple([Slicing((d,), (place,)) for place, d in enumerate(kept)])


@register
@dataclass(frozen=True, slots=True)
class Argmax(IndexOfExtremum):
    """Index of the maximum along `dimension`, the first of several; of the first NaN if there is one."""

    name = "argmax"
    dimension: int
    index_dtype: DType

    def find(self, x: Numeric) -> Any:
        return np.argmax(x, self.dimension)

    def initial(self, dtype: DType) -> Any:
        return lowest(dtype)


@register
@dataclass(frozen=True, slots=True)
class Argmin(IndexOfExtremum):
    """Index of the minimum along `dimension`, the first of several; of the first NaN if there is one."""

    name = "argmin"
    dimension: int
    index_dtype: DType

    def find(self, x: Numeric) -> Any:
        return np.argmin(x, self.dimension)

    def initial(self, dtype: DType) -> Any:
        return highest(dtype)
