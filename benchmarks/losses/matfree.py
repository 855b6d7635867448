"""Matrix-free linear algebra by matfree: log-determinants by Lanczos, with its own derivative rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from matfree import decomp, funm, stochtrace

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)
SIZE = 96


def log_determinant() -> Built:
    def kernel(scale: Any) -> Any:
        x = jnp.linspace(0.0, 4.0, SIZE)
        return jnp.exp(-jnp.abs(x[:, None] - x[None, :]) / jnp.exp(scale)) + 0.5 * jnp.eye(SIZE)

    def loss(scale: Any, key: Any) -> Any:
        matrix = kernel(scale)
        integrand = funm.monte_carlo_funm_sym_logdet(decomp.tridiag_sym(12))
        sampler = stochtrace.sampler_signs(jnp.ones(SIZE), num=8)
        return stochtrace.estimator_monte_carlo(integrand, sampler)(lambda v: matrix @ v, key)

    return loss, (jnp.asarray(0.1), KEY)


def exponential() -> Built:
    matrix = 0.3 * jax.random.normal(KEY, (SIZE, SIZE)) / SIZE**0.5

    def loss(matrix: Any, vector: Any) -> Any:
        action = funm.funm_arnoldi(funm.dense_funm_pade_exp(), decomp.hessenberg(10, reortho="full"))
        return (action(lambda v, p: p @ v, vector, matrix) ** 2).sum()

    return loss, (matrix, jnp.ones(SIZE) / SIZE**0.5)


LOSSES = (
    Loss("matfree-logdet", "stochastic log-determinant by Lanczos", log_determinant),
    Loss("matfree-exponential", "action of the exponential by Arnoldi", exponential),
)
