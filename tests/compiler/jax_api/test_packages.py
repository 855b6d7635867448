"""Modules of flax and equinox under `rematc.jax`, and their own remat with ours behind it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rematc.jax as rjax

KEY = jax.random.key(0)
X = jax.random.normal(KEY, (4, 8))


def assert_like(found: Any, expected: Any) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, expected)


def test_flax_linen(monkeypatch: pytest.MonkeyPatch) -> None:
    nn = pytest.importorskip("flax.linen")

    class Block(nn.Module):  # type: ignore[name-defined, misc]  # flax may not be there
        @nn.compact  # type: ignore[untyped-decorator]  # as above
        def __call__(self, x: Any) -> Any:
            return x + nn.Dense(8)(nn.gelu(nn.Dense(16)(nn.LayerNorm()(x))))

    class Model(nn.Module):  # type: ignore[name-defined, misc]  # as above
        block: Any = Block

        @nn.compact  # type: ignore[untyped-decorator]  # as above
        def __call__(self, x: Any) -> Any:
            for index in range(2):
                x = self.block(name=f"block{index}")(x)
            return jnp.mean(x**2)

    params = Model().init(KEY, X)
    expected = jax.grad(lambda p: Model().apply(p, X))(params)
    assert_like(rjax.grad(lambda p: Model().apply(p, X), policy="dots")(params), expected)
    monkeypatch.setattr(jax, "checkpoint", rjax.checkpoint)
    assert_like(jax.grad(lambda p: Model(block=nn.remat(Block)).apply(p, X))(params), expected)


def test_flax_nnx() -> None:
    nnx = pytest.importorskip("flax.nnx")
    model = nnx.Sequential(nnx.Linear(8, 16, rngs=nnx.Rngs(0)), nnx.relu, nnx.Linear(16, 8, rngs=nnx.Rngs(1)))
    definition, state = nnx.split(model)

    def loss(state: Any, x: Any) -> Any:
        return jnp.mean(nnx.merge(definition, state)(x) ** 2)

    expected = jax.grad(loss)(state, X)
    assert_like(rjax.grad(loss, policy="nothing")(state, X), expected)
    assert_like(jax.grad(rjax.checkpoint(loss))(state, X), expected)


def test_equinox(monkeypatch: pytest.MonkeyPatch) -> None:
    eqx = pytest.importorskip("equinox")
    model = eqx.nn.MLP(8, 8, 16, 2, key=KEY)

    def loss(model: Any, x: Any) -> Any:
        return jnp.mean(jax.vmap(model)(x) ** 2)

    expected = eqx.filter_grad(loss)(model, X)
    assert_like(eqx.filter(rjax.grad(loss, policy="nothing")(model, X), eqx.is_array), expected)
    monkeypatch.setattr(jax, "checkpoint", rjax.checkpoint)
    assert_like(eqx.filter_grad(eqx.filter_checkpoint(loss))(model, X), expected)


def test_a_whole_step_of_equinox() -> None:
    eqx = pytest.importorskip("equinox")
    layers = [eqx.nn.Linear(64, 64, key=key) for key in jax.random.split(KEY, 6)]
    params, static = eqx.partition(layers, eqx.is_inexact_array)

    def step(params: Any, x: Any) -> Any:
        def loss(params: Any) -> Any:
            y = x
            for linear in eqx.combine(params, static):
                y = y + jnp.tanh(jax.vmap(linear)(y))
            return jnp.mean(y**2)

        value, gradients = jax.value_and_grad(loss)(params)
        return eqx.apply_updates(params, jax.tree.map(lambda g: -0.1 * g, gradients)), value

    x = jax.random.normal(KEY, (1024, 64))
    planned: Any = rjax.jit(step, budget="70%")
    assert_like(planned(params, x), jax.jit(step)(params, x))
    report = planned.report(params, x).budget
    assert report.measured <= report.budget
    assert report.plan.extra_flops > 0
