"""A pose graph by jaxlie: rigid motions in three dimensions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jaxlie

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)
POSES = 40


def pose_graph() -> Built:
    tangents = 0.3 * jax.random.normal(KEY, (POSES, 6))
    measured = 0.3 * jax.random.normal(jax.random.key(1), (POSES - 1, 6))

    def loss(tangents: Any, measured: Any) -> Any:
        def edge(first: Any, second: Any, seen: Any) -> Any:
            between = jaxlie.SE3.exp(first).inverse() @ jaxlie.SE3.exp(second)
            return ((jaxlie.SE3.exp(seen).inverse() @ between).log() ** 2).sum()

        return jax.vmap(edge)(tangents[:-1], tangents[1:], measured).sum()

    return loss, (tangents, measured)


def bundle() -> Built:
    points = jax.random.normal(KEY, (200, 3)) + jnp.asarray([0.0, 0.0, 5.0])
    turns = 0.1 * jax.random.normal(jax.random.key(1), (8, 3))
    seen = jax.random.normal(jax.random.key(2), (8, 200, 2))

    def loss(turns: Any, points: Any, seen: Any) -> Any:
        def camera(turn: Any, seen: Any) -> Any:
            there = jax.vmap(jaxlie.SO3.exp(turn).apply)(points)
            return (jnp.abs(there[:, :2] / there[:, 2:] - seen)).sum()

        return jax.vmap(camera)(turns, seen).sum()

    return loss, (turns, points, seen)


LOSSES = (
    Loss("jaxlie-poses", "pose graph on SE(3)", pose_graph),
    Loss("jaxlie-bundle", "projections under SO(3)", bundle),
)
