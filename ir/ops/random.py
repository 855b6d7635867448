"""Random bits: `threefry2x32`, a counter-based generator. There is no state: the same key and counter give the same
bits whenever they are computed, so that recomputation repeats a random mask bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rematc.ir.batches import Batch
from rematc.ir.core import Emitter, Op
from rematc.ir.errors import TypeMismatchError
from rematc.ir.facts import Storage, Weight
from rematc.ir.ops.elementwise import NO_TANGENT, check_arity
from rematc.ir.registry import register
from rematc.ir.slicings import Slicing
from rematc.ir.types import U32, TensorType
from rematc.ir.values import Array, Types, Value

#: How far each round turns the second word; the rounds come in groups of four, which take turns.
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
#: Groups of rounds; after each of them the key is added again.
GROUPS = 5
#: The third word of the key is the exclusive or of the two others and this.
PARITY = 0x1BD11BDA


@register
@dataclass(frozen=True, slots=True)
class Threefry2x32(Op):
    """The Threefry-2x32 hash with 20 rounds of counters of two words under a key of two words.

    Operands are the key, u32[..., 2], and the words of the counters, two arrays u32[..., shape] of one type; the
    dimensions of the key in front of its two words are those that the counters begin with. The results are the two
    words of the hash, of the counters' type.

    Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
    """

    name = "threefry2x32"
    storage = Storage.FUSED
    weight = Weight.MODERATE  # a hundred operations on whole numbers, which vector units do fast
    no_jvp = NO_TANGENT
    no_transpose = NO_TANGENT

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 3)
        key, high, low = operands
        batch = key.shape[:-1]
        if key != TensorType(U32, (*batch, 2)):
            raise TypeMismatchError(f"'{self.name}' takes a key of two words, u32[...,2]; got {key}")
        if high != low or high.dtype is not U32 or high.shape[: len(batch)] != batch:
            begin = "".join(f"{size}," for size in batch)
            raise TypeMismatchError(
                f"'{self.name}' under a key {key} takes counters of two words, u32[{begin}...] each; "
                f"got {high} and {low}"
            )
        return (high, low)

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        key, high, low = operands
        missing = high.ndim - key.ndim + 1
        first, second = (np.expand_dims(key[..., word], tuple(range(-missing, 0))) for word in (0, 1))
        x0, x1 = threefry((first, second, high, low))
        return np.asarray(x0, np.uint32), np.asarray(x1, np.uint32)

    def vmap(self, b: Emitter, batch: Batch) -> tuple[Value, ...]:
        key = batch.operands[0]
        if not batch.is_batched[0] and key.type.rank == 1:
            # One key for all: what is batched is but more counters.
            return b.emit(self, key, *batch[1:].all_batched(b))
        return b.emit(self, *batch.all_batched(b))

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        key, counters, _ = operands
        of_key = [d if d < key.rank - 1 else None for d in range(counters.rank)]
        return tuple([Slicing((of_key[d], d, d), (d, d)) for d in range(counters.rank)])


def threefry(words: Sequence[Any]) -> tuple[Array, Array]:
    """Two words of the key and two of each counter, all u32, to the two words of the hash."""
    first, second, high, low = words
    keys = (first, second, first ^ second ^ np.uint32(PARITY))
    with np.errstate(over="ignore"):
        x0, x1 = high + keys[0], low + keys[1]
        for group in range(GROUPS):
            for distance in ROTATIONS[group % 2]:
                x0 = x0 + x1
                x1 = x0 ^ (x1 << np.uint32(distance) | x1 >> np.uint32(32 - distance))
            x0 = x0 + keys[(group + 1) % 3]
            x1 = x1 + keys[(group + 2) % 3] + np.uint32(group + 1)
    return x0, x1
