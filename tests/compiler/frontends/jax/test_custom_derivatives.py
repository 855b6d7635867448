"""Derivative rules that JAX holds: ours are those rules, traced by JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.custom_derivatives import SymbolicZero

import rematc
from rematc.ir.errors import CompileError
from tests.support.jax_programs import assert_like_jax

# Results are trees, which tests know and types do not.
from_jax: Any = rematc.from_jax

X = jnp.asarray([0.5, -1.2, 2.0], jnp.float32)
Function = Callable[..., Any]


def of_jvp() -> Function:
    """x * y, whose derivative is said to be 5 y dx."""
    function = jax.custom_jvp(lambda x, y: x * y)
    function.defjvps(lambda t, out, x, y: 5 * t * y, None)
    return function


def of_vjp(**options: Any) -> Function:
    """sin(x) y, whose cotangents are said to be 3 cos(x) y ct, and nothing."""
    function = jax.custom_vjp(lambda x, y: jnp.sin(x) * y)
    function.defvjp(
        lambda x, y: (jnp.sin(x) * y, (x, y)), lambda kept, ct: (3 * ct * jnp.cos(kept[0]) * kept[1], None), **options
    )
    return function


def with_integers() -> Function:
    function = jax.custom_vjp(lambda x, i: (x * i, i))
    function.defvjp(lambda x, i: ((x * i, i), i), lambda i, cts: (2 * cts[0] * i, None))
    return function


def with_static() -> Function:
    function = jax.custom_vjp(lambda power, x: x**power, nondiff_argnums=(0,))
    function.defvjp(lambda power, x: (x**power, x), lambda power, x, ct: (7 * power * ct * x,))
    return function


def with_zeros() -> Function:
    """A rule that is told which tangents are zero: that of y must be."""
    function = jax.custom_jvp(lambda x, y: x * y)

    def rule(primals: Any, tangents: Any) -> tuple[Any, Any]:
        (x, y), (moved, still) = primals, tangents
        assert isinstance(still, SymbolicZero)
        return function(x, y), 4 * moved * y

    function.defjvp(rule, symbolic_zeros=True)
    return function


def with_flags() -> Function:
    """A backward rule that branches on a Python value which the forward rule kept."""
    function = jax.custom_vjp(lambda x: x * 2)
    function.defvjp(lambda x: (x * 2, (x, True)), lambda kept, ct: (ct * kept[0] if kept[1] else ct,))
    return function


def chained(x: Any) -> Any:
    given: Any = jax.custom_gradient
    square = given(lambda x: (x**2, lambda ct: (ct * 2 * x * 7,)))
    return square(square(x))


PROGRAMS: dict[str, Function] = {
    "jvp": lambda x: of_jvp()(x, x),
    "jvp in a scan": lambda x: lax.scan(lambda c, a: (of_jvp()(c, a), jax.nn.relu(c)), 1.0, x),
    "jvp in a checkpoint": jax.checkpoint(lambda x: jnp.sin(of_jvp()(x, jnp.cos(x)))),
    "jvp of zeros": lambda x: with_zeros()(x, jnp.arange(3.0)),
    "library": lambda x: jax.nn.silu(jax.nn.relu6(x)) + jax.nn.softplus(x) + jax.nn.logsumexp(x),
    "vjp": lambda x: of_vjp()(x, x + 1),
    "vjp in a scan": lambda x: lax.scan(lambda c, a: (of_vjp()(c, a), c), 1.0, x),
    "vjp in a checkpoint": jax.checkpoint(lambda x: of_vjp()(jnp.exp(x), x)),
    "vjp in branches": lambda x: lax.cond(x[0] > 0, lambda x: of_vjp()(x, x), lambda x: x, x),
    "vjp of a batch": lambda x: jax.vmap(of_vjp(), (0, None))(x, x[1]),
    "vjp with integers": lambda x: with_integers()(x, jnp.arange(3)),
    "vjp with flags": with_flags(),
    "vjp of a static argument": lambda x: with_static()(3, x),
    "vjp without unused residuals": lambda x: of_vjp(optimize_remat=True)(x, x),
    "gradient in the function": chained,
    "root": lambda x: lax.custom_root(
        lambda v: v * v - jnp.abs(x), jnp.ones(3), lambda f, v: jnp.sqrt(jnp.abs(x)), lambda g, y: y / g(jnp.ones(3))
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_gradients_and_batches_are_those_of_jax(name: str) -> None:
    assert_like_jax(PROGRAMS[name], X)


@pytest.mark.parametrize("make", [of_jvp, of_vjp])
def test_second_derivatives_use_the_rules_too(make: Callable[[], Function]) -> None:
    def slope(api: Any, wrap: Function) -> Any:
        function = wrap(lambda x: make()(jnp.sin(x), jnp.float32(1.5)))
        return api.grad(api.grad(function))(jnp.float32(0.4))

    np.testing.assert_allclose(slope(rematc, from_jax), slope(jax, lambda f: f), rtol=1e-5)


def test_a_backward_rule_has_no_derivative_forwards() -> None:
    with pytest.raises(CompileError, match="custom_vjp, which gives derivatives backwards alone"):
        rematc.jvp(from_jax(of_vjp()), (X, X), (X, X))


def test_a_rule_that_closes_over_a_traced_value_is_an_error_that_says_so() -> None:
    def function(x: Any) -> Any:
        scale = jnp.exp(x)
        inner = jax.custom_jvp(lambda x: x * 2)
        inner.defjvps(lambda t, out, x: t * scale)
        return inner(x).sum()

    with pytest.raises(CompileError, match="closes over a value that is traced"):
        rematc.grad(from_jax(function))(X)


def refuses(message: str) -> Function:
    function = jax.custom_jvp(lambda x: x * 2)

    @function.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        raise RuntimeError(message)

    return function


def test_a_rule_that_raises_is_an_error_where_it_is_used() -> None:
    function: Any = from_jax(lambda x, y: (refuses("not that way")(x) * y).sum())
    gradient: Any = rematc.grad(function, 1)(X, X)
    np.testing.assert_allclose(gradient, 2 * X)  # nothing differentiates it
    with pytest.raises(CompileError, match="cannot be traced: RuntimeError: not that way") as caught:
        rematc.grad(function)(X, X)
    assert caught.value.loc is not None
    assert caught.value.loc.file == __file__


def stopped(x: Any) -> Any:
    return (lax.stop_gradient(refuses("not asked for")(x)) * x).sum()


def stopped_by_the_caller(x: Any) -> Any:
    return (lax.stop_gradient(jax.jit(refuses("not asked for"))(x)) * x).sum()


def stopped_in_a_call(x: Any) -> Any:
    return (jax.jit(lambda y: jnp.sin(lax.stop_gradient(y)))(refuses("not asked for")(x)) * x).sum()


def stopped_of_two(x: Any) -> Any:
    def both(x: Any) -> Any:
        return refuses("not asked for")(x), x * x

    still, moving = jax.jit(both)(x)
    return (lax.stop_gradient(still) * moving).sum()


def rounded(x: Any) -> Any:
    return (refuses("not asked for")(x).astype(jnp.int32) * x).sum()


STOPPED = [stopped, stopped_by_the_caller, stopped_in_a_call, stopped_of_two, rounded]


@pytest.mark.parametrize("function", STOPPED, ids=lambda one: one.__name__)
def test_a_rule_is_not_traced_where_no_derivative_goes_through_its_function(function: Function) -> None:
    moved = x = jnp.asarray([0.5, -1.25, 2.0])

    def allowed(x: Any) -> Any:  # JAX asks the rule for its tangents before it drops them
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(globals(), "refuses", lambda message: lambda x: x * 2)
            return function(x)

    gradient: Any = rematc.grad(from_jax(function))(x)
    np.testing.assert_allclose(gradient, jax.grad(allowed)(x), rtol=1e-6)
    ours: Any = rematc.jvp(from_jax(function), (x,), (moved,))
    for got, expected in zip(ours, jax.jvp(allowed, (x,), (moved,)), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6)


def read_through_a_reference(x: Any) -> Any:
    kept = jax.new_ref(jnp.zeros(3))
    kept[...] = of_jvp()(x, X)
    return kept[...].sum()


def stepped(x: Any) -> Any:
    return lax.fori_loop(0, 3, lambda _, y: of_jvp()(y, lax.stop_gradient(y)), x).sum()


def through_a_loop(x: Any) -> Any:
    return lax.fori_loop(0, 3, lambda _, y: jnp.sin(y), of_jvp()(x, X)).sum()


def through_a_reference_of_a_call(x: Any) -> Any:
    @jax.jit
    def kept(y: Any) -> Any:
        reference = jax.new_ref(jnp.zeros(3))
        reference[...] = y * y
        return reference[...]

    return kept(of_jvp()(x, X)).sum()


def stopped_in_part(x: Any) -> Any:
    y = of_jvp()(x, X)
    return (lax.stop_gradient(y) * jax.jit(lambda y: (lax.stop_gradient(y), y))(y)[1]).sum()


OPEN = [read_through_a_reference, stepped, through_a_loop, through_a_reference_of_a_call, stopped_in_part]


@pytest.mark.parametrize("function", OPEN, ids=lambda one: one.__name__)
def test_a_rule_is_used_where_one_way_to_the_results_is_open(function: Function) -> None:
    gradient: Any = rematc.grad(from_jax(function))(X)
    np.testing.assert_allclose(gradient, jax.grad(function)(X), rtol=1e-5)


def divided() -> Function:
    """b / a by way of a reciprocal that the rule takes for constant: a tangent of it is refused."""
    divide = jax.custom_jvp(lambda a, inverse, b: inverse * b)

    def rule(primals: Any, tangents: Any) -> Any:
        (a, inverse, b), (da, d_inverse, db) = primals, tangents
        assert type(d_inverse) is SymbolicZero
        out = divide(a, inverse, b)
        moved = [0.0 if type(one) is SymbolicZero else one for one in (db, da)]
        return out, divide(a, inverse, moved[0] - moved[1] * out)

    divide.defjvp(rule, symbolic_zeros=True)
    return lambda x: jnp.sum(divide(x * x, lax.stop_gradient(1 / (x * x)), jnp.sin(x)) ** 2)


@pytest.mark.parametrize("again", [jax.grad, jax.jacfwd, rematc.jax.grad])
def test_what_no_tangent_comes_to_has_none_in_derivatives_of_the_rule(again: Any) -> None:
    function, x = divided(), jnp.float32(0.7)
    expected = jax.grad(jax.grad(function))(x)
    np.testing.assert_allclose(again(rematc.jax.grad(function))(x), expected, rtol=1e-5)
    np.testing.assert_allclose(again(jax.grad(rematc.jax.checkpoint(function)))(x), expected, rtol=1e-5)
    ours: Any = rematc.grad(rematc.grad(from_jax(function)))
    np.testing.assert_allclose(ours(x), expected, rtol=1e-5)
