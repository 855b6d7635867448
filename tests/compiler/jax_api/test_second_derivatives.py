"""Second derivatives through rematc are JAX's: what has no tangent has none, and rules are used where they stand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import rematc
import rematc.jax

rjax: Any = rematc.jax
Function = Callable[[Any], Any]
POLICIES = [None, "nothing", "everything", "dots"]

#: What a function stands in. Each gives a function of one number again.
CONTROL_FLOW: dict[str, Callable[[Function], Function]] = {
    "plain": lambda f: f,
    "scan": lambda f: lambda x: lax.scan(lambda c, _: (f(c), f(c)), x, None, length=2)[1].sum(),
    "cond": lambda f: lambda x: lax.cond(x > 0, f, lambda x: x, x),
    "switch": lambda f: lambda x: lax.switch(jnp.int32(x + 1), [lambda x: x, f], x),
    "fori": lambda f: lambda x: lax.fori_loop(0, 2, lambda _, c: f(c), x),
    "map": lambda f: lambda x: lax.map(f, jnp.stack([x, 2 * x])).sum(),
    "vmap": lambda f: lambda x: jax.vmap(f)(jnp.stack([x, 2 * x])).sum(),
    "checkpoint": lambda f: rjax.checkpoint(f, policy="dots"),
}


def by_rules(function: Function) -> Function:
    """The second derivative, forwards over backwards."""
    return jax.jit(lambda x: jax.jvp(jax.grad(function), (x,), (1.0,))[1])


# -- stop_gradient -----------------------------------------------------------------------------------------------------


def stopped(x: Any) -> Any:
    """x s + sin(s) sin(x) with s = sin(x) where it has no tangent."""
    sine = jnp.sin(x)
    fixed = lax.stop_gradient(sine)
    return x * fixed + sine * jnp.sin(fixed)


@pytest.mark.parametrize("around", CONTROL_FLOW)
def test_a_stopped_value_has_no_tangent_under_any_policy(around: str) -> None:
    function = CONTROL_FLOW[around](stopped)
    expected = by_rules(CONTROL_FLOW[around](stopped) if around != "checkpoint" else stopped)(0.5)
    found = [by_rules(rjax.checkpoint(function, policy=policy))(0.5) for policy in POLICIES]
    found.append(jax.jit(jax.grad(rjax.grad(function, policy="everything")))(0.5))
    found.append(jax.jit(rjax.grad(rjax.grad(function)))(0.5))
    np.testing.assert_allclose(found, [expected] * len(found), rtol=1e-5)


@pytest.mark.parametrize("policy", [None, "nothing", "everything"])
def test_a_stopped_value_has_no_tangent_in_numpy(policy: str | None) -> None:
    def function(x: Any) -> Any:
        return x * rematc.stop_gradient(np.sin(x))

    first = rematc.grad(function, policy=policy)
    assert rematc.grad(first)(0.5) == 0
    assert rematc.hessian(function)(0.5) == 0


# -- rules of the user's -----------------------------------------------------------------------------------------------


@jax.custom_vjp
def two_backwards(x: Any, y: Any) -> tuple[Any, Any]:
    return x * y, jnp.sin(y)


two_backwards.defvjp(
    lambda x, y: ((x * y, jnp.sin(y)), (x, y)),
    lambda kept, cts: (cts[0] * kept[1], cts[0] * kept[0] + cts[1] * jnp.cos(kept[1])),
)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_rule_that_is_for_cotangents_alone_may_be_given_zeros_as_tangents(policy: str | None) -> None:
    def function(x: Any) -> Any:
        ones = rjax.grad(jnp.sum)(x)  # constant, and yet a derivative by x
        return jnp.sum(x**3) + sum(jnp.sum(y) for y in two_backwards(ones, ones))

    found = jax.hessian(rjax.checkpoint(function, policy=policy))(jnp.arange(3.0))
    np.testing.assert_allclose(found, np.diag(6 * np.arange(3.0)), rtol=1e-6)


@jax.custom_vjp
def backwards(x: Any) -> Any:
    return jnp.sin(x)


# Not the derivative of the function: so it shows which was used.
backwards.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (1.5 * jnp.cos(x) * ct,))


def with_rule(x: Any) -> Any:
    return backwards(x) * x


@pytest.mark.parametrize("around", CONTROL_FLOW)
def test_a_backward_rule_inside_a_checkpoint_inside_of_ours(around: str) -> None:
    """JAX sees the tangents of the rule as one equation of ours, which comes in again as what it is."""
    function = CONTROL_FLOW[around](rjax.checkpoint(with_rule))
    plain = CONTROL_FLOW[around](with_rule) if around != "checkpoint" else with_rule
    first, second = jax.jit(jax.grad(plain))(0.5), jax.jit(jax.grad(jax.grad(plain)))(0.5)
    np.testing.assert_allclose(jax.jit(rjax.grad(function, policy="nothing"))(0.5), first, rtol=1e-6)
    np.testing.assert_allclose(jax.jit(jax.grad(rjax.checkpoint(function)))(0.5), first, rtol=1e-6)
    np.testing.assert_allclose(jax.jit(rjax.vjp(function, 0.5)[1])(1.0)[0], first, rtol=1e-6)
    np.testing.assert_allclose(jax.jit(rjax.grad(rjax.grad(function)))(0.5), second, rtol=1e-5)
    np.testing.assert_allclose(jax.jit(jax.grad(jax.grad(rjax.checkpoint(function))))(0.5), second, rtol=1e-5)


def test_more_derivatives_than_before_of_the_same_checkpoint() -> None:
    """The rules that its first call needed are not those of a later one."""

    def plain(x: Any) -> Any:
        return with_rule(jnp.cos(x))

    function = rjax.checkpoint(plain)
    for _ in range(3):
        function, plain = jax.grad(function), jax.grad(plain)
        np.testing.assert_allclose(jax.jit(function)(0.5), jax.jit(plain)(0.5), rtol=1e-5)


@pytest.mark.parametrize("prevent_cse", [None, False, (True, False)])
def test_a_checkpoint_in_a_backward_rule_calls_what_has_a_rule(prevent_cse: Any) -> None:
    """The rule of a rule is not imported: JAX differentiates the region, which knows it."""

    def function(checkpoint: Function) -> Function:
        @jax.custom_vjp
        def scaled(x: Any) -> Any:
            return x

        def slope(x: Any, matrix: Any) -> Any:
            return x + jnp.sin(jnp.linalg.det(matrix))

        def forward(x: Any) -> Any:
            return x, x

        def backward(x: Any, ct: Any) -> Any:
            return (ct * checkpoint(slope)(x, x + 3 * jnp.eye(3)),)

        scaled.defvjp(forward, backward)
        return lambda x: jnp.sin(scaled(x))

    ours = rjax.checkpoint(function(lambda f: rjax.checkpoint(f, prevent_cse=prevent_cse)), policy="dots")
    np.testing.assert_allclose(by_rules(ours)(0.5), by_rules(function(lambda f: f))(0.5), rtol=1e-5)


# -- primitives without a rule of ours ---------------------------------------------------------------------------------


def solved(x: Any) -> Any:
    """Solutions of a system of three bands, whose primitive comes in through JAX, with JAX's transpose of it."""
    low, middle, high = jnp.asarray([[0.0, 0.2, 0.3], [3.0, 4.0, 5.0], [0.1, 0.4, 0.0]])
    return jnp.sum(jnp.sin(lax.linalg.tridiagonal_solve(low, middle, high, jnp.tanh(x * jnp.ones((3, 1))))))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("around", CONTROL_FLOW)
def test_what_is_linear_in_tangents_is_in_regions_of_a_rule_as_well(around: str, policy: str | None) -> None:
    """Of a gradient of ours that comes in again, regions and loops are JAX's, in the rule of a derivative."""
    function = CONTROL_FLOW[around](solved)
    expected = by_rules(CONTROL_FLOW[around](solved) if around != "checkpoint" else solved)(0.5)
    found = rjax.grad(rjax.grad(function, policy=policy), policy=policy)(0.5)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
