"""`custom_linear_solve` of JAX: derivatives are those of the solution, however it is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import rematc
import rematc.jax
from tests.support.jax_programs import assert_like_jax

# Results are trees, which tests know and types do not.
from_jax: Any = rematc.from_jax
checkpoint: Any = rematc.jax.checkpoint

A = jnp.asarray([[2.0, 0.3, 0.1], [0.2, 3.0, 0.5], [0.0, 0.4, 4.0]], jnp.float32)
B = jnp.asarray([1.0, -2.0, 0.5], jnp.float32)


def iterated(matvec: Callable[[Any], Any], b: Any) -> Any:
    """A loop that has no derivative backwards."""
    return lax.while_loop(
        lambda c: c[0] < 60, lambda c: (c[0] + 1, c[1] + 0.2 * (b - matvec(c[1]))), (0, jnp.zeros_like(b))
    )[1]


def solution(a: Any, b: Any) -> Any:
    return lax.custom_linear_solve(lambda v: a @ v, b, iterated, transpose_solve=iterated)


def test_values_gradients_and_batches_are_those_of_jax() -> None:
    assert_like_jax(lambda b, a: solution(a, b), B, A)


def test_solutions_of_a_batch_of_jax_are_too() -> None:
    assert_like_jax(lambda b: jax.vmap(lambda s: solution(A * s, b))(jnp.asarray([1.0, 1.5])), B, batched=False)


def test_second_derivatives_are_those_of_jax() -> None:
    def slope(api: Any, wrap: Any) -> Any:
        return api.grad(api.grad(wrap(lambda s: jnp.sin(solution(A * s, B)).sum())))(jnp.float32(1.2))

    np.testing.assert_allclose(slope(rematc, from_jax), slope(jax, lambda f: f), rtol=1e-4)


#: Each reads a square matrix and gives a number. In the solutions stands the factorization without its derivative, so
#: that differentiating how they are found gives something else.
SOLVED: dict[str, Callable[[Any], Any]] = {
    "inverses": lambda a: jnp.linalg.inv(jnp.stack([a, 2 * a]))[:, 0].sum(),
    "of_a_batch": lambda a: (jax.vmap(jnp.linalg.solve)(jnp.stack([a, 2 * a]), jnp.stack([B, B])) ** 2).sum(),
    "of_a_positive_matrix": lambda a: (jax.scipy.linalg.solve(a, B, assume_a="pos") ** 2).sum(),
    "by_a_cholesky_factor": lambda a: (jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(a), B) ** 2).sum(),
    "of_the_user's": lambda a: (solution(a, B) ** 2).sum(),
    "in_loops_and_branches": lambda a: lax.scan(
        lambda carry, _: (lax.cond(carry[0] > -9, jnp.linalg.solve, lambda a, b: b, a, carry), None), B, None, 2
    )[0].sum(),
}


@pytest.mark.parametrize("solved", SOLVED.values(), ids=SOLVED)
def test_second_derivatives_through_a_checkpoint_are_those_of_jax(solved: Callable[[Any], Any]) -> None:
    direction = jnp.asarray([[0.3, 0.2, 0.1], [-0.4, 0.5, 0.0], [0.6, 0.0, -0.7]], jnp.float32)

    def second(function: Callable[[Any], Any], order: str) -> Any:
        if order == "backwards":
            return jax.grad(lambda a: (jax.grad(function)(a) * direction).sum())
        return lambda a: jax.jvp(lambda a: jax.jvp(function, (a,), (direction,))[1], (a,), (direction.T,))[1]

    @jax.jit
    def both(a: Any) -> Any:
        return [
            [second(one, order)(a) for one in (solved, checkpoint(solved, policy=policy))]
            for order, policy in (("backwards", None), ("forwards", "everything"))
        ]

    for expected, found in both(A):
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=1e-5)


def test_gradients_of_gradients_of_solutions_in_a_loop_are_those_of_jax() -> None:
    def function(s: Any) -> Any:
        return lax.scan(lambda x, a: (jnp.linalg.solve(a * s, x), None), B, jnp.stack([A, A.T]))[0].sum()

    def slopes(outer: Any, inner: Any) -> Any:
        return jax.jit(outer(inner(function)))(jnp.float32(1.2))

    ours = rematc.jax.grad
    expected = slopes(jax.grad, jax.grad)
    np.testing.assert_allclose([slopes(ours, ours), slopes(jax.grad, ours)], [expected] * 2, rtol=1e-4)
