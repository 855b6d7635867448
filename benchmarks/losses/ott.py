"""Losses of ott: optimal transport."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from ott.geometry import pointcloud
from ott.problems.linear import linear_problem
from ott.solvers.linear import implicit_differentiation, sinkhorn
from ott.tools import soft_sort

from benchmarks.losses import Loss

Built = tuple[Callable[..., Any], tuple[Any, ...]]
KEY = jax.random.key(0)


def transport() -> Built:
    x = jax.random.normal(KEY, (48, 3))
    y = 1.0 + jax.random.normal(jax.random.key(1), (40, 3))

    def loss(x: Any, y: Any) -> Any:
        geometry = pointcloud.PointCloud(x, y, epsilon=0.5)
        solution = sinkhorn.Sinkhorn(max_iterations=60)(linear_problem.LinearProblem(geometry))
        return solution.reg_ot_cost

    return loss, (x, y)


def unrolled() -> Built:
    x = jax.random.normal(KEY, (32, 3))
    y = 1.0 + jax.random.normal(jax.random.key(1), (24, 3))

    def loss(x: Any, y: Any) -> Any:
        geometry = pointcloud.PointCloud(x, y, epsilon=0.5)
        solver = sinkhorn.Sinkhorn(min_iterations=30, max_iterations=30, implicit_diff=None, use_danskin=False)
        solution = solver(linear_problem.LinearProblem(geometry))
        return jnp.sum(solution.matrix * geometry.cost_matrix)

    return loss, (x, y)


def ranks() -> Built:
    """The linear system of the derivative is singular, as of all transport between measures of equal mass: potentials
    are determined up to a constant. Conjugate gradients either come within the tolerance or run into the null space and
    give NaN. At ott's default of 1e-6 in float32 the last bits of the scores decide which, to JAX too; here the null
    space is lifted, by ott's own option, and the tolerance is one that float32 can reach. The gradients are the same.
    """
    scores = jax.random.normal(KEY, (32,))
    implicit = implicit_differentiation.ImplicitDiff(solver_kwargs={"rtol": 1e-4, "atol": 1e-4, "ridge_kernel": 1e-2})

    def loss(scores: Any) -> Any:
        found = soft_sort.ranks(scores, epsilon=0.05, implicit_diff=implicit)
        return jnp.mean(jnp.square(found - jnp.arange(scores.shape[0])))

    return loss, (scores,)


LOSSES = (
    Loss("ott-sinkhorn", "transport between clouds, loop until convergence", transport),
    Loss("ott-unrolled", "transport plan through thirty iterations", unrolled),
    Loss("ott-ranks", "differentiable ranks, implicit differentiation", ranks),
)
