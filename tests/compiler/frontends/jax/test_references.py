"""References that a JAX function makes for itself (`jax.new_ref`) are values, with the derivatives of JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rematc
import rematc.jax

rjax: Any = rematc.jax
lax: Any = jax.lax
Loss = Callable[[Any], Any]
X = jnp.linspace(0.3, 1.1, 3)


def parts(x: Any) -> Any:
    kept = jax.new_ref(jnp.zeros_like(x))
    kept[...] = jnp.sin(x)
    kept[0] += 2 * x[0]
    return (kept[...] ** 2).sum()


def frozen(x: Any) -> Any:
    kept = jax.new_ref(x)
    kept[1] = x[0] * x[2]
    return (jax.ref.freeze(kept) ** 2).sum()


def added_up_by_a_scan(x: Any) -> Any:
    total = jax.new_ref(jnp.zeros(()))

    def step(carry: Any, y: Any) -> tuple[Any, None]:
        total[...] += jnp.sin(y) * carry
        return carry * 1.1, None

    lax.scan(step, 1.0, x)
    return total[...]


def filled_by_a_loop(x: Any) -> Any:
    buffer = jax.new_ref(jnp.zeros(3))

    def step(i: Any, carry: Any) -> Any:
        buffer[i] = carry
        return carry * x[i]

    last = lax.fori_loop(0, 3, step, 1.0)
    return buffer[...].sum() + last


def made_in_each_step(x: Any) -> Any:
    def step(carry: Any, y: Any) -> tuple[Any, Any]:
        own = jax.new_ref(carry)
        own[...] *= y
        return own[...], own[...]

    last, all = lax.scan(step, 1.0, x)
    return last + all.sum()


def written_in_branches(x: Any) -> Any:
    kept = jax.new_ref(x)

    def twice() -> None:
        kept[...] = kept[...] * 2

    def thrice() -> None:
        kept[...] = kept[...] * 3

    lax.cond(x[0] > 0, twice, thrice)
    return (kept[...] ** 2).sum()


@jax.jit
def add_square(total: Any, x: Any) -> None:
    total[...] += x**2


def passed_to_a_function(x: Any) -> Any:
    total = jax.new_ref(x)
    add_square(total, x)
    add_square(total, 2 * x)
    return total[...].sum()


def made_under_a_checkpoint(x: Any) -> Any:
    @jax.checkpoint
    def layer(y: Any) -> Any:
        own = jax.new_ref(y)
        own[1] = jnp.sin(own[0])
        return own[...]

    return layer(layer(x)).sum()


def batched(x: Any) -> Any:
    def layer(y: Any) -> Any:
        own = jax.new_ref(y)
        own[...] = jnp.sin(y) * own[...]
        return own[...]

    return jax.vmap(layer)(x).sum()


def a_key(x: Any) -> Any:
    key = jax.new_ref(jax.random.key(0))
    key[...] = jax.random.split(key[...])[0]
    return (x * jax.random.normal(key[...], (3,))).sum()


@jax.custom_vjp
def square_with_a_rule(x: Any) -> Any:
    own = jax.new_ref(x)
    own[...] *= x
    return own[...]


def _forward(x: Any) -> tuple[Any, Any]:
    return square_with_a_rule(x), x


def _backward(x: Any, ct: Any) -> tuple[Any]:
    own = jax.new_ref(ct)
    own[...] *= 20 * x
    return (own[...],)


square_with_a_rule.defvjp(_forward, _backward)


def called_with_a_rule(x: Any) -> Any:
    kept = jax.new_ref(x)
    kept[0] = x[1]
    return square_with_a_rule(kept[...]).sum()


LOSSES: list[Loss] = [
    parts,
    frozen,
    added_up_by_a_scan,
    filled_by_a_loop,
    made_in_each_step,
    written_in_branches,
    passed_to_a_function,
    made_under_a_checkpoint,
    batched,
    a_key,
    called_with_a_rule,
]


def checkpointed(loss: Loss) -> Loss:
    found: Loss = jax.value_and_grad(rjax.checkpoint(loss))
    return found


#: Ways to the value and gradient of a loss.
WAYS: dict[str, Callable[[Loss], Loss]] = {
    "value_and_grad": rjax.value_and_grad,
    "policy": lambda loss: jax.jit(rjax.value_and_grad(loss, policy="dots")),
    "from_jax": lambda loss: rematc.value_and_grad(rematc.from_jax(loss)),
    "checkpoint": checkpointed,
}
#: The ways that share most are tried with few losses.
PAIRS = [
    *[(loss, way) for loss in LOSSES for way in ("value_and_grad", "checkpoint")],
    *[(loss, way) for loss in (filled_by_a_loop, called_with_a_rule) for way in ("policy", "from_jax")],
]


@pytest.mark.parametrize(("loss", "way"), PAIRS, ids=[f"{loss.__name__}-{way}" for loss, way in PAIRS])
def test_value_and_gradient_are_those_of_jax(loss: Loss, way: str) -> None:
    expected = jax.value_and_grad(loss)(X)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), WAYS[way](loss)(X), expected)


def test_vjp_and_derivatives_of_the_gradient() -> None:
    value, backward = rjax.vjp(parts, X, policy="nothing")
    np.testing.assert_allclose(value, parts(X), rtol=1e-6)
    np.testing.assert_allclose(backward(jnp.ones(()))[0], jax.grad(parts)(X), rtol=1e-6)
    second = jax.jacrev(rjax.grad(added_up_by_a_scan))(X)
    np.testing.assert_allclose(second, np.diag(-jnp.sin(X) * 1.1 ** jnp.arange(3)), rtol=1e-5, atol=1e-6)


OUTSIDE: Any = jax.new_ref(jnp.zeros(3))


def writes_one_from_outside(x: Any) -> Any:
    OUTSIDE[...] = x
    return (x**2).sum()


@pytest.mark.parametrize("way", ["value_and_grad", "from_jax"])
def test_a_reference_from_outside_is_an_error_at_the_line_that_uses_it(way: str) -> None:
    with pytest.raises(rematc.CompileError, match=r"'swap' .*a reference from outside; pass an array") as caught:
        WAYS[way](writes_one_from_outside)(X)
    assert caught.value.loc is not None
    line = writes_one_from_outside.__code__.co_firstlineno + 1
    assert (caught.value.loc.file, caught.value.loc.line) == (__file__, line)


def test_a_reference_as_an_argument_is_an_error() -> None:
    def loss(x: Any, given: Any) -> Any:
        given[...] = x
        return x.sum()

    with pytest.raises(rematc.CompileError, match=r"'swap' .*a reference from outside"):
        rjax.value_and_grad(loss)(X, jax.new_ref(jnp.zeros(3)))
    with pytest.raises(rematc.CompileError, match="is no argument of a rematc function"):
        rematc.value_and_grad(rematc.from_jax(loss))(X, jax.new_ref(jnp.zeros(3)))


@pytest.mark.parametrize("way", WAYS)
def test_a_reference_that_is_returned_is_an_error_that_names_the_function(way: str) -> None:
    def leaking(x: Any) -> Any:
        return jax.new_ref(x)

    with pytest.raises(ValueError, match=rf"leaking at {__file__}:\d+ .* returned a mutable array reference"):
        WAYS[way](leaking)(X)


def test_an_error_inside_of_a_loop_that_uses_one_has_its_line() -> None:
    def loss(x: Any) -> Any:
        total = jax.new_ref(jnp.zeros(()))

        def step(carry: Any, y: Any) -> tuple[Any, None]:
            total[...] += y
            OUTSIDE[...] += 1.0
            return carry, None

        lax.scan(step, 1.0, x)
        return total[...]

    with pytest.raises(rematc.CompileError, match="a reference from outside") as caught:
        rjax.grad(loss)(X)
    assert caught.value.loc is not None
    assert caught.value.loc.line == loss.__code__.co_firstlineno + 5


def test_a_rule_whose_function_makes_references_has_only_the_derivatives_asked_for() -> None:
    @jax.custom_jvp
    def cube(x: Any) -> Any:
        own = jax.new_ref(x)
        own[...] *= x * x
        return own[...]

    cube.defjvp(lambda primals, tangents: (cube(*primals), 3 * primals[0] ** 2 * tangents[0]))
    value, gradient = rjax.value_and_grad(lambda x: cube(x).sum())(X)
    np.testing.assert_allclose(value, (X**3).sum(), rtol=1e-6)
    np.testing.assert_allclose(gradient, 3 * X**2, rtol=1e-6)
