"""The law of the way in from JAX: values, gradients and batches of an imported function are those that JAX computes.

Ours are evaluated by the reference interpreter, which compiles nothing; JAX's by `jax.jit`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import rematc
from rematc.ir.core import Graph
from rematc.ir.interpreter import evaluate

Function = Callable[..., Any]
POLICIES = ("none", "nothing", "dots")


def assert_like_jax(function: Function, *args: Any, policies: Sequence[str] = POLICIES, batched: bool = True) -> None:
    """Values, gradients under policies, and a batch agree with JAX.

    Args:
        function: of JAX arrays, to a tree of them.
        args: its arguments; floating-point ones are differentiated.
        policies: of whole functions.
        batched: whether to compare `rematc.vmap` over the first argument with `jax.vmap`.
    """
    assert_same_values(function, *args)
    moving = [index for index, arg in enumerate(args) if _is_inexact(arg)]
    if moving:
        expected = jax.jit(jax.grad(_weighted(function), moving))(*args)
        for policy in policies:
            assert_trees_equal(gradient(function, args, moving, policy), expected)
    if batched:
        rows = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf[..., ::-1] if jnp.ndim(leaf) else leaf]), args[0])
        axes = (0, *[None] * (len(args) - 1))
        graph = rematc.trace(rematc.vmap(rematc.from_jax(function), in_axes=axes), rows, *args[1:])
        assert_trees_equal(run(graph, (rows, *args[1:])), jax.jit(jax.vmap(function, axes))(rows, *args[1:]))


def assert_same_values(function: Function, *args: Any) -> None:
    """The values agree with those of `jax.jit`."""
    assert_trees_equal(values(function, *args), jax.jit(function)(*args))


def values(function: Function, *args: Any) -> list[Any]:
    """What the imported function gives, flat."""
    return run(rematc.trace(rematc.from_jax(function), *args), args)


def gradient(function: Function, args: Sequence[Any], moving: Sequence[int], policy: str = "none") -> list[Any]:
    """Gradients of a weighted sum of the imported function's results, flat."""
    graph = rematc.trace(rematc.grad(rematc.from_jax(_weighted(function)), tuple(moving), policy=policy), *args)
    return run(graph, args)


def run(graph: Graph, args: Sequence[Any]) -> list[Any]:
    """Evaluate a graph at a tree of arguments; typed keys as their words."""
    leaves = [_words(leaf) for leaf in jax.tree.leaves(args)]
    rows = zip(leaves, graph.params, strict=True)
    return list(evaluate(graph, [np.asarray(leaf, param.type.dtype.numpy) for leaf, param in rows]))


def assert_trees_equal(found: Sequence[Any], expected: Any) -> None:
    """Flat results equal a tree's leaves, of the same types."""
    for one, other in zip(found, [_words(leaf) for leaf in jax.tree.leaves(expected)], strict=True):
        assert np.shape(one) == np.shape(other)
        assert np.asarray(one).dtype == other.dtype
        # Both compute in float32, sums in another order.
        np.testing.assert_allclose(np.asarray(one, other.dtype), other, rtol=3e-5, atol=3e-6)


def _weighted(function: Function) -> Function:
    """A scalar in which each element of the results counts differently."""

    def total(*args: Any) -> Any:
        parts = [leaf for leaf in jax.tree.leaves(function(*args)) if _is_inexact(leaf)]
        return sum(
            (leaf * jnp.cos(jnp.arange(leaf.size, dtype=leaf.dtype)).reshape(leaf.shape)).sum() for leaf in parts
        )

    return total


def _is_inexact(leaf: Any) -> bool:
    return bool(jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)) if not _is_key(leaf) else False


def _is_key(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def _words(leaf: Any) -> np.ndarray[Any, Any]:
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
