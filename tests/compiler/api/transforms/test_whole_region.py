"""A checkpoint that is the whole differentiated function gives the program of its policy on the whole."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rematc
import rematc.jax

WEIGHTS = [np.full((64, 64), 1e-2, np.float32)] * 8
X = np.linspace(-1, 1, 512 * 64, dtype=np.float32).reshape(512, 64)


def chain(xp: Any, weights: Any, x: Any) -> Any:
    for w in weights:
        hidden = x @ w
        x = x + hidden / (1 + xp.exp(-hidden)) * xp.tanh(hidden)
    return xp.mean(x * x)


def numpy_loss(weights: Any, x: Any) -> Any:
    return chain(np, weights, x)


def jax_loss(weights: Any, x: Any) -> Any:
    return chain(jnp, weights, x)


def text(step: Any, *args: Any) -> str:
    return str(rematc.lower(step, *args).program.text)


def temporary(step: Callable[..., Any], *args: Any) -> int:
    if hasattr(step, "lower"):
        return int(rematc.compile(step, *args).memory().temp_bytes)
    found = jax.jit(step).lower(*args).compile().memory_analysis()
    assert found is not None
    return int(found.temp_size_in_bytes)


@pytest.mark.parametrize("policy", ["nothing", "dots", "auto", None])
@pytest.mark.parametrize("frontend", ["numpy", "from_jax", "checkpoint of jax", "rematc.jax"])
def test_it_is_the_program_of_the_policy_on_the_whole(frontend: str, policy: str | None) -> None:
    wraps: dict[str, tuple[Any, Any, Any]] = {
        "numpy": (rematc.value_and_grad, numpy_loss, rematc.checkpoint),
        "from_jax": (rematc.value_and_grad, rematc.from_jax(jax_loss), rematc.checkpoint),
        "checkpoint of jax": (
            rematc.value_and_grad,
            rematc.from_jax(jax_loss),
            lambda _, policy: rematc.from_jax(rematc.jax.checkpoint(jax_loss, policy=policy)),
        ),
        "rematc.jax": (rematc.jax.value_and_grad, jax_loss, rematc.jax.checkpoint),
    }
    value_and_grad, loss, checkpoint = wraps[frontend]
    step = value_and_grad(checkpoint(loss, policy=policy))
    expected = value_and_grad(loss, policy=policy or "nothing")
    without = value_and_grad(loss)
    assert temporary(step, WEIGHTS, X) == temporary(expected, WEIGHTS, X) < 0.8 * temporary(without, WEIGHTS, X)
    if frontend == "numpy":
        assert text(step, WEIGHTS, X) == text(expected, WEIGHTS, X)
    found, theirs = step(WEIGHTS, X), jax.value_and_grad(jax_loss)(WEIGHTS, X)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), found, theirs)


def test_what_is_beside_it_costs_nothing() -> None:
    """Auxiliary results, conversions, static and donated arguments, other positions."""

    def loss(depth: int, weights: Any, x: Any, scale: Any) -> Any:
        value = numpy_loss(weights[:depth], x)
        return value * scale, {"value": value}

    options: dict[str, Any] = {"argnums": (1, 3), "has_aux": True, "static_argnums": 0, "donate_argnums": 1}
    region = rematc.checkpoint(loss, policy="dots", static_argnums=0)

    def beside(depth: int, weights: Any, x: Any, scale: Any) -> Any:
        value, aux = region(depth, weights, x, scale)
        return np.float32(2) * value, (aux, weights[0] + 1)

    args = 6, WEIGHTS, X, np.float32(3)
    expected = temporary(rematc.value_and_grad(loss, policy="dots", **options), *args)
    assert temporary(rematc.value_and_grad(region, **options), *args) == expected
    # Of the loop that writes the auxiliary array.
    assert temporary(rematc.value_and_grad(beside, **options), *args) <= expected + 1024
    without = temporary(rematc.value_and_grad(loss, **options), *args)
    assert expected < 0.8 * without


def test_policies_on_the_whole_and_on_the_region_both_decide() -> None:
    products = []
    for outer, inner in (("everything", "dots"), ("dots", "everything"), ("nothing", "dots"), ("dots", "nothing")):
        step = rematc.value_and_grad(rematc.checkpoint(numpy_loss, policy=inner), policy=outer)
        products.append(text(step, WEIGHTS, X).count("stablehlo.dot_general"))
    saved = text(rematc.value_and_grad(numpy_loss, policy="dots"), WEIGHTS, X).count("stablehlo.dot_general")
    nothing = text(rematc.value_and_grad(numpy_loss, policy="nothing"), WEIGHTS, X).count("stablehlo.dot_general")
    assert products == [saved, saved, nothing, nothing]
    assert saved < nothing


def test_the_report_names_the_regions_policy() -> None:
    report = rematc.lower(rematc.value_and_grad(rematc.checkpoint(numpy_loss, policy="dots")), WEIGHTS, X)
    (derivative,) = report.derivatives
    assert derivative.policy == "dots"


def test_residuals_handed_out_stay_the_arguments() -> None:
    """As JAX's own: what `vjp` gives back holds what the region says, and nothing that crosses inside of it."""
    assert all(row.is_argument for row in rematc.saved_residuals(rematc.checkpoint(numpy_loss), WEIGHTS, X))


def test_without_barriers_it_stays_as_it_is() -> None:
    plain = rematc.value_and_grad(numpy_loss)
    step = rematc.value_and_grad(rematc.checkpoint(numpy_loss, prevent_cse=False))
    assert temporary(step, WEIGHTS, X) > 0.9 * temporary(plain, WEIGHTS, X)


def test_the_second_derivative_is_jaxs() -> None:
    def along(loss: Any, x: Any) -> Any:
        return jnp.sum(jax.grad(loss, 1)(WEIGHTS[:2], x)[0] ** 2)

    region = rematc.jax.checkpoint(jax_loss, policy="dots")
    ours = rematc.jax.grad(region, 1)
    found = jax.grad(lambda x: jnp.sum(ours(WEIGHTS[:2], x)[0] ** 2))(X)
    np.testing.assert_allclose(found, jax.grad(functools.partial(along, jax_loss))(X), rtol=1e-4, atol=1e-9)
