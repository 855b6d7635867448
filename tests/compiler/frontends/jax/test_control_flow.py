"""Loops and branches of JAX: values, gradients and batches are JAX's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import rematc
from rematc.ir.core import Graph
from rematc.ir.ops.case.op import Case
from rematc.ir.ops.scan.op import Scan
from tests.support.jax_programs import assert_like_jax, assert_same_values

# Results are trees, which tests know and types do not.
from_jax: Any = rematc.from_jax

X = jnp.asarray([0.5, -1.2, 2.0], jnp.float32)
TABLE = np.arange(100, dtype=np.float32).reshape(4, 25) / 50

PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "scan": lambda x: lax.scan(lambda c, a: (c * jnp.sin(a) + 1, c), 1.0, x),
    "scan in reverse": lambda x: lax.scan(lambda c, a: (c * a, (c, a)), x[0], x, reverse=True),
    "scan of no step": lambda x: lax.scan(lambda c, a: (c * a, c), x[0], x[:0]),
    "unrolled scan": lambda x: lax.scan(lambda c, a: (c * a, jnp.cos(c)), 1.0, x, unroll=True),
    "scan without slices": lambda x: lax.scan(lambda c, _: (jnp.tanh(c * x), None), x, None, length=3)[0],
    "scan with a forwarded carry": lambda x: lax.scan(lambda c, a: ((c[0], c[0] * a), c[1]), (x[0], x[1]), x),
    "scan in a scan": lambda x: lax.scan(lambda c, a: (lax.scan(lambda d, b: (d * b + a, d), c, x)[0], c), 0.1, x),
    "integers beside": lambda x: lax.scan(lambda c, a: ((c[0] + 1, c[1] * a + c[0]), c[0]), (0, 1.0), x),
    "fixed loop": lambda x: lax.fori_loop(0, 3, lambda i, c: c * x + i, x),
    "branches": lambda x: lax.cond(x[0] > 0, lambda x: x * 2, jnp.sin, x),
    "branch with a constant": lambda x: lax.cond(x[0] < 0, lambda: TABLE[0, :3] * x, lambda: x),
    "branches of integers": lambda x: lax.cond(x[1] > 0, lambda: (1, x[0]), lambda: (2, x[1])),
    "branches in a scan": lambda x: lax.scan(lambda c, a: (lax.cond(a > 0, jnp.sin, lambda v: v * a, c), c), 0.3, x),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_gradients_and_batches_are_those_of_jax(name: str) -> None:
    assert_like_jax(PROGRAMS[name], X)


def test_large_constants_of_regions_reach_them() -> None:
    def step(c: Any, a: Any) -> tuple[Any, Any]:
        return lax.cond(a > 0, lambda c: c + (TABLE @ jnp.ones(25)).sum(), lambda c: c * TABLE[1].sum(), c) * a, c

    def function(x: Any) -> Any:
        return lax.scan(step, 0.5, x)[0]

    found: Any = rematc.value_and_grad(from_jax(function), policy="nothing")(X)
    for one, other in zip(found, jax.value_and_grad(function)(X), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_collectives_over_what_jax_has_batched_are_reductions() -> None:
    untyped: Any = lax

    def normalized(x: Any) -> Any:
        largest = untyped.pmax(lax.stop_gradient(jnp.abs(x)), "rows")
        return (x - untyped.pmean(x, "rows")) / largest + untyped.psum(x, "rows")

    assert_like_jax(jax.vmap(normalized, axis_name="rows"), jnp.stack([X, X * 2, 1 - X]), batched=False)


@pytest.mark.parametrize("index", [-3, 0, 1, 2, 7])
def test_a_switch_clamps_its_index(index: int) -> None:
    branches = [lambda x: x * 2, jnp.sin, lambda x: x + 1]
    assert_like_jax(lambda x, i: lax.switch(i, branches, x), X, index, batched=False, policies=["none"])


def test_a_while_loop_gives_its_values_and_derivatives_forwards() -> None:
    def loop(x: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < 4, lambda c: (c[0] + 1, jnp.sin(c[1]) * x), (0, x))[1]

    assert_same_values(loop, X)
    tangent: Any
    _, tangent = rematc.jvp(from_jax(loop), (X,), (jnp.ones(3),))
    np.testing.assert_allclose(tangent, jax.jvp(loop, (X,), (jnp.ones(3),))[1], rtol=1e-5)


def test_a_batched_while_loop_of_jax_leaves_finished_elements_alone() -> None:
    def doubled(x: Any) -> Any:
        return lax.while_loop(lambda c: (c < 10).all(), lambda c: c * 2, x)

    assert_same_values(jax.vmap(doubled), jnp.asarray([[1, 3], [5, 2], [20, 1]]))


def test_of_branches_for_platforms_the_own_one_is_imported() -> None:
    def function(x: Any) -> Any:
        return lax.platform_dependent(x, tpu=lambda x: x * 7, default=lambda x: x * 3)

    graph = rematc.trace(from_jax(function), X)
    assert not any(isinstance(eqn.op, Case) for eqn in graph.equations)
    assert_like_jax(function, X, policies=["none"])


def test_a_scan_stays_a_scan_of_the_same_form() -> None:
    graph = rematc.trace(from_jax(lambda x: lax.scan(lambda c, a: (c * a, c), 1.0, x, reverse=True, unroll=2)), X)
    (loop,) = [eqn.op for eqn in graph.equations if isinstance(eqn.op, Scan)]
    assert (loop.length, loop.carry, loop.is_reversed, loop.unroll) == (3, 1, True, 2)


def test_equations_in_loops_have_the_line_of_the_step() -> None:
    def step(c: Any, a: Any) -> tuple[Any, Any]:
        return jnp.sin(c) * a, c

    graph = rematc.trace(from_jax(lambda x: lax.scan(step, 1.0, x)), X)
    lines = {eqn.loc.line for eqn in _body(graph).equations if eqn.loc is not None}
    assert lines == {step.__code__.co_firstlineno + 1}


def _body(graph: Graph) -> Graph:
    return next(eqn.op.body for eqn in graph.equations if isinstance(eqn.op, Scan))
