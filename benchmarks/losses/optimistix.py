"""Solvers of optimistix inside of a loss: least squares, roots, fixed points and minima, differentiated implicitly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optimistix as optx

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)


def least_squares() -> Built:
    t = jnp.linspace(0.0, 3.0, 64)
    weights = {"data": jnp.exp(-0.7 * t) * 2.0 + 0.05 * jax.random.normal(KEY, t.shape), "ridge": jnp.asarray(0.1)}

    def residuals(fitted: Any, weights: Any) -> Any:
        amplitude, rate = fitted
        return amplitude * jnp.exp(-rate * t) - weights["data"], weights["ridge"] * amplitude

    def loss(weights: Any) -> Any:
        solver = optx.LevenbergMarquardt(rtol=1e-6, atol=1e-6)
        fitted = optx.least_squares(residuals, solver, (jnp.asarray(1.0), jnp.asarray(1.0)), args=weights).value
        return (fitted[0] - 1.0) ** 2 + fitted[1] ** 2

    return loss, (weights,)


def root() -> Built:
    matrix = 0.1 * jax.random.normal(KEY, (24, 24))

    def loss(matrix: Any, bias: Any) -> Any:
        def equations(y: Any, args: Any) -> Any:
            matrix, bias = args
            return y - jnp.tanh(matrix @ y + bias)

        found = optx.root_find(equations, optx.Newton(rtol=1e-6, atol=1e-6), jnp.zeros(24), args=(matrix, bias))
        return (found.value**2).sum()

    return loss, (matrix, jnp.linspace(-1.0, 1.0, 24))


def fixed_point() -> Built:
    matrix = 0.1 * jax.random.normal(KEY, (32, 32))

    def loss(matrix: Any, bias: Any) -> Any:
        solver = optx.FixedPointIteration(rtol=1e-6, atol=1e-6)
        found = optx.fixed_point(lambda y, args: jnp.sin(args[0] @ y + args[1]), solver, bias, args=(matrix, bias))
        return (found.value**2).sum()

    return loss, (matrix, jnp.linspace(-1.0, 1.0, 32))


def unrolled() -> Built:
    def loss(scale: Any) -> Any:
        def rosenbrock(y: Any, scale: Any) -> Any:
            return ((1.0 - y[:-1]) ** 2 + scale * (y[1:] - y[:-1] ** 2) ** 2).sum()

        found = optx.minimise(
            rosenbrock,
            optx.BFGS(rtol=1e-4, atol=1e-4),
            jnp.zeros(6),
            args=scale,
            max_steps=24,
            throw=False,
            adjoint=optx.RecursiveCheckpointAdjoint(),
        )
        return (found.value**2).sum()

    return loss, (jnp.asarray(3.0),)


LOSSES = (
    Loss("optimistix-levenberg", "Levenberg-Marquardt, implicit derivative", least_squares),
    Loss("optimistix-root", "Newton's root, implicit derivative", root),
    Loss("optimistix-fixed-point", "fixed point, implicit derivative", fixed_point),
    Loss("optimistix-unrolled", "BFGS through checkpointed loops", unrolled),
)
