"""Models of federated learning by FedJAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fedjax
import jax
import jax.numpy as jnp

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)


def digits() -> Built:
    model = fedjax.models.emnist.create_conv_model()
    batch = {"x": jax.random.normal(KEY, (8, 28, 28, 1)), "y": jnp.arange(8)}

    def loss(params: Any, batch: Any, key: Any) -> Any:
        return model.train_loss(batch, model.apply_for_train(params, batch, key)).mean()

    return loss, (model.init(KEY), batch, jax.random.key(1))


LOSSES = (Loss("fedjax-emnist", "convolutions with dropout", digits),)
