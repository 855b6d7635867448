"""What vmap rules have in common. The batch dimension of a batched operand, and of every result, is the first."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TypeVar

from rematc.ir.batches import Batch
from rematc.ir.core import Emitter, Op
from rematc.ir.types import TensorType
from rematc.ir.values import Primals, Value

_O = TypeVar("_O", bound=Op)

NO_OPERANDS = "does not exist: without operands there is nothing to batch"


def with_fields(op: _O, **fields: object) -> _O:
    """`op` with other parameters. Every op is a dataclass; the bases of families, for which this is, need not be."""
    changed: _O = dataclasses.replace(op, **fields)  # type: ignore[type-var]  # see above
    return changed


def shifted(dimensions: Sequence[int]) -> tuple[int, ...]:
    """The dimensions, counted with one more in front."""
    return tuple([d + 1 for d in dimensions])


def batched_where(
    b: Emitter, batch: Batch, values: Primals, is_batched: Sequence[bool], wanted: Sequence[bool]
) -> list[Value]:
    """The values, those that have to be batched with a batch dimension."""
    rows = zip(values, is_batched, wanted, strict=True)
    return [batch.batched(b, x, is_set) if is_wanted else x for x, is_set, is_wanted in rows]


def element_type(x: Value, is_batched: bool) -> TensorType:
    """The type of `x` for one element of the batch."""
    return x.type.with_shape(x.type.shape[1:]) if is_batched else x.type


def to_front(b: Emitter, x: Value, dimension: int) -> Value:
    """`x` with this dimension made the first, the others in their order."""
    return b.transpose(x, (dimension, *[d for d in range(x.type.rank) if d != dimension]))


def batch_alike(op: Op, b: Emitter, batch: Batch) -> tuple[Value, ...]:
    """The vmap rule of an op that works at each index alone, or on last dimensions: the op, on all of the batch."""
    return b.emit(op, *batch.all_batched(b))
