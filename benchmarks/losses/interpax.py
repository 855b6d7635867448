"""Splines of interpax, in one to three dimensions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import interpax
import jax
import jax.numpy as jnp

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)
METHODS = ("linear", "cubic", "cubic2", "cardinal", "catmull-rom", "monotonic", "akima")


def lines() -> Built:
    knots = jnp.linspace(0.0, 1.0, 20)
    queries = jnp.linspace(0.01, 0.99, 77)
    values = jnp.sin(7.0 * knots) + 0.1 * jax.random.normal(KEY, knots.shape)

    def loss(values: Any, knots: Any) -> Any:
        return sum((interpax.interp1d(queries, knots, values, method=method) ** 2).mean() for method in METHODS)

    return loss, (values, knots)


def surface() -> Built:
    x = jnp.linspace(0.0, 1.0, 16)
    values = jax.random.normal(KEY, (16, 16))
    queries = jax.random.uniform(jax.random.key(1), (2, 300))

    def loss(values: Any, queries: Any) -> Any:
        return (interpax.interp2d(*queries, x, x, values, method="cubic", period=1.0) ** 2).mean()

    return loss, (values, queries)


def volume() -> Built:
    x = jnp.linspace(0.0, 1.0, 8)
    values = jax.random.normal(KEY, (8, 8, 8))
    queries = jax.random.uniform(jax.random.key(1), (3, 200))

    def loss(values: Any, queries: Any) -> Any:
        return (interpax.interp3d(*queries, x, x, x, values, method="cubic2") ** 2).mean()

    return loss, (values, queries)


LOSSES = (
    Loss("interpax-lines", "splines of seven kinds", lines),
    Loss("interpax-surface", "periodic bicubic surface", surface),
    Loss("interpax-volume", "tricubic volume", volume),
)
