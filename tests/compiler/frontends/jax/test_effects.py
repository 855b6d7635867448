"""Prints and callbacks of JAX functions happen as often as JAX's do."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback

import rematc
import rematc.jax
from rematc.ir.errors import CompileError

# Results are trees, which tests know and types do not.
from_jax: Any = rematc.from_jax
# JAX leaves these without annotations.
jax_effects: Any = jax

X = jnp.asarray([0.5, -1.2], jnp.float32)


@pytest.mark.parametrize(
    "show",
    [
        lambda x: jax.debug.print("x {x} {} {}", 3, "text", x=x),
        lambda x: jax.debug.print("{0} {1} {0}", x, x * 2, ordered=True),
        lambda x: jax.debug.print("no place"),
    ],
    ids=["names and statics", "ordered", "nothing"],
)
def test_prints_are_those_of_jax(show: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def function(x: Any) -> Any:
        show(x)
        return (x * x).sum()

    jax_effects.block_until_ready(jax.jit(function)(X))
    jax_effects.effects_barrier()
    expected = capsys.readouterr().out
    rematc.value_and_grad(from_jax(function), policy="nothing")(X)
    assert capsys.readouterr().out == expected != ""


@pytest.mark.parametrize("call", [jax.debug.callback, lambda f, x: io_callback(f, None, x)])
def test_callbacks_without_results_are_called_once(call: Any) -> None:
    seen: list[Any] = []

    def function(x: Any) -> Any:
        call(lambda value: seen.append(np.asarray(value).tolist()), x)
        return x + 1

    rematc.jit(from_jax(function))(X)
    assert seen == [[0.5, pytest.approx(-1.2)]]


def test_pure_callbacks_compute() -> None:
    def function(x: Any) -> Any:
        kept = jax.lax.stop_gradient(x)
        return (jax.pure_callback(np.sin, jax_effects.ShapeDtypeStruct(x.shape, x.dtype), kept) * x).sum()

    found: Any = rematc.value_and_grad(from_jax(function))(X)
    np.testing.assert_allclose(found[0], (np.sin(X) * X).sum(), rtol=1e-6)
    np.testing.assert_allclose(found[1], np.sin(X), rtol=1e-6)


STRUCT = jax_effects.ShapeDtypeStruct((), jnp.float32)


def unrolled(take: Any, w: Any, x: Any) -> Any:
    for step in range(3):
        x = jnp.tanh(x @ w) * take(step)
    return jnp.sum(x**2)


def scanned(take: Any, w: Any, x: Any) -> Any:
    return jnp.sum(jax.lax.scan(lambda x, step: (jnp.tanh(x @ w) * take(step), None), x, jnp.arange(4))[0] ** 2)


@pytest.mark.parametrize("model", [unrolled, scanned])
@pytest.mark.parametrize("policy", [None, "nothing", "dots"])
def test_io_callbacks_with_results_are_called_as_often_as_in_jax(model: Any, policy: str | None) -> None:
    """In order: each gives what the one before has left."""
    seen: list[int] = []

    def give(step: Any) -> Any:
        seen.append(int(step))
        return np.float32(len(seen))

    def loss(w: Any, x: Any) -> Any:
        return model(lambda step: io_callback(give, STRUCT, step, ordered=True), w, x)

    w, x = jnp.eye(64) / 8, jnp.ones((256, 64))
    expected = jax.jit(jax.value_and_grad(loss))(w, x)
    jax_effects.effects_barrier()
    calls = list(seen)
    step: Any
    for step in (
        jax.jit(rematc.jax.value_and_grad(loss, policy=policy)),
        rematc.value_and_grad(from_jax(loss), policy=policy),
    ):
        seen.clear()
        found = step(w, x)
        jax_effects.effects_barrier()
        assert seen == calls
        for one, other in zip(jax.tree_util.tree_leaves(found), jax.tree_util.tree_leaves(expected), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4)


def test_an_io_callback_of_what_is_differentiated_is_an_error_as_in_jax() -> None:
    def loss(x: Any) -> Any:
        return jnp.sum(io_callback(np.sin, jax_effects.ShapeDtypeStruct(x.shape, x.dtype), x))

    with pytest.raises(CompileError, match="hide the operands with stop_gradient"):
        rematc.grad(from_jax(loss))(X)
    with pytest.raises(ValueError, match="JVP"):
        jax.grad(loss)(X)
