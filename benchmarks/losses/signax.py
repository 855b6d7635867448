"""Path signatures by signax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import signax

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)


def signatures() -> Built:
    path = jnp.cumsum(jax.random.normal(KEY, (8, 60, 3)), axis=1) / 8.0

    def loss(path: Any, weights: Any) -> Any:
        def one(path: Any) -> Any:
            levels = jnp.concatenate([jnp.ravel(level) for level in signax.signature(path @ weights, 4, flatten=False)])
            return jnp.tanh(levels).sum() + (signax.logsignature(path, 3) ** 2).sum()

        return jax.vmap(one)(path).sum()

    return loss, (path, jnp.eye(3))


LOSSES = (Loss("signax", "signature and log-signature of paths", signatures),)
