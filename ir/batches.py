"""Operands of which some have a batch dimension: what a vmap rule is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rematc.ir.values import Value
from rematc.ir.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Batch:
    """The operands of an op on a batch.

    Attributes:
        size: how many elements there are.
        operands: with the batch dimension in front, those that are batched.
        is_batched: for each operand, whether every element has its own; the others are the same for the whole batch.
    """

    size: int
    operands: Sequence[Value]
    is_batched: Sequence[bool]

    def __getitem__(self, some: slice) -> Batch:
        """Some of the operands."""
        return Batch(self.size, self.operands[some], self.is_batched[some])

    def batched(self, b: Vocabulary, x: Value, is_batched: bool) -> Value:
        """`x` with a batch dimension, whether it had one or not."""
        return x if is_batched else b.broadcast_in_dim(x, (self.size, *x.type.shape), range(1, x.type.rank + 1))

    def all_batched(self, b: Vocabulary) -> list[Value]:
        """The operands, all of them with a batch dimension."""
        return [self.batched(b, x, is_set) for x, is_set in zip(self.operands, self.is_batched, strict=True)]
