"""Losses through jaxdf's differential operators on fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jaxdf
from jaxdf import operators

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)

DOMAIN = jaxdf.geometry.Domain((24, 24), (1.0, 1.0))


def _smooth(scale: float) -> Any:
    rows, columns = jnp.meshgrid(jnp.linspace(-1.0, 1.0, 24), jnp.linspace(-1.0, 1.0, 24))
    return jnp.exp(-scale * (rows**2 + columns**2))[..., None]


def spectral() -> Built:
    params = _smooth(4.0)

    def loss(params: Any) -> Any:
        u = jaxdf.FourierSeries(params, DOMAIN)
        laplacian = operators.sum_over_dims(operators.diag_jacobian(operators.gradient(u)))
        sine = operators.compose(u)(jnp.sin)
        return jnp.mean(jnp.abs((laplacian + sine).on_grid) ** 2)

    return loss, (params,)


def waves() -> Built:
    speed = 1.0 + 0.2 * _smooth(9.0)
    start, target = _smooth(20.0), _smooth(12.0)

    def loss(speed: Any, start: Any, target: Any) -> Any:
        squared = jaxdf.FiniteDifferences(0.05 * speed**2, DOMAIN)

        def step(fields: Any, _: Any) -> Any:
            now, before = (jaxdf.FiniteDifferences(field, DOMAIN) for field in fields)
            bent = operators.sum_over_dims(operators.diag_jacobian(operators.gradient(now)))
            after = now * 2.0 - before + bent * squared
            return (after.on_grid, now.on_grid), jnp.mean(jnp.square(after.on_grid - target))

        return jnp.mean(jax.lax.scan(step, (start, start), None, length=12)[1])

    return loss, (speed, start, target)


LOSSES = (
    Loss("jaxdf-spectral", "nonlinear operator on a Fourier series, complex numbers", spectral),
    Loss("jaxdf-waves", "wave equation by finite differences, speed of sound", waves),
)
