"""JAX's types of arrays."""

from __future__ import annotations

from typing import Any

import jax
from jax._src import dtypes
from jax._src.lax.lax import _convert_element_type

from rematc.ir.types import TensorType


def abstract_value(type: TensorType) -> jax.core.ShapedArray:
    """JAX's type of an array."""
    if type.on_host:
        return jax.core.ShapedArray(type.shape, type.dtype.numpy, memory_space=jax.memory.Space.Host)
    return jax.core.ShapedArray(type.shape, type.dtype.numpy)


def is_float0(dtype: Any) -> bool:
    """Whether an element type is that of tangents of integers."""
    return bool(dtype == dtypes.float0)


def is_weak(aval: Any) -> bool:
    """Whether the element type of an array yields to those that it meets, as a Python number's does."""
    return isinstance(aval, jax.core.ShapedArray) and bool(aval.weak_type)


def weakly_typed(value: Any) -> Any:
    """An array whose element type yields to those that it meets, as a Python number's does."""
    return _convert_element_type(value, weak_type=True)
