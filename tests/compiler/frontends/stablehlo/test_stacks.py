"""Loops of JAX's, printed as StableHLO, come back as scans of slices; what they compute, JAX says."""

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
from rematc.ir.ops.scan.op import Scan
from rematc.ir.traversal import all_equations

XS = np.linspace(-1, 1, 30, dtype=np.float32).reshape(5, 6)
C = np.ones(6, np.float32)


def at(xs: Any, index: Any) -> Any:
    return lax.dynamic_index_in_dim(xs, index, keepdims=False)


def put(xs: Any, index: Any, x: Any) -> Any:
    return lax.dynamic_update_index_in_dim(xs, x, index, 0)


def scans(graph: Graph) -> list[tuple[int, int, int, bool]]:
    """Of each scan how many carries it has, how many stacks it reads and writes, and whether it runs backwards."""
    found = []
    for eqn in all_equations(graph):
        if isinstance(eqn.op, Scan):
            op = eqn.op
            read = len(op.body.params) - op.consts - op.carry
            found.append((op.carry, read, len(op.body.results) - op.carry, op.is_reversed))
    return found


def running(c: Any, x: Any) -> Any:
    return jnp.sin(c + x), c * x


def forwards(c: Any, xs: Any) -> Any:
    return lax.scan(running, c, xs)


def backwards(c: Any, xs: Any) -> Any:
    return lax.scan(running, c, xs, reverse=True)


def differentiated(c: Any, xs: Any) -> Any:
    return jax.grad(lambda c, xs: jnp.sum(forwards(c, xs)[0] ** 2) + jnp.sum(forwards(c, xs)[1]), (0, 1))(c, xs)


def nested(c: Any, xs: Any) -> Any:
    return lax.scan(lambda c, x: lax.scan(running, c, jnp.stack([x, x + 1])), c, xs)


def counted(c: Any, xs: Any) -> Any:
    """The counter is read, too."""
    return lax.fori_loop(0, 5, lambda i, state: (state[0] + i * at(xs, i), put(state[1], i, state[0])), (c, xs * 0))


def another_row(c: Any, xs: Any) -> Any:
    """Rows of others' steps are read, and of its own: nothing is a slice but what is written."""
    return lax.fori_loop(0, 5, lambda i, state: (state[0] + at(xs, i) * at(xs, (i + 1) % 5), state[1]), (c, xs))


def read_after_written(c: Any, xs: Any) -> Any:
    """A step reads what others wrote."""
    return lax.fori_loop(0, 5, lambda i, ys: put(ys, i, c + at(ys, jnp.maximum(i - 1, 0)) * at(xs, i)), xs)


def every_other(c: Any, xs: Any) -> Any:
    """The rows that no step writes are those that there were."""
    return lax.fori_loop(0, 2, lambda i, ys: put(ys, 2 * i, c), xs)


def both_ways(c: Any, xs: Any) -> Any:
    """Read from the front, written from the back."""
    return lax.fori_loop(0, 5, lambda i, s: (s[0] * at(xs, i), put(s[1], 4 - i, s[0]), put(s[2], i, s[0])), (c, xs, xs))


def kept(c: Any, xs: Any) -> Any:
    """A stack that is a result of each step, too."""
    return lax.fori_loop(0, 5, lambda i, s: (s[0] + jnp.sum(s[1]), put(s[1], i, s[0])), (c, xs))


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (forwards, [(1, 1, 1, False)]),
        (backwards, [(1, 1, 1, True)]),
        (differentiated, None),
        (nested, [(1, 1, 1, False), (1, 1, 1, False)]),
        (counted, [(2, 1, 1, False)]),
        (another_row, None),
        (read_after_written, None),
        (every_other, None),
        (both_ways, [(3, 1, 1, False)]),
        (kept, [(3, 0, 0, False)]),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
@pytest.mark.parametrize("x64", [False, True])
def test_loops_of_jax(function: Callable[..., Any], expected: Any, x64: bool) -> None:
    with jax.enable_x64(x64):
        text = jax.jit(function).lower(C, XS).as_text()
        wanted = jax.tree.leaves(jax.jit(function)(C, XS))
    graph = rematc.from_stablehlo(text)
    if expected is not None:
        assert scans(graph) == expected
    found: Any = rematc.compile(graph, C, XS)(C, XS)
    for one, other in zip(jax.tree.leaves(found), wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)


def test_a_derivative_of_a_loop_consumes_the_stacks() -> None:
    text = jax.jit(differentiated).lower(C, XS).as_text()
    found = scans(rematc.from_stablehlo(text))
    assert [is_reversed for *_, is_reversed in found] == [False, False, True, True]
    assert all(carries == 1 for carries, *_ in found)
