"""Quantum states by NetKet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import netket

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]


def _ising(model: Any, n: int, walkers: int) -> Built:
    spins = jnp.where(jax.random.bernoulli(jax.random.key(1), 0.5, (walkers, n)), 1.0, -1.0)
    parameters = model.init(jax.random.key(0), spins)
    edges = netket.graph.Chain(n).edges()
    first, second = (jnp.asarray(one) for one in zip(*edges, strict=True))

    def loss(parameters: Any, spins: Any) -> Any:
        log_psi = model.apply(parameters, spins)
        flipped = spins[:, None] * (1 - 2 * jnp.eye(n))
        ratios = jnp.exp(model.apply(parameters, flipped.reshape(-1, n)).reshape(-1, n) - log_psi[:, None])
        energy = -jnp.sum(spins[:, first] * spins[:, second], axis=-1) - jnp.sum(ratios, axis=-1)
        return jnp.mean(jnp.real(energy)) + 0.01 * jnp.mean(jnp.abs(log_psi) ** 2)

    return loss, (parameters, spins)


def boltzmann() -> Built:
    return _ising(netket.models.RBM(alpha=2, param_dtype=float), 12, 32)


def boltzmann_of_complex() -> Built:
    return _ising(netket.models.RBM(alpha=1, param_dtype=complex), 10, 16)


def symmetric() -> Built:
    group = netket.graph.Chain(8).translation_group()
    return _ising(netket.models.GCNN(symmetries=group, layers=2, features=3, mode="irreps", param_dtype=float), 8, 8)


def slater() -> Built:
    hilbert = netket.hilbert.SpinOrbitalFermions(6, n_fermions=3)
    model = netket.models.Slater2nd(hilbert, param_dtype=float)
    n = hilbert.random_state(jax.random.key(1), 24)
    parameters = model.init(jax.random.key(0), n)
    return lambda parameters, n: jnp.mean(jnp.abs(model.apply(parameters, n)) ** 2), (parameters, n)


def autoregressive() -> Built:
    hilbert = netket.hilbert.Spin(s=1 / 2, N=10)
    model = netket.models.ARNNDense(hilbert=hilbert, layers=3, features=8)
    spins = jnp.asarray(hilbert.random_state(jax.random.key(1), 32), float)
    parameters = model.init(jax.random.key(0), spins)
    return lambda parameters, spins: -jnp.mean(jnp.real(model.apply(parameters, spins))), (parameters, spins)


LOSSES = (
    Loss("netket-rbm", "energy of a Boltzmann machine in a transverse field", boltzmann),
    Loss("netket-rbm-complex", "the same with complex parameters", boltzmann_of_complex),
    Loss("netket-gcnn", "energy of a group-convolutional network", symmetric),
    Loss("netket-slater", "amplitudes of a Slater determinant", slater),
    Loss("netket-arnn", "likelihood of an autoregressive network", autoregressive),
)
