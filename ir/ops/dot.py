"""Matrix products in general: `dot_general`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from rematc.ir.batches import Batch
from rematc.ir.core import Emitter, Op
from rematc.ir.errors import TypeMismatchError
from rematc.ir.ops.batching import shifted, to_front
from rematc.ir.ops.elementwise import check_arity, widened
from rematc.ir.ops.shape import check_dimensions, inverse, others
from rematc.ir.registry import register
from rematc.ir.slicings import Part, Slicing, sum_dtype
from rematc.ir.types import DType, TensorType
from rematc.ir.values import Array, Derivatives, LinearOperand, Operands, Primals, Tangents, Types, Value, known

PRECISIONS = ("DEFAULT", "HIGH", "HIGHEST")


def check_widening(op: Op, x: TensorType, y: TensorType, result: DType) -> None:
    """Raise TypeMismatchError unless products of elements of x and y can be summed as `result`."""
    for operand in (x, y):
        same = operand.dtype.kind is result.kind
        integers = operand.dtype.is_integer and result.is_integer
        if not (same or integers) or operand.dtype.bits > result.bits:
            raise TypeMismatchError(
                f"'{op.name}' of {x} and {y} cannot give {result}; expected the same kind of number, not narrower"
            )


@register
@dataclass(frozen=True, slots=True)
class DotGeneral(Op):
    """Product summed over the `contract` dimensions and paired over the `batch` dimensions; bilinear.

    Result dimensions: batch, the rest of x, the rest of y.

    Attributes:
        contract: dimensions of x, dimensions of y that are summed over, pairwise of one size.
        batch: dimensions of x, dimensions of y that are paired, pairwise of one size.
        result_dtype: element type of the sums and the result; None for the operands'. With it the operands may
            have different element types.
        precision: how exactly a device with several kinds of product computes: DEFAULT, HIGH or HIGHEST.
    """

    name = "dot_general"
    is_product: ClassVar[bool] = True
    contract: tuple[tuple[int, ...], tuple[int, ...]]
    batch: tuple[tuple[int, ...], tuple[int, ...]]
    result_dtype: DType | None = None
    precision: str = "DEFAULT"

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 2)
        x, y = operands
        if self.precision not in PRECISIONS:
            raise TypeMismatchError(f"'{self.name}' takes precision {', '.join(PRECISIONS)}, got {self.precision!r}")
        for i, operand in enumerate(operands):
            check_dimensions(self, self.contract[i] + self.batch[i], operand.rank, "contract and batch dimensions")
        for what, (left, right) in (("contract", self.contract), ("batch", self.batch)):
            sizes = [x.shape[d] for d in left], [y.shape[d] for d in right]
            if sizes[0] != sizes[1]:
                raise TypeMismatchError(
                    f"'{self.name}' of {x} and {y}: {what} dimensions {list(left)} and {list(right)} "
                    f"have sizes {sizes[0]} and {sizes[1]}; expected the same"
                )
        (_, rest_x), (_, rest_y) = self._split(0, x.rank), self._split(1, y.rank)
        shape = [x.shape[d] for d in self.batch[0] + rest_x] + [y.shape[d] for d in rest_y]
        return (TensorType(self._dtype(x, y), tuple(shape), x.on_host),)

    def _split(self, side: int, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Contract dimensions and the rest (neither contracted nor batched) of one operand."""
        return self.contract[side], others(self.contract[side] + self.batch[side], rank)

    def is_outer(self, x: TensorType) -> bool:
        """Whether each sum, of a first operand of type `x`, has one term: elementwise work with both repeated."""
        return math.prod(x.shape[d] for d in self.contract[0]) == 1

    def moved(self, side: int, shape: Sequence[int]) -> tuple[int, ...]:
        """The dimensions of one operand in the order in which a product of matrices takes them; () where they stand so.

        That is batch, rest, contracted for the first operand, batch, contracted, rest for the second. One matrix for
        each element of a batch may stand either way.
        """
        batch, (contract, rest) = self.batch[side], self._split(side, len(shape))
        if len(rest) <= 1 and len(contract) == 1 and batch == tuple(range(len(batch))):
            return ()
        first, second = (rest, contract) if side == 0 else (contract, rest)
        order = [d for d in (*batch, *first, *second) if shape[d] > 1]
        return () if order == sorted(order) else tuple(order)

    def _dtype(self, x: TensorType, y: TensorType) -> DType:
        if self.result_dtype is None:
            if x.dtype is not y.dtype:
                raise TypeMismatchError(
                    f"'{self.name}' takes operands of one element type, got {x} and {y}; "
                    "convert one, or state the result's element type"
                )
            return x.dtype
        check_widening(self, x, y, self.result_dtype)
        return self.result_dtype

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        dtype = self.result_dtype.numpy if self.result_dtype else operands[0].dtype
        wide = widened(np.empty((), dtype)).dtype
        x, y = [operand.astype(wide) for operand in operands]
        (contract_x, rest_x), (contract_y, rest_y) = self._split(0, x.ndim), self._split(1, y.ndim)
        batch = [x.shape[d] for d in self.batch[0]]
        k = math.prod([x.shape[d] for d in contract_x])
        free_x, free_y = [x.shape[d] for d in rest_x], [y.shape[d] for d in rest_y]
        left = x.transpose(self.batch[0] + rest_x + contract_x).reshape(*batch, math.prod(free_x), k)
        right = y.transpose(self.batch[1] + contract_y + rest_y).reshape(*batch, k, math.prod(free_y))
        with np.errstate(all="ignore"):
            return (np.matmul(left, right).reshape((*batch, *free_x, *free_y)).astype(dtype),)

    def jvp(self, b: Emitter, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        (x, y), (tx, ty) = primals, tangents
        from_x = None if tx is None else b.emit1(self, tx, y)
        from_y = None if ty is None else b.emit1(self, x, ty)
        if from_x is None or from_y is None:
            return (from_y if from_x is None else from_x,)
        return (b.add(from_x, from_y),)

    def transpose(self, b: Emitter, cts: Tangents, operands: Operands) -> Derivatives:
        (ct,), (x, y) = cts, operands
        if ct is None:
            return (None, None)
        if isinstance(x, LinearOperand):
            y = known(y, "a product of two tangents is not linear")
            return (self._ct_of(b, 0, ct, x.type, y), None)
        return (None, self._ct_of(b, 1, ct, y.type, x))

    def _ct_of(self, b: Emitter, side: int, ct: Value, operand: TensorType, other: Value) -> Value:
        """Cotangent of one operand: ct contracted with the other operand over what that one put into the result."""
        batch, (contract, rest) = self.batch[side], self._split(side, operand.rank)
        other_batch, (other_contract, other_rest) = self.batch[1 - side], self._split(1 - side, other.type.rank)
        first = len(batch) + (len(rest) if side == 0 else 0)
        from_other = tuple(range(first, first + len(other_rest)))
        op = DotGeneral(
            (from_other, other_rest),
            (tuple(range(len(batch))), other_batch),
            self.result_dtype,
            self.precision,
        )
        product = b.emit1(op, ct, other)
        # Its dimensions: batch, rest, and the contract dimensions in the order in which they stand in the other.
        by_other = [d for _, d in sorted(zip(other_contract, contract, strict=True))]
        return b.convert(b.transpose(product, inverse([*batch, *rest, *by_other])), operand.dtype)

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        """Of two batched operands the batch dimensions are paired. Of one it is no batch dimension of the product, so
        that policies still see one matrix product, only taller; that operand goes first, so that a matrix times vectors
        needs no transpose.
        """
        (x, y), (has_x, has_y) = batch.operands, batch.is_batched
        contract, paired = list(self.contract), list(self.batch)
        for side, is_set in enumerate(batch.is_batched):
            if is_set:
                contract[side], paired[side] = shifted(contract[side]), shifted(paired[side])
        if has_x and has_y:
            paired = [(0, *paired[0]), (0, *paired[1])]
        if has_x:
            op = replace(self, contract=(contract[0], contract[1]), batch=(paired[0], paired[1]))
            return (to_front(b, b.emit1(op, x, y), 0 if has_y else len(self.batch[0])),)
        op = replace(self, contract=(contract[1], contract[0]), batch=(paired[1], paired[0]))
        product = b.emit1(op, y, x)
        # Its dimensions: batch of the product, the batch, the rest of y, the rest of x.
        place, end = len(self.batch[0]), product.type.rank
        middle = end - (x.type.rank - place - len(self.contract[0]))
        return (b.transpose(product, (place, *range(place), *range(middle, end), *range(place + 1, middle))),)

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        x, y = operands
        places = iter(range(results[0].rank))
        paired = [Slicing(pair, (next(places),)) for pair in zip(*self.batch, strict=True)]
        of_x = [Slicing((d, None), (next(places),)) for d in self._split(0, x.rank)[1]]
        of_y = [Slicing((None, d), (next(places),)) for d in self._split(1, y.rank)[1]]
        return (*paired, *of_x, *of_y, *[Slicing(pair, (None,)) for pair in zip(*self.contract, strict=True)])

    def part(self, b: Emitter, part: Part, operands: Primals) -> tuple[Value, ...]:
        if not part.slicing.is_sum:
            return b.emit(self, *operands)
        dtype = sum_dtype(self.result_dtype or operands[0].type.dtype)
        return b.emit(replace(self, result_dtype=dtype), *operands)

    def flops(self, operands: Types, results: Types) -> int:
        return 2 * results[0].size * math.prod([operands[0].shape[d] for d in self.contract[0]])
