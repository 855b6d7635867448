"""Graphs as one equation of JAX's: `rematc_graph`, under JAX's transformations."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from scipy import special

import rematc
from rematc.ir.builder import Builder
from rematc.ir.ops.special import ErfcInv
from rematc.ir.types import F32, TensorType
from rematc.lowering.jax_export.exporting import jax_function, opaque_function

X = np.linspace(0.3, 1.6, 6).astype(np.float32)


def inverse(x: Any) -> Any:
    """The inverse of erfc, which jax.lax does not have."""
    b = Builder("inverse")
    x_value = b.parameter(TensorType(F32, (6,)))
    return jax_function(b.build(b.emit1(ErfcInv(), x_value)))(x)[0]


def slope(x: Any) -> Any:
    return -np.sqrt(np.pi) / 2 * np.exp(special.erfcinv(x) ** 2)


def test_ops_that_jax_lacks_have_all_derivatives() -> None:
    np.testing.assert_allclose(jax.jit(inverse)(X), special.erfcinv(X), atol=1e-5)
    np.testing.assert_allclose(jax.jit(jax.grad(lambda x: inverse(x).sum()))(X), slope(X), rtol=1e-5)
    np.testing.assert_allclose(jax.jit(lambda x, t: jax.jvp(inverse, (x,), (t,))[1])(X, X), slope(X) * X, rtol=1e-5)
    twice = jax.grad(lambda x: jax.grad(lambda y: inverse(y).sum())(x).sum())
    np.testing.assert_allclose(jax.jit(twice)(X), 2 * special.erfcinv(X) * slope(X) ** 2, atol=1e-4)


def test_ops_that_jax_lacks_are_batched() -> None:
    batch = np.stack([X, X / 2], 1)
    np.testing.assert_allclose(jax.jit(jax.vmap(inverse, 1, 1))(batch), special.erfcinv(batch), atol=1e-5)


def test_a_whole_graph_is_one_equation() -> None:
    def function(x: Any) -> Any:
        return np.sum(rematc.checkpoint(lambda y: np.sin(np.sin(y)))(x))

    graph = rematc.trace(function, X)
    taken = opaque_function(graph)
    jaxpr = jax.make_jaxpr(taken)(X)
    assert [eqn.primitive.name for eqn in jaxpr.jaxpr.eqns] == ["rematc_graph"]
    expected: Any = rematc.grad(function)(X)
    np.testing.assert_allclose(jax.jit(jax.grad(lambda x: taken(x)[0]))(X), expected, rtol=1e-6)
    np.testing.assert_allclose(jax.vmap(jax.grad(lambda x: taken(x)[0]))(np.stack([X, X]))[1], expected, rtol=1e-6)
