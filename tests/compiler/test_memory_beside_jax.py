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
