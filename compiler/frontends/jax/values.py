"""What JAX's types, arrays and scopes are in the IR."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import jax
import numpy as np

from rematc.compiler.tracing.trace import counts
from rematc.ir.errors import CompileError
from rematc.ir.locations import Location
from rematc.ir.types import BOOL, TensorType, dtype_of_numpy
from rematc.ir.values import Array
from rematc.lowering.jax_internals.keys import is_key, key_layout, key_words
from rematc.lowering.jax_internals.types import is_float0

#: Elements of a captured array that are fetched from a device to look at them.
_FETCHED = 2**20


def type_of(aval: Any) -> TensorType:
    """The IR's type for an abstract value of JAX, or an array.

    Typed keys are arrays of words, those of a key along the last dimension; `float0`, which has one value only, is
    `bool`, as in JAX's own lowering.

    Raises CompileError for what is no array, and for shapes that are not static.
    """
    found = getattr(aval, "dtype", None)
    if found is None:
        raise CompileError(f"a value of JAX's type {aval} is no array, and cannot be imported")
    shape = tuple(aval.shape)
    if is_key(found):
        found, words = key_layout(found)
        shape += words
    if is_float0(found):
        return TensorType(BOOL, shape)
    dtype = dtype_of_numpy(np.dtype(found))
    if dtype is None:
        raise CompileError(f"arrays of JAX's dtype {found} cannot be compiled")
    if not all(isinstance(size, int) for size in shape):
        raise CompileError(f"an array of shape {shape} is not static; trace with concrete sizes")
    return TensorType(dtype, shape)


def as_numpy(array: Any) -> Array:
    """A captured array's elements: of typed keys, their words."""
    array = np.asarray(without_keys(array))
    return np.zeros(array.shape, np.bool_) if is_float0(array.dtype) else array


def without_keys(array: Any) -> Any:
    """A captured array, of typed keys their words; an array, too, inside a function that JAX traces."""
    if not is_key(array.dtype):
        return array
    with jax.ensure_compile_time_eval():
        return key_words(array)


def is_count(array: Any) -> bool:
    """Whether a captured array is 0, 1, 2, ... along one dimension; of a device only short ones are fetched."""
    if is_key(array.dtype) or np.dtype(array.dtype).kind not in "iu" or array.size not in array.shape:
        return False
    if not isinstance(array, np.ndarray):
        is_there = isinstance(array, jax.Array) and not isinstance(array, jax.core.Tracer)
        if not is_there or array.size > _FETCHED or not array.is_fully_addressable:
            return False
    return counts(np.asarray(array))


@lru_cache(maxsize=1 << 12)
def scoped(loc: Location, scopes: tuple[str, ...]) -> Location:
    """A location whose function stands in these scopes: many layers have one line."""
    return replace(loc, function="/".join((*scopes, loc.function)))
