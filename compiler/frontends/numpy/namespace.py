"""The namespace `rematc.numpy`: NumPy's functions, as far as they can be traced, and functional updates.

Nearly all of it is NumPy itself, whose functions call the tracers by themselves and compute at once on concrete
arrays. A few do not ask their arguments (np.asarray, np.full); those have a function here that does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from rematc.compiler.frontends.numpy import creation, joining, logarithms, shaping, sized, sized_sets, standard
from rematc.compiler.frontends.numpy.dispatch import FUNCTIONS, call_function, qualified_name
from rematc.compiler.frontends.numpy.operands import ArrayLike, enter, fail, is_traced, static_shape
from rematc.compiler.frontends.numpy.ufuncs import SUPPORTED_UFUNCS, special_ufuncs
from rematc.compiler.frontends.numpy.updates import at_add, at_max, at_min, at_multiply, at_set


def asarray(
    x: ArrayLike, /, dtype: object = None, order: Any = None, *, device: Any = None, copy: Any = None
) -> object:
    """`x` as an array: as np.asarray, but lists may hold traced arrays."""
    if is_traced(x):
        enter(x)
        return creation.asarray(x, dtype, order, copy=copy)
    return np.array(x, dtype, order=order or "K", copy=copy)  # type: ignore[call-overload]  # whatever NumPy takes


def array(
    x: ArrayLike, /, dtype: object = None, *, copy: Any = True, order: Any = "K", subok: bool = False, ndmin: int = 0
) -> object:
    """`x` as an array: as np.array, but lists may hold traced arrays."""
    if is_traced(x):
        enter(x)
        return creation.array(x, dtype, copy=copy, order=order, ndmin=ndmin)
    return np.array(x, dtype, copy=copy, order=order, subok=subok, ndmin=ndmin)  # type: ignore[call-overload]  # as above


def _in_order(function: Any, order: str) -> Callable[..., object]:
    """np.ascontiguousarray and np.asfortranarray, which do not ask their argument what to do."""

    @functools.wraps(function)
    def apply(a: ArrayLike, dtype: object = None) -> object:
        if not is_traced(a):
            return function(a, dtype)
        enter(a)
        return creation.in_order(a, dtype, order)

    return apply


def _asking_lists(function: Callable[..., object]) -> Callable[..., object]:
    """NumPy's function, asked to trace where lists hold traced arrays, into which NumPy does not look."""

    @functools.wraps(function)
    def apply(*arguments: object, **options: object) -> object:
        if any(isinstance(x, (list, tuple)) and is_traced(x) for x in arguments):
            enter(*arguments)
            return call_function(function, arguments, options)
        return function(*arguments, **options)

    return apply


class _Concatenator:
    """Of `r_` and `c_`: arrays, scalars and slices joined; NumPy's own where nothing is traced."""

    def __init__(self, own: Any, is_columns: bool) -> None:
        self._own = own
        self._is_columns = is_columns

    def __getitem__(self, key: object) -> object:
        items = key if isinstance(key, tuple) else (key,)
        if not is_traced(items):
            return self._own[key]
        enter(*items)
        if any(isinstance(item, str) for item in items):
            fail("directives in strings are not supported by r_ and c_ of traced arrays; use np.concatenate")
        parts: list[Any] = [self._part(item) for item in items]
        if self._is_columns:
            parts = [part[:, None] if part.ndim == 1 else part for part in parts]
            return joining.concatenate(parts, -1)
        return joining.concatenate(parts, 0)

    def _part(self, item: object) -> object:
        if isinstance(item, slice):
            return self._own[item] if not self._is_columns else np.r_[item]
        return shaping.atleast_1d(item)


def full(shape: object, fill_value: ArrayLike, dtype: object = None, *, device: Any = None) -> object:
    """An array of one repeated value: as np.full, but the value may be traced."""
    if is_traced(fill_value):
        enter(fill_value)
        return creation.full_like(fill_value, fill_value, dtype, shape=static_shape(shape, "np.full"))
    return np.full(shape, fill_value, dtype, device=device)  # type: ignore[call-overload]  # whatever NumPy takes


# Names that need no tracing: they make concrete arrays, or are types and constants.
_CONCRETE = (
    *("arange", "zeros", "ones", "empty", "eye", "identity", "tri", "indices", "ix_", "ogrid", "mgrid", "s_"),
    *("newaxis", "pi", "e", "inf", "nan", "euler_gamma", "dtype", "finfo", "iinfo", "ndarray", "generic"),
    *("bool_", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32"),
    *("float64", "complex64", "complex128", "floating", "integer", "inexact", "number", "issubdtype", "isscalar"),
    *("promote_types", "broadcast_shapes", "tril_indices", "triu_indices", "diag_indices", "geomspace", "logspace"),
    *("hanning", "hamming", "blackman", "bartlett", "kaiser", "errstate", "allclose", "bool", "isdtype", "from_dlpack"),
    # Their results have shapes that depend on data: they compute on concrete arrays, and refuse traced ones.
    *("unique_all", "unique_counts", "unique_inverse", "unique_values", "__array_namespace_info__"),
)


def _namespace() -> dict[str, object]:
    names: dict[str, object] = {name: getattr(np, name) for name in _CONCRETE if hasattr(np, name)}
    for name in dir(np):
        found = getattr(np, name)
        if _is_supported(found):
            names[name] = found if isinstance(found, np.ufunc) else _asking_lists(found)
    names["linalg"] = SimpleNamespace(**_of_module("numpy.linalg"))
    # SciPy looks here for an array namespace's own special functions.
    names["special"] = SimpleNamespace(**special_ufuncs(), **logarithms.FUNCTIONS)
    names["fft"] = SimpleNamespace(**_of_module("numpy.fft"), **standard.FFT_FUNCTIONS)
    joined = {"r_": _Concatenator(np.r_, False), "c_": _Concatenator(np.c_, True)}
    own = {
        "asarray": asarray,
        "asanyarray": asarray,
        "ascontiguousarray": _in_order(np.ascontiguousarray, "C"),
        "asfortranarray": _in_order(np.asfortranarray, "F"),
        "require": asarray,
        "array": array,
        "full": full,
        "supported": supported,
        **joined,
    }
    changes = {"at_set": at_set, "at_add": at_add, "at_multiply": at_multiply, "at_min": at_min, "at_max": at_max}
    return {**names, **own, **changes, **sized.FUNCTIONS, **sized_sets.FUNCTIONS, **standard.FUNCTIONS}


def _of_module(module: str) -> dict[str, object]:
    return {f.__name__: _asking_lists(f) for f in FUNCTIONS if getattr(f, "__module__", "") == module}


def _is_supported(found: object) -> bool:
    if isinstance(found, np.ufunc):
        return found.__name__ in SUPPORTED_UFUNCS
    return callable(found) and found in FUNCTIONS


def supported() -> tuple[str, ...]:
    """The NumPy functions that can be traced, by name."""
    own = {name for name in SUPPORTED_UFUNCS if isinstance(getattr(np, name, None), np.ufunc)}
    ufuncs = [f"np.{name}" for name in own]
    special = [f"scipy.special.{name}" for name in SUPPORTED_UFUNCS - own]
    return tuple(sorted({*ufuncs, *special, *[qualified_name(function) for function in FUNCTIONS]}))


NAMESPACE: Mapping[str, object] = _namespace()


def _module() -> ModuleType:
    module = ModuleType("rematc.numpy", "What __array_namespace__ of a traced array returns.")
    module.__dict__.update(NAMESPACE)
    return module


#: The namespace as a module, which the array API's helpers expect.
MODULE = _module()
