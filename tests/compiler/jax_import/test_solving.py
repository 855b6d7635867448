"""`custom_linear_solve` of JAX: derivatives are those of the solution, however it is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import rematc
from tests.support.jax_programs import assert_like_jax

# Results are trees, which tests know and types do not.
from_jax: Any = rematc.from_jax

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
