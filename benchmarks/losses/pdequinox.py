"""Neural operators by pdequinox."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pdequinox

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]


def _of(model: Any, shape: tuple[int, ...]) -> Built:
    arrays, static = eqx.partition(model, eqx.is_inexact_array)
    x = jax.random.normal(jax.random.key(1), (4, *shape))

    def loss(arrays: Any, x: Any) -> Any:
        predicted = jax.vmap(eqx.combine(arrays, static))(x)
        return jnp.mean((predicted - jnp.roll(x, 1, axis=-1)) ** 2)

    return loss, (arrays, x)


def u_net() -> Built:
    model = pdequinox.arch.ClassicUNet(2, 1, 1, hidden_channels=8, num_levels=3, key=jax.random.key(0))
    return _of(model, (1, 32, 32))


def modern_u_net() -> Built:
    model = pdequinox.arch.ModernUNet(2, 1, 1, hidden_channels=8, num_levels=2, num_blocks=1, key=jax.random.key(0))
    return _of(model, (1, 32, 32))


def fourier() -> Built:
    model = pdequinox.arch.ClassicFNO(1, 1, 1, hidden_channels=16, num_modes=10, key=jax.random.key(0))
    return _of(model, (1, 128))


def dilated() -> Built:
    model = pdequinox.arch.DilatedResNet(1, 1, 1, hidden_channels=12, num_blocks=2, key=jax.random.key(0))
    return _of(model, (1, 128))


LOSSES = (
    Loss("pdequinox-u-net", "U-Net on a periodic grid", u_net),
    Loss("pdequinox-modern-u-net", "U-Net of residual blocks", modern_u_net),
    Loss("pdequinox-fno", "Fourier neural operator", fourier),
    Loss("pdequinox-dilated", "dilated residual network", dilated),
)
