"""Python's values in and out of derivatives of JAX functions: what JAX does where it is not compiling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rematc
import rematc.jax as rjax


def described(tree: Any) -> list[tuple[str, str, bool]]:
    """Of each leaf its kind, element type and weakness."""
    leaves = jax.tree.leaves(tree)
    return [(type(one).__name__, str(getattr(one, "dtype", "")), getattr(one, "weak_type", False)) for one in leaves]


# -- weak types -------------------------------------------------------------------------------------------------------

WEAK = jax.lax.full_like(jnp.asarray(2.0), 3.0)
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "square": lambda a: a * a,
    "cube of an array": lambda a: a * a * jnp.float32(3),
    "narrow": lambda a: a * jnp.bfloat16(3),
    "constant": lambda a: jnp.float32(1),
}


@pytest.mark.parametrize("which", FUNCTIONS)
def test_gradients_are_as_weakly_typed_as_in_jax(which: str) -> None:
    function = FUNCTIONS[which]
    for argument in (2.0, WEAK, jnp.float32(2), np.float32(2)):
        found = rjax.value_and_grad(function)(argument)
        assert described(found) == described(jax.value_and_grad(function)(argument))
        (value, backward), (expected, backward_of_jax) = rjax.vjp(function, argument), jax.vjp(function, argument)
        ct = jnp.ones_like(expected)
        assert described((value, backward(ct))) == described((expected, backward_of_jax(ct)))


def test_a_narrow_product_downstream_stays_narrow() -> None:
    assert (rjax.grad(lambda a: a * a)(2.0) * jnp.bfloat16(2)).dtype == jnp.bfloat16
    assert described(rjax.grad(rjax.grad(lambda a: a**3))(2.0)) == described(jax.grad(jax.grad(lambda a: a**3))(2.0))


# -- auxiliary data ---------------------------------------------------------------------------------------------------


class Record:
    """No array, and no pytree."""


RECORD, NUMBERS = Record(), np.ones(2)
AUX: tuple[Any, ...] = (
    *(1, True, 2.5, 1j, "text", None, RECORD, jnp.ones, range(3), NUMBERS, np.float64(2), jnp.ones(2)),
    [1, "a", {"k": 2.0, "f": len}],
)


@pytest.mark.parametrize("aux", AUX, ids=lambda one: type(one).__name__)
def test_what_aux_holds_beside_arrays_comes_back_as_it_is(aux: Any) -> None:
    def function(x: Any) -> Any:
        return x * x, (aux, x + 1)

    found = (
        rjax.value_and_grad(function, has_aux=True)(2.0)[0][1],
        rjax.grad(function, has_aux=True)(2.0)[1],
        rjax.vjp(function, 2.0, has_aux=True)[2],
    )
    for kept, shifted in found:
        assert jax.tree.all(jax.tree.map(lambda one, other: one is other, kept, aux))
        assert described(shifted) == described(jax.grad(function, has_aux=True)(2.0)[1][1])
    again = rjax.grad(function, has_aux=True)
    assert again(2.0)[1][1] == 3.0 and again(5.0)[1][1] == 6.0, "what depends on the arguments is computed"


def test_aux_in_a_compiled_function_of_jax() -> None:
    def step(module: Any) -> Any:
        return jax.jit(lambda x: module.grad(lambda x: (x * x, (1, x, "a")), has_aux=True)(x)[1][:2])(2.0)

    assert described(step(rjax)) == described(step(jax))


# -- numbers that are read --------------------------------------------------------------------------------------------


def layers(x: Any, n: int, config: dict[str, Any]) -> Any:
    for _ in range(n):
        x = jnp.sin(x)
    if config["rate"] > 0.5:
        x = x * config["rate"]
    return jnp.sum(x) if config["train"] else -jnp.sum(x)


def test_numbers_that_a_function_reads_are_read() -> None:
    function, count = rjax.value_and_grad(layers), 0
    for n, rate, train in ((3, 0.7, True), (3, 0.1, False), (1, 0.7, True)):
        arguments = jnp.ones(3), n, {"rate": rate, "train": train}
        expected = jax.value_and_grad(layers)(*arguments)
        for one in (function, jax.jit(lambda x, rest=arguments[1:]: function(x, *rest))):
            found = one(*arguments) if one is function else one(arguments[0])
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), found, expected)
        count += 1
    assert count == 3


@pytest.mark.parametrize(
    "function",
    [
        lambda x, n: jnp.sum(jnp.stack([x] * n)),
        lambda x, n: jnp.sum(jnp.zeros(n) + x),
        lambda x, n: x * np.ones(n).sum(),
        lambda x, n: sum([x, x, x, x][:n]),
    ],
)
def test_however_they_are_read(function: Any) -> None:
    np.testing.assert_allclose(rjax.grad(function)(2.0, 3), jax.grad(function)(2.0, 3))
    found, expected = rjax.vjp(function, 2.0, 3), jax.vjp(function, 2.0, 3)
    np.testing.assert_allclose(found[0], expected[0])
    one, zero = found[1](jnp.float32(1))
    np.testing.assert_allclose(one, expected[1](jnp.float32(1))[0])
    assert zero.dtype == jax.dtypes.float0


def test_a_number_that_is_not_read_is_traced_once() -> None:
    traced = 0

    def function(x: Any, n: int, rate: float) -> Any:
        nonlocal traced
        traced += 1
        return sum([x] * n) * rate

    gradient = rjax.grad(function)
    assert [float(gradient(2.0, 3, rate)) for rate in (1.0, 2.0, 4.0)] == [3.0, 6.0, 12.0]
    assert traced == 2, "once with both numbers traced, once without n; the rate is not a part of what is compiled"
    assert float(gradient(2.0, 2, 1.0)) == 2.0


def test_flags_may_be_branched_on_everywhere() -> None:
    def function(x: Any, train: bool) -> Any:
        return jnp.sum(jnp.sin(x)) if train else jnp.sum(x)

    x = jnp.ones(3)
    for train in (True, False):
        expected = jax.grad(function)(x, train)
        assert jnp.allclose(rjax.grad(function)(x, train), expected)
        assert jnp.allclose(rjax.vjp(function, x, train)[1](jnp.float32(1))[0], expected)
        assert jnp.allclose(jax.grad(rjax.checkpoint(function))(x, train), expected)


def test_what_cannot_be_read_is_an_error_that_names_the_argument() -> None:
    def branching(params: Any, scale: Any) -> Any:
        return params["w"] * scale if scale > 0 else params["w"]

    with pytest.raises(rematc.CompileError, match=r"'branching' reads the value of its argument scale .* pass it as a"):
        rjax.grad(branching)({"w": 2.0}, jnp.float32(1))
    with pytest.raises(
        rematc.CompileError, match=r"test_python_values.py:.*argument params\['w'\].*leave it out of arg"
    ):
        rjax.grad(lambda params: params["w"] if params["w"] > 0 else 0.0)({"w": 2.0})


def test_what_a_function_of_jax_inside_reads_is_jax_s_error() -> None:
    inner = jax.jit(lambda n: 1.0 if n > 0 else 2.0)
    for module in (jax, rjax):
        with pytest.raises(jax.errors.TracerBoolConversionError):
            module.grad(lambda x, n: x * inner(n))(2.0, 3)
