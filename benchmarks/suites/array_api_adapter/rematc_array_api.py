"""rematc.numpy under the array API's own tests: every function and operator is traced, then computed.

The standard's tests work on array objects, so there is one here: it holds a NumPy array, and each of its operators
traces the operator of a traced array. What needs no elements (dtypes, promotion) is asked directly.
"""

from __future__ import annotations

import builtins
import functools
import operator
from collections.abc import Callable
from typing import Any

import jax.tree_util
import numpy as np
from suite_engine import traced_call

import rematc
import rematc.numpy as rnp
from rematc.compiler.frontends.numpy.namespace import NAMESPACE

#: Functions whose results are no arrays, and those whose results have shapes that depend on data.
_DIRECT = {
    *("result_type", "can_cast", "isdtype", "finfo", "iinfo", "broadcast_shapes", "__array_namespace_info__"),
    *("from_dlpack", "unique_all", "unique_counts", "unique_inverse", "unique_values", "nonzero"),
}


#: Python's own types: the module gives some of their names to dtypes.
_SCALARS = (builtins.bool, int, float, complex)


class Array:
    """An array of the standard, on a NumPy array."""

    __array_priority__ = 1000
    __array_ufunc__ = None

    def __init__(self, array: Any) -> None:
        self._array = np.asarray(array)

    shape = property(lambda self: self._array.shape)
    dtype = property(lambda self: self._array.dtype)
    ndim = property(lambda self: self._array.ndim)
    size = property(lambda self: self._array.size)
    device = property(lambda self: "cpu")
    T = property(lambda self: _call(lambda x: x.T, self))
    mT = property(lambda self: _call(lambda x: x.mT, self))  # noqa: N815  # the standard's name

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        import rematc_array_api  # noqa: PLC0415  # the module itself

        if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12", "2025.12"):
            raise ValueError(f"no version {api_version!r} of the array API")
        return rematc_array_api

    def to_device(self, device: Any, /, *, stream: Any = None) -> Array:
        if device != "cpu":
            raise ValueError(f"no device {device!r}")
        return self

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None
    ) -> Any:
        return self._array.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()

    def __repr__(self) -> str:
        return f"Array({self._array!r})"

    def __len__(self) -> int:
        return len(self._array)

    def __bool__(self) -> bool:
        return builtins.bool(self._array)

    def __int__(self) -> int:
        return builtins.int(self._array)

    def __float__(self) -> float:
        return builtins.float(self._array)

    def __complex__(self) -> complex:
        return builtins.complex(self._array)

    def __index__(self) -> int:
        return operator.index(self._array[()])

    def __getitem__(self, index: Any) -> Array:
        if _has_mask(index):
            return Array(self._array[_bare(index)])  # its shape depends on data
        try:
            return _call(operator.getitem, self, index)
        except rematc.CompileError as error:
            raise IndexError(str(error)) from error

    def __setitem__(self, index: Any, value: Any) -> None:
        if _has_mask(index):
            self._array[_bare(index)] = _bare(value)
            return
        updated = _call(rnp.at_set, self, index, value)
        self._array = np.array(updated._array)

    __hash__ = None  # type: ignore[assignment]  # like an array


def _is_mask(x: Any) -> bool:
    return isinstance(x, Array) and x.dtype == np.bool_


def _has_mask(index: Any) -> bool:
    return builtins.any(_is_mask(item) for item in (index if isinstance(index, tuple) else (index,)))


def _bare(tree: Any) -> Any:
    return jax.tree_util.tree_map(lambda x: x._array if isinstance(x, Array) else x, tree)


def _wrapped(tree: Any) -> Any:
    return jax.tree_util.tree_map(Array, tree)


def _call(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """The function of the arrays among its arguments, traced; everything else is as it is."""
    leaves, tree = jax.tree_util.tree_flatten((arguments, options), is_leaf=lambda x: x is None)
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Array)]
    if not places:
        return _wrapped(function(*arguments, **options))

    def of_arrays(*arrays: Any) -> Any:
        full = list(leaves)
        for place, array in zip(places, arrays, strict=True):
            full[place] = array
        args, named = jax.tree_util.tree_unflatten(tree, full)
        return function(*args, **named)

    return _wrapped(traced_call(of_arrays, *[leaves[place]._array for place in places]))


def _function(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def apply(*arguments: Any, **options: Any) -> Any:
        return _call(function, *arguments, **options)

    return apply


def _direct(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def apply(*arguments: Any, **options: Any) -> Any:
        result = function(*_bare(arguments), **_bare(options))
        return jax.tree_util.tree_map(lambda x: Array(x) if isinstance(x, np.ndarray) else x, result)

    return apply


def _operators() -> None:
    binary = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor", "lshift"]
    for name in [*binary, "rshift", "eq", "ne", "lt", "le", "gt", "ge"]:
        apply, plain = getattr(operator, name), name.rstrip("_")
        setattr(Array, f"__{plain}__", lambda self, other, f=apply: _binary(f, self, other))
        if name in ("eq", "ne", "lt", "le", "gt", "ge"):
            continue
        setattr(Array, f"__r{plain}__", lambda self, other, f=apply: _binary(f, other, self))
        setattr(Array, f"__i{plain}__", lambda self, other, f=apply: _in_place(f, self, other))
    for name in ("neg", "pos", "abs", "invert"):
        apply = getattr(operator, name)
        setattr(Array, f"__{name}__", lambda self, f=apply: _call(f, self))


def _binary(apply: Callable[..., Any], x: Any, y: Any) -> Any:
    if not builtins.all(isinstance(item, (Array, *_SCALARS)) for item in (x, y)):
        return NotImplemented
    return _call(apply, x, y)


def _in_place(apply: Callable[..., Any], x: Array, y: Any) -> Any:
    result = _binary(apply, x, y)
    if result is not NotImplemented:
        x._array = result._array
        return x
    return result


def _is_function(found: Any) -> bool:
    return callable(found) and not isinstance(found, type)


def _asarray(x: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Array:
    """Arrays are taken as they are; nested lists may hold arrays."""
    return Array(np.asarray(_bare(x), dtype, copy=copy))


def _module_of(names: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _direct(found) if name in _DIRECT else _function(found) if _is_function(found) else found
        for name, found in names.items()
    }


_operators()
globals().update(_module_of(dict(NAMESPACE)))
for _name in ("linalg", "fft"):
    if _name in NAMESPACE:
        globals()[_name] = type(_name, (), {k: staticmethod(v) for k, v in _module_of(vars(NAMESPACE[_name])).items()})
asarray = _asarray
__array_api_version__ = "2024.12"
__all__ = [name for name in globals() if not name.startswith("_")]
