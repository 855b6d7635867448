"""Losses of rnn_jax's recurrent networks and state-space models, whose parameters are complex numbers in part.

The package asks for torch, for its data sets alone: `pip install --no-deps rnn-jax`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from rnn_jax.cells.unitary import UnitaryEvolutionRNNCell
from rnn_jax.layers import RNN
from rnn_jax.ssm import DeepStateSpaceModelEncoder, GLUMixer, LinearRecurrentUnit, SimplifiedStateSpaceLayer

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)


def state_space() -> Built:
    keys = jax.random.split(KEY, 6)
    layers = (LinearRecurrentUnit(8, 8, 8, key=keys[0]), SimplifiedStateSpaceLayer(8, 8, 8, key=keys[1]))
    mixers = (GLUMixer(8, 8, key=keys[2]), GLUMixer(8, 8, key=keys[3]))
    model = DeepStateSpaceModelEncoder(3, layers, mixers, out_dim=4, pool_method="mean", key=keys[4])
    params, static = eqx.partition(model, eqx.is_inexact_array)
    x = jax.random.normal(keys[5], (4, 32, 3))

    def loss(params: Any, x: Any) -> Any:
        found = jax.vmap(eqx.combine(params, static))(x)
        return jnp.mean(jnp.square(jnp.abs(found) - 0.5))

    return loss, (params, x)


def unitary() -> Built:
    model = RNN(UnitaryEvolutionRNNCell(2, 16, key=KEY), 3, key=jax.random.key(1))
    params, static = eqx.partition(model, eqx.is_inexact_array)
    x = jax.random.normal(KEY, (4, 20, 2))

    def loss(params: Any, x: Any) -> Any:
        found, _ = jax.vmap(eqx.combine(params, static))(x)
        return jnp.mean(jnp.square(jnp.abs(found) - 0.5))

    return loss, (params, x)


LOSSES = (
    Loss("rnn-jax-state-space", "linear recurrences of complex numbers by associative scans", state_space),
    Loss("rnn-jax-unitary", "recurrence by a unitary matrix: Fourier transforms, reflections", unitary),
)
