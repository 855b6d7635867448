"""Trees of arrays as one vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.tree_util
import numpy as np

__all__ = ["const_graph", "flatten"]


def flatten(value: Any) -> tuple[Any, Callable[[Any], Any]]:
    """All elements of a tree in one vector, and the way back."""
    leaves, tree = jax.tree_util.tree_flatten(value)
    sizes = [int(np.prod(np.shape(leaf))) for leaf in leaves]
    ends = np.cumsum([0, *sizes])

    def unflatten(vector: Any) -> Any:
        parts = [
            np.reshape(vector[start:end], np.shape(leaf)) if np.ndim(leaf) else vector[start]
            for start, end, leaf in zip(ends[:-1], ends[1:], leaves, strict=True)
        ]
        return jax.tree_util.tree_unflatten(tree, parts)

    return (np.concatenate([np.ravel(leaf) for leaf in leaves]) if leaves else np.zeros(0)), unflatten


def const_graph(fun: Callable[..., Any], *arguments: Any, **options: Any) -> Callable[..., Any]:
    """`fun` with some arguments fixed. autograd replays its primitives; here there is nothing to replay."""
    return lambda *more: fun(*arguments, *more, **options)
