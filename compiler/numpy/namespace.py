"""The namespace `rematc.numpy`: NumPy's functions, as far as they can be traced, and functional updates.

Nearly all of it is NumPy itself, whose functions call the tracers by themselves and compute at once on concrete
arrays. A few do not ask their arguments (np.asarray, np.full); those have a function here that does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from rematc.compiler.numpy import creation, updates
from rematc.compiler.numpy.dispatch import FUNCTIONS, qualified_name
from rematc.compiler.numpy.operands import ArrayLike, enter, is_traced, static_shape
from rematc.compiler.numpy.ufuncs import SUPPORTED_UFUNCS
from rematc.ir.core import Array


def asarray(x: ArrayLike, dtype: object = None) -> object:
    """`x` as an array: as np.asarray, but lists may hold traced arrays."""
    if is_traced(x):
        enter(x)
        return creation.array(x, dtype)
    return np.asarray(x, dtype)  # type: ignore[call-overload]  # whatever NumPy takes


def full(shape: object, fill_value: ArrayLike, dtype: object = None) -> object:
    """An array of one repeated value: as np.full, but the value may be traced."""
    if is_traced(fill_value):
        enter(fill_value)
        return creation.full_like(fill_value, fill_value, dtype, shape=static_shape(shape, "np.full"))
    return np.full(shape, fill_value, dtype)  # type: ignore[call-overload]  # whatever NumPy takes


def _write(copy: Array, index: Any, value: Any) -> None:
    copy[index] = value


def _through(function: Callable[..., object]) -> Callable[..., object]:
    """An update of a concrete array by a ufunc's `at`."""

    def write(copy: Array, index: object, value: object) -> None:
        function(copy, index, value)

    return write


#: `at_set(x, index, value)` and its kin: a new array, `x` with x[index] replaced by, or combined with, `value`.
at_set = updates.updated(updates.at_set, _write)
at_add = updates.updated(updates.at_add, _through(np.add.at))
at_multiply = updates.updated(updates.at_multiply, _through(np.multiply.at))
at_min = updates.updated(updates.at_min, _through(np.minimum.at))
at_max = updates.updated(updates.at_max, _through(np.maximum.at))

# Names that need no tracing: they make concrete arrays, or are types and constants.
_CONCRETE = (
    *("arange", "zeros", "ones", "empty", "eye", "identity", "tri", "indices", "ix_", "ogrid", "mgrid", "s_", "c_"),
    *("r_", "newaxis", "pi", "e", "inf", "nan", "euler_gamma", "dtype", "finfo", "iinfo", "ndarray", "generic"),
    *("bool_", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32"),
    *("float64", "complex64", "complex128", "floating", "integer", "inexact", "number", "issubdtype", "isscalar"),
    *("promote_types", "broadcast_shapes", "tril_indices", "triu_indices", "diag_indices", "geomspace", "logspace"),
    *("hanning", "hamming", "blackman", "bartlett", "kaiser", "errstate", "allclose"),
)


def _namespace() -> dict[str, object]:
    names: dict[str, object] = {name: getattr(np, name) for name in _CONCRETE if hasattr(np, name)}
    for name in dir(np):
        found = getattr(np, name)
        if _is_supported(found):
            names[name] = found
    linear = {f.__name__: f for f in FUNCTIONS if getattr(f, "__module__", "") == "numpy.linalg"}
    names["linalg"] = SimpleNamespace(**linear)
    own = {"asarray": asarray, "array": asarray, "full": full, "supported": supported}
    changes = {"at_set": at_set, "at_add": at_add, "at_multiply": at_multiply, "at_min": at_min, "at_max": at_max}
    return {**names, **own, **changes}


def _is_supported(found: object) -> bool:
    if isinstance(found, np.ufunc):
        return found.__name__ in SUPPORTED_UFUNCS
    return callable(found) and found in FUNCTIONS


def supported() -> tuple[str, ...]:
    """The NumPy functions that can be traced, by name."""
    ufuncs = [f"np.{name}" for name in SUPPORTED_UFUNCS if hasattr(np, name)]
    special = [f"scipy.special.{name}" for name in SUPPORTED_UFUNCS if not hasattr(np, name)]
    return tuple(sorted({*ufuncs, *special, *[qualified_name(function) for function in FUNCTIONS]}))


NAMESPACE: Mapping[str, object] = _namespace()
