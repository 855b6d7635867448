"""Local energies of quantum states with folx's forward Laplacian."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import folx
import jax
import jax.numpy as jnp

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]


def _parameters(sizes: tuple[int, ...]) -> list[tuple[Any, Any]]:
    keys = jax.random.split(jax.random.key(0), len(sizes) - 1)
    return [
        (jax.random.normal(key, (m, n)) / m**0.5, jnp.zeros(n))
        for key, m, n in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


def _energy(log_psi: Callable[..., Any], sparsity: int) -> Callable[..., Any]:
    def local(parameters: Any, x: Any) -> Any:
        found = folx.forward_laplacian(lambda x: log_psi(parameters, x), sparsity_threshold=sparsity)(x)
        slope = found.jacobian.dense_array
        kinetic = -0.5 * (found.laplacian + jnp.sum(slope**2))
        distances = jnp.linalg.norm(x.reshape(-1, 3), axis=-1)
        return kinetic - jnp.sum(2.0 / jnp.sqrt(distances**2 + 0.1))

    return lambda parameters, walkers: jnp.mean(jax.vmap(local, (None, 0))(parameters, walkers))


def perceptron() -> Built:
    def log_psi(parameters: Any, x: Any) -> Any:
        h = x
        for w, b in parameters[:-1]:
            h = jnp.tanh(h @ w + b)
        w, b = parameters[-1]
        return (h @ w + b).sum()

    walkers = jax.random.normal(jax.random.key(1), (32, 12))
    return _energy(log_psi, 0), (_parameters((12, 32, 32, 1)), walkers)


def determinant() -> Built:
    def log_psi(parameters: Any, x: Any) -> Any:
        electrons = x.reshape(4, 3)
        h = jnp.concatenate([electrons, jnp.linalg.norm(electrons, axis=-1, keepdims=True)], axis=-1)
        for w, b in parameters[:-1]:
            mean = jnp.broadcast_to(h.mean(0), h.shape)
            h = jax.nn.silu(jnp.concatenate([h, mean], axis=-1) @ w + b)
        w, b = parameters[-1]
        orbitals = (h @ w + b) * jnp.exp(-jnp.linalg.norm(electrons, axis=-1))[:, None]
        return jnp.linalg.slogdet(orbitals + jnp.eye(4))[1]

    keys = jax.random.split(jax.random.key(0), 3)
    sizes = ((8, 16), (32, 16), (16, 4))
    parameters = [
        (0.4 * jax.random.normal(key, size), jnp.zeros(size[1])) for key, size in zip(keys, sizes, strict=True)
    ]
    walkers = jax.random.normal(jax.random.key(1), (16, 12))
    return _energy(log_psi, 6), (parameters, walkers)


LOSSES = (
    Loss("folx-perceptron", "local energy of a perceptron", perceptron),
    Loss("folx-determinant", "local energy of a determinant, sparse Jacobians", determinant),
)
