"""Traced functions run in NumPy: trace, evaluate the graph with the reference interpreter, rebuild the output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.tree_util
import numpy as np

from rematc.compiler.functions.calls import TracedFunction, trace_function
from rematc.ir.interpreter import evaluate
from rematc.ir.types import TensorType, dtype_of_numpy


def type_of(x: Any) -> TensorType:
    """The type of an array or a Python scalar."""
    array = np.asarray(x)
    dtype = dtype_of_numpy(array.dtype)
    assert dtype is not None
    return TensorType(dtype, array.shape)


def is_python_scalar(x: Any) -> bool:
    """Whether `x` is weak in promotion."""
    return isinstance(x, (bool, int, float, complex)) and not isinstance(x, np.generic)


def traced(function: Callable[..., Any], *arguments: Any) -> TracedFunction:
    """`function` traced on the types of `arguments`, any pytrees."""
    leaves, tree = jax.tree_util.tree_flatten(arguments)
    return trace_function(
        function,
        [type_of(leaf) for leaf in leaves],
        [is_python_scalar(leaf) for leaf in leaves],
        [f"x{i}" for i in range(len(leaves))],
        tree,
        name=getattr(function, "__name__", "function"),
    )


def run(function: Callable[..., Any], *arguments: Any) -> Any:
    """What the graph of `function` computes from `arguments`."""
    result = traced(function, *arguments)
    leaves = [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(arguments)]
    return result.out_tree.unflatten(evaluate(result.graph, [*leaves, *result.constants]))


def assert_as_numpy(function: Callable[..., Any], *arguments: Any, tolerance: float | None = None) -> None:
    """The traced function gives what it gives on arrays: the same structure, shapes, dtypes and elements.

    Args:
        function: the function, of NumPy arrays.
        arguments: concrete arguments.
        tolerance: relative and absolute; by default 1e-12 in float64 and a few units in the last place in float32,
            since sums may be made in another order.
    """
    with np.errstate(all="ignore"):
        expected = function(*arguments)
        found = run(function, *arguments)
    expected_leaves, expected_tree = jax.tree_util.tree_flatten(_as_lists(expected))
    found_leaves, found_tree = jax.tree_util.tree_flatten(_as_lists(found))
    assert str(found_tree) == str(expected_tree)
    for got, want in zip(found_leaves, expected_leaves, strict=True):
        wanted = np.asarray(want)
        assert got.shape == wanted.shape
        assert got.dtype == wanted.dtype
        if wanted.dtype.kind in "biu":
            np.testing.assert_array_equal(got, wanted)
        else:
            slack = tolerance or {8: 1e-12, 4: 2e-6, 2: 1e-2}[wanted.dtype.itemsize // (1 + (wanted.dtype.kind == "c"))]
            wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(got.astype(wide), wanted.astype(wide), rtol=slack, atol=slack, equal_nan=True)


def _as_lists(tree: Any) -> Any:
    # NumPy returns lists, tuples or named tuples of arrays, where the traced function may return another of them.
    if isinstance(tree, (list, tuple)):
        return [_as_lists(item) for item in tree]
    return tree
