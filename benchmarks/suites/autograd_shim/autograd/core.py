"""Vector spaces of arguments, and the two products with a Jacobian on which all other derivatives rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax.tree_util
import numpy as np

import rematc
from autograd.custom import primitive, primitive_vjps
from autograd.engine import run
from rematc.compiler.tracing.trace import Tracer

__all__ = ["VSpace", "make_jvp", "make_vjp", "primitive", "primitive_vjps", "vspace"]

Function = Callable[..., Any]
_map = jax.tree_util.tree_map
_leaves = jax.tree_util.tree_leaves


def _dtype(leaf: Any) -> np.dtype[Any]:
    return leaf.dtype if isinstance(leaf, (Tracer, np.ndarray, np.generic)) else np.asarray(leaf).dtype


def _number(leaf: Any) -> Any:
    """An argument, with integers as floats: they are differentiated like any number."""
    if isinstance(leaf, (bool, str)) or not isinstance(leaf, (int, np.integer)):
        return leaf
    return float(leaf)


class VSpace:
    """The real vector space that a value lies in: its tree, and the shapes and dtypes of its leaves."""

    def __init__(self, value: Any) -> None:
        self._leaves, self._tree = jax.tree_util.tree_flatten(value)
        for leaf in self._leaves:
            if _dtype(leaf).kind not in "fc":
                raise TypeError(f"no vector space holds {type(leaf).__name__} of {_dtype(leaf)}")
        self._types = [(np.shape(leaf), _dtype(leaf)) for leaf in self._leaves]
        self.iscomplex = any(dtype.kind == "c" for _, dtype in self._types)
        self.size = sum(int(np.prod(shape)) * (2 if dtype.kind == "c" else 1) for shape, dtype in self._types)
        self.shape = self._types[0][0] if len(self._types) == 1 else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VSpace) and (self._tree, self._types) == (other._tree, other._types)

    __hash__ = None  # type: ignore[assignment]  # equality is structural

    def __repr__(self) -> str:
        return f"VSpace({self._tree}, {self._types})"

    def _make(self, leaf: Callable[[tuple[int, ...], np.dtype[Any]], Any]) -> Any:
        leaves = [np.asarray(leaf(shape, dtype), dtype)[()] for shape, dtype in self._types]
        return jax.tree_util.tree_unflatten(self._tree, leaves)

    def zeros(self) -> Any:
        return self._make(lambda shape, dtype: np.zeros(shape))

    def ones(self) -> Any:
        return self._make(lambda shape, dtype: np.ones(shape) * (1 + 1j if dtype.kind == "c" else 1))

    def randn(self) -> Any:
        def draw(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
            real = np.random.randn(*shape)
            return real + 1j * np.random.randn(*shape) if dtype.kind == "c" else real

        return self._make(draw)

    def standard_basis(self) -> Iterator[Any]:
        for chosen, (shape, dtype) in enumerate(self._types):
            for index in np.ndindex(*shape):
                for unit in (1, 1j) if dtype.kind == "c" else (1,):
                    leaves = [np.zeros(*of) for of in self._types]
                    leaves[chosen][index] = unit
                    yield jax.tree_util.tree_unflatten(self._tree, [leaf[()] for leaf in leaves])

    def add(self, x: Any, y: Any) -> Any:
        return _map(lambda a, b: a + b, x, y)

    def scalar_mul(self, x: Any, factor: Any) -> Any:
        return _map(lambda a: a * factor, x)

    def inner_prod(self, x: Any, y: Any) -> Any:
        return sum(np.real(np.sum(np.conj(a) * b)) for a, b in zip(_leaves(x), _leaves(y), strict=True))

    def covector(self, x: Any) -> Any:
        return _map(np.conj, x)


def vspace(value: Any) -> VSpace:
    """The vector space of a value. Raises TypeError where it holds anything but floats and complex numbers."""
    return VSpace(value)


def _like(value: Any, given: Any) -> Any:
    """`given`, leaf by leaf in the dtype of `value`; zeros for leaves that have no derivative."""
    tree = jax.tree_util.tree_structure(value)
    leaves = jax.tree_util.tree_leaves(given)
    converted = [_converted(of, leaf) for of, leaf in zip(_leaves(value), leaves, strict=True)]
    return jax.tree_util.tree_unflatten(tree, converted)


def _converted(of: Any, leaf: Any) -> Any:
    dtype = _dtype(of)
    if dtype.kind not in "fc":
        return np.zeros(np.shape(of), dtype)
    if dtype.kind != "c" and _dtype(leaf).kind == "c":
        leaf = np.real(leaf)
    leaf = leaf if isinstance(leaf, Tracer) else np.asarray(leaf)
    return leaf.astype(dtype) if np.shape(leaf) == np.shape(of) else np.broadcast_to(leaf.astype(dtype), np.shape(of))


def make_vjp(fun: Function, x: Any) -> tuple[Function, Any]:
    """The product of a cotangent with the Jacobian of `fun` at x, as a function, and the value of `fun` there."""
    x = _map(_number, x)

    def pull_back(x: Any, ct: Any) -> Any:
        y, pull = rematc.vjp(fun, x)
        return pull(_like(y, ct))[0]

    return lambda ct: run(pull_back, x, ct), run(fun, x)


def make_jvp(fun: Function, x: Any) -> Function:
    """The function from a tangent at x to the value of `fun` and its tangent."""
    x = _map(_number, x)

    def push_forward(x: Any, tangent: Any) -> Any:
        return rematc.jvp(fun, (x,), (_like(x, tangent),))

    return lambda tangent: run(push_forward, x, tangent)
