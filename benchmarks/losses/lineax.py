"""Losses through lineax's linear solves and optimistix's root finding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import optimistix as optx

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)


def solves() -> Built:
    params = {"matrix": jax.random.normal(KEY, (24, 12)), "diagonal": jnp.ones(12)}
    right = jax.random.normal(KEY, (24,))

    def loss(params: Any, right: Any) -> Any:
        matrix = params["matrix"]
        square = matrix.T @ matrix + jnp.diag(params["diagonal"] ** 2)
        positive = lx.MatrixLinearOperator(square, lx.positive_semidefinite_tag)
        by_cholesky = lx.linear_solve(positive, matrix.T @ right, lx.Cholesky()).value
        by_iteration = lx.linear_solve(positive, matrix.T @ right, lx.CG(rtol=1e-6, atol=1e-6)).value
        by_qr = lx.linear_solve(lx.MatrixLinearOperator(matrix), right, lx.QR()).value
        by_lu = lx.linear_solve(lx.MatrixLinearOperator(square), by_qr, lx.LU()).value
        return jnp.sum(jnp.square(by_cholesky - by_qr)) + jnp.sum(by_lu * by_iteration)

    return loss, (params, right)


def equilibrium() -> Built:
    cell = eqx.nn.GRUCell(6, 16, key=KEY)
    params, static = eqx.partition(cell, eqx.is_inexact_array)
    x = jax.random.normal(KEY, (6,))

    def loss(params: Any, x: Any) -> Any:
        def step(state: Any, args: Any) -> Any:
            params, x = args
            return 0.5 * eqx.combine(params, static)(x, state)

        solver = optx.FixedPointIteration(rtol=1e-6, atol=1e-6)
        state = optx.fixed_point(step, solver, jnp.zeros(16, x.dtype), (params, x), max_steps=200).value
        return jnp.sum(jnp.square(state - 1.0))

    return loss, (params, x)


def least_squares() -> Built:
    x = jnp.linspace(0.0, 3.0, 40)
    params = {"y": 2.0 * jnp.exp(-1.3 * x) + 0.5, "log_weights": jnp.zeros(40)}

    def loss(params: Any, x: Any) -> Any:
        def residuals(fit: Any, args: Any) -> Any:
            y, weights = args
            return weights * (fit[0] * jnp.exp(-fit[1] * x) + fit[2] - y)

        solver = optx.LevenbergMarquardt(rtol=1e-6, atol=1e-6)
        args = params["y"], jnp.exp(params["log_weights"])
        fit = optx.least_squares(residuals, solver, jnp.ones(3, x.dtype), args, max_steps=64).value
        return jnp.sum(jnp.square(fit - jnp.array([2.2, 1.0, 0.4], x.dtype)))

    return loss, (params, x)


LOSSES = (
    Loss("lineax-solves", "Cholesky, QR, LU, conjugate gradients", solves),
    Loss("optimistix-equilibrium", "fixed point of a recurrent cell, implicit differentiation", equilibrium),
    Loss("optimistix-fit", "nonlinear least squares, implicit differentiation", least_squares),
)
