"""Graphs as one equation of JAX's: `rematc_graph`, under JAX's transformations."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from scipy import special

import rematc
from rematc.compiler.jax_export.exporting import jax_function, opaque_function
from rematc.ir.builder import Builder
from rematc.ir.ops.bessel import BesselJ
from rematc.ir.types import F32, TensorType

X = np.linspace(0.5, 4, 6).astype(np.float32)
ONE = np.ones(6, np.float32)


def bessel(x: Any) -> Any:
    """J of order 1, which jax.lax does not have."""
    b = Builder("bessel")
    params = [b.parameter(TensorType(F32, (6,))) for _ in range(2)]
    return jax_function(b.build(b.emit1(BesselJ(), *params)))(ONE, x)[0]


def test_ops_that_jax_lacks_have_all_derivatives() -> None:
    np.testing.assert_allclose(jax.jit(bessel)(X), special.jv(1, X), rtol=1e-5)
    np.testing.assert_allclose(jax.grad(lambda x: bessel(x).sum())(X), special.jvp(1, X), atol=1e-5)
    np.testing.assert_allclose(jax.jvp(bessel, (X,), (X,))[1], special.jvp(1, X) * X, atol=1e-5)
    slope = jax.grad(lambda x: bessel(x).sum())
    np.testing.assert_allclose(jax.grad(lambda x: slope(x).sum())(X), special.jvp(1, X, 2), atol=1e-5)


def test_ops_that_jax_lacks_are_batched() -> None:
    batch = np.stack([X, X + 1], 1)
    np.testing.assert_allclose(jax.vmap(bessel, 1, 1)(batch), special.jv(1, batch), rtol=1e-5)


def test_a_whole_graph_is_one_equation() -> None:
    def function(x: Any) -> Any:
        return np.sum(rematc.checkpoint(lambda y: np.sin(np.sin(y)))(x))

    graph = rematc.trace(function, X)
    taken = opaque_function(graph)
    jaxpr = jax.make_jaxpr(taken)(X)
    assert [eqn.primitive.name for eqn in jaxpr.jaxpr.eqns] == ["rematc_graph"]
    expected = rematc.grad(function)(X)
    np.testing.assert_allclose(jax.jit(jax.grad(lambda x: taken(x)[0]))(X), expected, rtol=1e-6)
    np.testing.assert_allclose(jax.vmap(jax.grad(lambda x: taken(x)[0]))(np.stack([X, X]))[1], expected, rtol=1e-6)
