"""Sorts and the greatest elements.

The order is NumPy's: -0.0 equals 0.0, all NaNs are equal and greater than any number; false is less than true. Complex
keys compare by their real parts, then by their imaginary parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rematc.ir.batches import Batch
from rematc.ir.core import Emitter, Op
from rematc.ir.errors import TypeMismatchError
from rematc.ir.ops.batching import batch_alike
from rematc.ir.ops.elementwise import NOT_LINEAR, ORDERED, Numeric, check_arity, check_kind, widened
from rematc.ir.ops.gather_scatter import GatherDimensions
from rematc.ir.ops.indexing import Gather
from rematc.ir.ops.shape import check_dimensions, others
from rematc.ir.registry import register
from rematc.ir.slicings import Slicing, along_leading, except_along
from rematc.ir.types import I32, I64, DType, TensorType, dtype_of_numpy
from rematc.ir.values import Array, Derivatives, Primals, Tangents, Types, Value


def take_along(b: Emitter, x: Value, indices: Value, dimension: int) -> Value:
    """For each index the element of `x` that it names along `dimension`, at the same place of the other dimensions.

    x: any shape; indices, result: the same shape but for the size of `dimension`.
    """
    if not indices.type.size:
        return b.zeros(x.type.with_shape(indices.type.shape))  # gather takes no windows of an array without elements
    rest = others((dimension,), x.type.rank)
    dims = GatherDimensions((), (dimension,), (dimension,), x.type.rank, rest, rest)
    return b.emit1(Gather(dims, (1,) * x.type.rank), x, indices)


def index_dtype(size: int) -> DType:
    """The element type that sorts count elements in."""
    return I32 if size < 2**31 else I64


@register
@dataclass(frozen=True, slots=True)
class Sort(Op):
    """The operands, all reordered along `dimension` by the first `num_keys` of them; equal keys keep their order.

    Later keys decide where earlier ones are equal. The tangent of a sorted operand is its tangent in the same order.

    Attributes:
        dimension: along which each line is sorted on its own.
        num_keys: how many operands are keys; the others are carried along.
        descending: whether the greatest comes first, a NaN before all numbers.
    """

    name = "sort"
    dimension: int
    num_keys: int = 1
    descending: bool = False
    no_transpose = "does not exist: tangents are gathered, not sorted"

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        if not 1 <= self.num_keys <= len(operands):
            raise TypeMismatchError(f"'sort' by {self.num_keys} keys takes at least as many operands and one key")
        first = operands[0]
        for operand in operands[1:]:
            if operand.shape != first.shape:
                raise TypeMismatchError(f"'sort' takes operands of one shape, got {first} and {operand}")
        check_dimensions(self, (self.dimension,), first.rank)
        return tuple(operands)

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        ranks = [rank for key in operands[: self.num_keys] for rank in _ranks(key)]
        if self.descending:
            ranks = [-rank for rank in ranks]
        order = np.lexsort(ranks[::-1], self.dimension)
        return tuple([np.take_along_axis(operand, order, self.dimension) for operand in operands])

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        order = self._order(b, primals)
        return tuple([None if t is None else take_along(b, t, order, self.dimension) for t in tangents])

    def _order(self, b: Emitter, operands: Primals) -> Value:
        """Where each sorted element came from."""
        shape = operands[0].type.shape
        places = b.iota(TensorType(index_dtype(shape[self.dimension]), shape), self.dimension)
        return b.emit(self, *operands[: self.num_keys], places)[-1]

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        op = Sort(self.dimension + 1, self.num_keys, self.descending)
        return b.emit(op, *batch.all_batched(b))

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        return except_along(self.dimension, operands, results)

    def flops(self, operands: Types, results: Types) -> int:
        if not any(key.dtype.is_inexact for key in operands[: self.num_keys]):
            return 0
        return operands[0].size * max(operands[0].shape[self.dimension] - 1, 0).bit_length()


def _ranks(key: Array) -> list[Numeric]:
    """Integers in the order of the key's elements: one array, for complex keys one a part."""
    if key.dtype.kind == "c":
        whole: Numeric = key
        return [*_ranks(whole.real), *_ranks(whole.imag)]
    # The sum with 0 makes -0.0 a 0.0.
    numbers = widened(key)
    flat = (numbers + numbers.dtype.type(0) if numbers.dtype.kind == "f" else numbers).reshape(-1)
    return [np.unique(flat, return_inverse=True)[1].reshape(key.shape)]


@register
@dataclass(frozen=True, slots=True)
class TopK(Op):
    """The k greatest elements along the last dimension, greatest first, and their indices; a NaN is the greatest.

    Of equal elements the first comes first, and 0.0 is greater than -0.0.

    Attributes:
        k: how many.
    """

    name = "top_k"
    k: int
    no_transpose = NOT_LINEAR

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 1)
        (x,) = operands
        check_kind(self, x, ORDERED)
        if not x.rank or not 0 <= self.k <= x.shape[-1]:
            raise TypeMismatchError(
                f"'top_k' takes at most as many elements as the last dimension has, got {self.k} of {x}"
            )
        values = x.with_shape((*x.shape[:-1], self.k))
        return (values, values.with_dtype(I32))

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        (x,) = operands
        is_negative = np.signbit(widened(x)) if _is_float(x) else np.zeros(x.shape, np.bool_)
        # The sign decides between zeros alone: elsewhere it is that of the ranks, and NaNs are equal.
        order = np.lexsort((is_negative & (x == 0), -_ranks(x)[0]), -1)[..., : self.k]
        return (np.take_along_axis(x, order, -1), order.astype(np.int32))

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        (t,), (_, indices) = tangents, results
        return (None if t is None else take_along(b, t, indices, t.type.rank - 1), None)

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        return batch_alike(self, b, batch)

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        return along_leading(operands[0].rank - 1, operands, results)

    def flops(self, operands: Types, results: Types) -> int:
        (x,) = operands
        return x.size * self.k.bit_length() if x.dtype.is_float else 0


def _is_float(x: Array) -> bool:
    dtype = dtype_of_numpy(x.dtype)
    return dtype is not None and dtype.is_float
