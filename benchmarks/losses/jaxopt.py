"""Losses through the solutions of jaxopt's solvers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jaxopt

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)


def _data() -> tuple[Any, Any]:
    x = jax.random.normal(KEY, (96, 12))
    return x, x @ jnp.linspace(-1.0, 1.0, 12) + 0.1 * jax.random.normal(jax.random.key(1), (96,))


def implicit() -> Built:
    x, y = _data()
    params = {"log_ridge": jnp.full((12,), -2.0)}

    def inner(weights: Any, params: Any, x: Any, y: Any) -> Any:
        ridge = jnp.sum(jnp.exp(params["log_ridge"]) * weights**2)
        return jnp.mean(jnp.logaddexp(0.0, -jnp.sign(y) * (x @ weights))) + ridge

    def loss(params: Any, x: Any, y: Any) -> Any:
        solver = jaxopt.GradientDescent(inner, maxiter=40, implicit_diff=True, jit=True)
        weights = solver.run(jnp.zeros(x.shape[1], x.dtype), params, x[:64], y[:64]).params
        return jnp.mean(jnp.square(x[64:] @ weights - y[64:]))

    return loss, (params, x, y)


def unrolled() -> Built:
    x, y = _data()
    params = {"log_penalty": jnp.full((), -2.0), "scale": jnp.ones(12)}

    def inner(weights: Any, data: Any) -> Any:
        x, y = data
        return jnp.mean(jnp.square(x @ weights - y))

    def loss(params: Any, x: Any, y: Any) -> Any:
        solver = jaxopt.ProximalGradient(
            inner, jaxopt.prox.prox_lasso, stepsize=0.05, maxiter=20, implicit_diff=False, unroll=True, tol=0.0
        )
        start = jnp.zeros(x.shape[1], x.dtype)
        data = x[:64] * params["scale"], y[:64]
        weights = solver.run(start, jnp.exp(params["log_penalty"]), data=data).params
        return jnp.mean(jnp.square(x[64:] * params["scale"] @ weights - y[64:]))

    return loss, (params, x, y)


LOSSES = (
    Loss("jaxopt-implicit", "ridge weights by implicit differentiation", implicit),
    Loss("jaxopt-unrolled", "lasso weight through unrolled proximal steps", unrolled),
)
