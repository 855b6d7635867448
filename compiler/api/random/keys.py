"""Keys: made of a seed, split, folded with a number. A key is two words, u32[2]; keys are ordinary arrays of them."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from rematc.compiler.api.random.sampling import apply, checked_key, checked_shape, fail, split_key
from rematc.compiler.tracing.arguments import is_array_like, leaf_type
from rematc.ir.builder import Builder
from rematc.ir.errors import CompileError
from rematc.ir.ops.logical import ShiftRightLogical
from rematc.ir.ops.random import Threefry2x32
from rematc.ir.types import U32, Kind, TensorType
from rematc.ir.values import Array, Value


def key(seed: object) -> Any:
    """The key of a seed.

    Args:
        seed: an integer of up to 64 bits, or an integer scalar, which may be traced.

    Returns:
        u32[2], the upper and the lower half of the seed. For a Python integer it is a NumPy array.

    Raises:
        CompileError: for a seed that is no integer.
    """
    if isinstance(seed, (int, np.integer)) and not isinstance(seed, bool):
        return _words(operator.index(seed))
    type = leaf_type(seed)[0] if is_array_like(seed) else None
    if type is None or type.shape or type.dtype.kind not in (Kind.INT, Kind.UINT):
        fail(f"rematc.random.key takes an integer as seed, got {type or repr(seed)}")
    return apply(_seeded, seed)


def _words(seed: int) -> Array:
    if not -(2**63) <= seed < 2**64:
        fail(f"a seed has 64 bits, got {seed}; use rematc.random.fold_in to mix in more")
    return np.array([seed >> 32 & 0xFFFFFFFF, seed & 0xFFFFFFFF], np.uint32)


def _seeded(b: Builder, seed: Value) -> Value:
    if seed.type.dtype.bits == 64:
        upper = b.convert(b.emit1(ShiftRightLogical(), seed, b.full(seed.type, 32)), U32)
    else:
        upper = b.zeros(TensorType(U32, ()))
    return b.concatenate([b.reshape(word, (1,)) for word in (upper, b.convert(seed, U32))], 0)


def split(key: object, num: int | tuple[int, ...] = 2) -> Any:
    """New keys from a key, which is not to be used again.

    Args:
        key: u32[2].
        num: how many, or the shape of an array of keys.

    Returns:
        u32[num, 2].

    Raises:
        CompileError: for what is no key, and negative numbers.
    """
    return apply(split_key, checked_key("split", key), shape=checked_shape("split", num))


def fold_in(key: object, data: object) -> Any:
    """A new key from a key and a number, such as the index of a step or of a layer.

    Args:
        key: u32[2].
        data: an integer scalar, of which the lower 32 bits count; it may be traced.

    Raises:
        CompileError: for what is no key, and data that is no integer scalar.
    """
    key = checked_key("fold_in", key)
    if isinstance(data, (int, np.integer)) and not isinstance(data, bool):
        data = np.uint32(operator.index(data) & 0xFFFFFFFF)
    try:
        type = leaf_type(data)[0]
    except (CompileError, TypeError, ValueError):
        fail(f"fold_in takes an integer, got {data!r}")
    if type.shape or type.dtype.kind not in (Kind.INT, Kind.UINT):
        fail(f"fold_in takes an integer scalar, got {type}; apply it to each with rematc.vmap")
    return apply(_folded, key, data)


def _folded(b: Builder, key: Value, data: Value) -> Value:
    low = b.reshape(b.convert(data, U32), (1,))
    words = b.emit(Threefry2x32(), key, b.zeros(low.type), low)
    return b.concatenate(words, 0)
