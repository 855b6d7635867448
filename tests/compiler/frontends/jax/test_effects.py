"""Prints and callbacks of JAX functions happen as often as JAX's do."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback

import rematc
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


def test_an_io_callback_with_results_is_an_error_with_advice() -> None:
    function: Any = from_jax(lambda x: io_callback(lambda v: v, x, x))
    with pytest.raises(CompileError, match=r"use jax\.pure_callback for what it computes"):
        rematc.trace(function, X)
