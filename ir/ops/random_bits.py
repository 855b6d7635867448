"""Random bits from a state that is a value: `rng_bit_generator` of StableHLO.

StableHLO names the algorithms and leaves open how they number the elements; the reference gives the bits that XLA
gives, so that a program recomputes the same ones wherever it runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rematc.ir.batches import Batch
from rematc.ir.core import Op, VmapContext
from rematc.ir.errors import TypeMismatchError
from rematc.ir.ops.elementwise import NO_TANGENT, check_arity
from rematc.ir.ops.random import threefry
from rematc.ir.registry import register
from rematc.ir.types import U64, TensorType
from rematc.ir.values import Array, Types, Value

ALGORITHMS = ("DEFAULT", "PHILOX", "THREE_FRY")

#: Words of 32 bits, kept in 64 so that sums and products of two do not overflow.
Words = np.ndarray[tuple[int, ...], np.dtype[np.uint64]]

_MASK = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@register
@dataclass(frozen=True, slots=True)
class RngBitGenerator(Op):
    """The next state, and an array of random bits that the state gives.

    The state is a key and a counter, u64[2]; with PHILOX also u64[3], whose last element is the counter's upper half,
    which in u64[2] is the key. One counter gives 64 bits with THREE_FRY (Threefry-2x32, 20 rounds), 128 bits with
    PHILOX (Philox-4x32, 10 rounds); the next state's counter is the first that was not used. Elements of fewer than
    32 bits are the low bits of 32.

    Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

    Attributes:
        type: type of the bits; integers.
        algorithm: DEFAULT, PHILOX or THREE_FRY. The default is the platform's choice: Philox on CPU and GPU, and in the
            reference.
    """

    name = "rng_bit_generator"
    type: TensorType
    algorithm: str = "DEFAULT"
    no_jvp = NO_TANGENT
    no_transpose = "does not exist: the op is not linear in its state"

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        check_arity(self, operands, 1)
        (state,) = operands
        sizes = (2,) if self.algorithm == "THREE_FRY" else (2, 3)
        if state.dtype is not U64 or state.rank != 1 or state.shape[0] not in sizes:
            listed = " or ".join(f"u64[{size}]" for size in sizes)
            raise TypeMismatchError(f"'{self.name}' {self.algorithm} takes a state {listed}, got {state}")
        if not self.type.dtype.is_integer or self.type.dtype.bits < 8:
            raise TypeMismatchError(f"'{self.name}' gives integers of whole bytes, got {self.type}; convert its bits")
        if self.algorithm not in ALGORITHMS:
            raise TypeMismatchError(f"'{self.name}' has the algorithms {', '.join(ALGORITHMS)}, got {self.algorithm!r}")
        return (state, self.type)

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        (state,) = operands
        with np.errstate(over="ignore"):
            if self.algorithm == "THREE_FRY":
                bits, following = _threefry_bits(state, self.type)
            else:
                bits, following = _philox_bits(state, self.type)
        return following, bits.astype(f"u{self.type.dtype.numpy.itemsize}").view(self.type.dtype.numpy)

    def vmap(self, b: VmapContext, batch: Batch) -> tuple[Value, ...]:
        """One state after the other: each numbers its own elements."""
        return b.one_by_one(self, batch)


def _words(x: Words) -> tuple[Words, Words]:
    """Low and high word of 64 bits."""
    return x & _MASK, x >> _HALF


def _joined(low: Words, high: Words) -> Words:
    return low | (high << _HALF)


# -- Threefry ----------------------------------------------------------------------------------------------------------


def _threefry(key: Words, x: tuple[Words, Words]) -> tuple[Words, Words]:
    """Two words of random bits for each counter of two words."""
    low, high = threefry([np.asarray(word, np.uint32) for word in (*_words(key), *x)])
    return low.astype(np.uint64), high.astype(np.uint64)


def _threefry_bits(state: Array, type: TensorType) -> tuple[Words, Array]:
    """The bits and the next state.

    Elements of 64 bits take a counter each. Of 32 bits, two neighbours along one dimension share a counter: the first
    dimension of even size, or else the longest, which is filled up by one.
    """
    key, counter = np.asarray(state, np.uint64)
    if type.dtype.bits == 64:
        low, high = _threefry(key, _words(counter + np.arange(type.size, dtype=np.uint64)))
        return _joined(low, high).reshape(type.shape), np.array([key, counter + np.uint64(type.size)])
    if not type.shape:
        return _threefry(key, _words(counter))[0].reshape(()), np.array([key, counter + np.uint64(1)])
    even = [d for d, size in enumerate(type.shape) if size % 2 == 0]
    split = even[0] if even else int(np.argmax(type.shape))
    pairs = (*type.shape[:split], (type.shape[split] + 1) // 2, *type.shape[split + 1 :])
    count = math.prod(pairs)
    words = _threefry(key, _words(counter + np.arange(count, dtype=np.uint64).reshape(pairs)))
    both = np.stack(words, split + 1).reshape(*pairs[:split], 2 * pairs[split], *pairs[split + 1 :])
    return both.take(range(type.shape[split]), split), np.array([key, counter + np.uint64(count)])


# -- Philox ------------------------------------------------------------------------------------------------------------

_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_KEY_STEPS = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)


def _philox(key: Words, x: tuple[Words, ...]) -> tuple[Words, ...]:
    """Four words of random bits for each counter of four words."""
    keys = _words(key)
    for _ in range(10):
        (low0, high0), (low1, high1) = _words(x[0] * _MULTIPLIERS[0]), _words(x[2] * _MULTIPLIERS[1])
        x = (high1 ^ x[1] ^ keys[0], low1, high0 ^ x[3] ^ keys[1], low0)
        keys = (keys[0] + _KEY_STEPS[0]) & _MASK, (keys[1] + _KEY_STEPS[1]) & _MASK
    return x


def _philox_bits(state: Array, type: TensorType) -> tuple[Words, Array]:
    """The bits, four words for each counter in the order of the elements, and the next state."""
    key, low = state[0], state[1]
    high = state[2] if len(state) == 3 else key
    is_wide = type.dtype.bits == 64
    count = -(-type.size * (2 if is_wide else 1) // 4)
    counters = low + np.arange(count, dtype=np.uint64)
    words = np.stack(_philox(key, (*_words(counters), *_words(_carried(high, low, counters)))), 1).reshape(-1)
    bits = _joined(words[0::2], words[1::2]) if is_wide else words
    after = low + np.uint64(count)
    following = np.array([key, after, *_carried(high, low, np.array([after]))], np.uint64)
    return bits[: type.size].reshape(type.shape), following[: len(state)]


def _carried(high: Words, low: Words, counters: Words) -> Words:
    """The upper halves of counters: one more where the lower half started again."""
    return high + (counters < low).astype(np.uint64)
