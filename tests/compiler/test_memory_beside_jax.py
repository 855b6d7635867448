"""Without a policy XLA takes no more temporary memory for our gradient than for JAX's, where both compute the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rematc
from rematc.lowering.runtime import compile_program


def array(*shape: int, dtype: str = "float32") -> Any:
    return jnp.asarray(np.random.default_rng(0).normal(size=shape), dtype)


def multilayer(x: Any, up: Any, down: Any) -> Any:
    """In 16 bits, where each value is rounded, XLA computes less of it twice."""
    for _ in range(3):
        x = x + jax.nn.gelu(x @ up) @ down
    return jnp.sum(x.astype("float32") ** 2)


def steps(x: Any, w: Any) -> Any:
    """What a step of a loop keeps is stacked: of the gelu its operand and the tanh, and no factor of the derivative."""

    def step(carry: Any, _: None) -> tuple[Any, None]:
        return carry + 0.1 * jax.nn.gelu(carry @ w), None

    return jnp.sum(jax.lax.scan(step, x, None, length=8)[0] ** 2)


def likelihood(a: Any, y: Any) -> Any:
    """A factor and its systems are LAPACK's; XLA's own loops hold inverses of blocks."""
    factor = jnp.linalg.cholesky(a @ a.T + 64 * jnp.eye(64))
    return jnp.sum(jax.scipy.linalg.solve_triangular(factor, y, lower=True) ** 2)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "multilayer": (multilayer, tuple(array(*shape, dtype="bfloat16") for shape in ((512, 48), (48, 96), (96, 48)))),
    "likelihood": (likelihood, (array(64, 64), array(64, 32))),
    "steps": (steps, (array(32, 64), array(64, 64))),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_more_than_jax_takes(name: str) -> None:
    loss, arguments = PROGRAMS[name]
    argnums = tuple(range(len(arguments)))
    theirs = jax.jit(jax.value_and_grad(loss, argnums)).lower(*arguments).compile().memory_analysis()
    lowered = rematc.lower(rematc.value_and_grad(rematc.from_jax(loss), argnums), *arguments)
    # By the scheduler that JAX's programs are compiled with: what is compared is what is kept.
    ours = compile_program(lowered.program).memory()
    assert theirs is not None
    assert ours.temp_bytes <= 1.02 * theirs.temp_size_in_bytes


def test_the_gradient_of_pooling_numbers_no_elements() -> None:
    """XLA's own expansion holds an array of integers as large as the pictures for each of their dimensions."""

    def loss(w: Any, x: Any) -> Any:
        x = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = jax.lax.reduce_window(x, -np.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        return jnp.sum(x**2)

    arguments = array(3, 3, 3, 16), array(4, 64, 64, 3)
    theirs = jax.jit(jax.value_and_grad(loss)).lower(*arguments).compile()
    lowered = rematc.lower(rematc.value_and_grad(rematc.from_jax(loss)), *arguments)
    ours = lowered.compile()
    memory = theirs.memory_analysis()
    assert memory is not None and ours.memory().temp_bytes <= 0.6 * memory.temp_size_in_bytes
    assert 0.85 <= lowered.predicted_peak() / ours.memory().temp_bytes <= 1.15
    results: Any = ours(*arguments)
    for found, expected in zip(results, theirs(*arguments), strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-4)
