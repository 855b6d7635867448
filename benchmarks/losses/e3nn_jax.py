"""Losses of e3nn_jax: networks that turn with what they see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import e3nn_jax as e3nn
import flax.linen as nn
import jax
import jax.numpy as jnp

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)


class Layer(nn.Module):
    """Messages along edges: features times spherical harmonics, weighted by the distance."""

    irreps: str

    @nn.compact
    def __call__(self, features: Any, positions: Any, senders: Any, receivers: Any) -> Any:
        relative = e3nn.IrrepsArray("1o", positions[receivers] - positions[senders])
        harmonics = e3nn.spherical_harmonics([0, 1, 2], relative, True)
        messages = e3nn.tensor_product(features[senders], harmonics).regroup()
        lengths = jnp.linalg.norm(relative.array, axis=-1)
        radial = e3nn.soft_one_hot_linspace(lengths, start=0.0, end=4.0, number=6, basis="smooth_finite", cutoff=True)
        weights = nn.Dense(messages.irreps.num_irreps)(nn.silu(nn.Dense(16)(radial)))
        summed = e3nn.scatter_sum(messages * weights, dst=receivers, output_size=positions.shape[0])
        return e3nn.gate(e3nn.flax.Linear(self.irreps)(summed))


class Network(nn.Module):
    """Energy of atoms."""

    @nn.compact
    def __call__(self, positions: Any, senders: Any, receivers: Any) -> Any:
        features = e3nn.IrrepsArray("0e", jnp.ones((positions.shape[0], 1), positions.dtype))
        for irreps in ("12x0e + 4x1o", "12x0e"):
            features = Layer(irreps)(features, positions, senders, receivers)
        return nn.Dense(1)(features.array).sum()


def energy() -> Built:
    positions = jax.random.normal(KEY, (12, 3))
    senders, receivers = (index.ravel() for index in jnp.indices((12, 12)))
    keep = senders != receivers
    senders, receivers = senders[keep], receivers[keep]
    model = Network()
    params = jax.jit(model.init)(KEY, positions, senders, receivers)
    forces = jax.random.normal(jax.random.key(1), positions.shape)

    def loss(params: Any, positions: Any, senders: Any, receivers: Any, forces: Any) -> Any:
        def of_positions(positions: Any) -> Any:
            return model.apply(params, positions, senders, receivers)

        energy, slope = jax.value_and_grad(of_positions)(positions)
        return jnp.square(energy) + jnp.mean(jnp.square(slope + forces))

    return loss, (params, positions, senders, receivers, forces)


LOSSES = (Loss("e3nn-forces", "equivariant graph network, loss on forces (second derivatives)", energy),)
