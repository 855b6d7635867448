"""Budgets given where the derivative is asked for: planned by the prediction, as a part of any program."""

from __future__ import annotations

import logging
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rematc
import rematc.jax
from rematc.compiler.driver.budget import Planner

WEIGHTS = [np.full((64, 64), 1e-2, np.float32)] * 8
X = np.linspace(-1, 1, 512 * 64, dtype=np.float32).reshape(512, 64)
BUDGET = 2**20


def chain(xp: Any, weights: Any, x: Any) -> Any:
    for w in weights:
        x = x + xp.tanh(xp.tanh(x @ w) @ w)
    return xp.mean(x * x)


def numpy_loss(weights: Any, x: Any) -> Any:
    return chain(np, weights, x)


def jax_loss(weights: Any, x: Any) -> Any:
    return chain(jnp, weights, x)


def same(found: Any, expected: Any) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), found, expected)


def temporary(jitted: Any, *args: Any) -> int:
    found = jitted.lower(*args).compile().memory_analysis()
    return int(found.temp_size_in_bytes)


EXPECTED = jax.value_and_grad(jax_loss)(WEIGHTS, X)
WITHOUT = rematc.compile(rematc.value_and_grad(numpy_loss), WEIGHTS, X).memory().temp_bytes


def test_there_is_something_to_plan() -> None:
    assert WITHOUT > 1.8 * BUDGET


@pytest.mark.parametrize("budget", [BUDGET, "1MiB", f"{100 * BUDGET / WITHOUT}%"])
def test_a_part_of_a_program_is_planned_by_the_prediction(budget: Any) -> None:
    step: Any = rematc.value_and_grad(numpy_loss, budget=budget)

    def train(weights: Any, x: Any) -> Any:
        value, gradients = step(weights, x)
        return value, [w - 0.1 * one for w, one in zip(weights, gradients, strict=True)]

    compiled: Any = rematc.compile(rematc.jit(train), WEIGHTS, X)
    # The gradients are temporary here.
    assert compiled.memory().temp_bytes <= BUDGET + sum(w.nbytes for w in WEIGHTS)
    value, updated = compiled(WEIGHTS, X)
    same((value, updated), (EXPECTED[0], [w - 0.1 * one for w, one in zip(WEIGHTS, EXPECTED[1], strict=True)]))
    report = compiled.lowered.budget
    assert report is not None
    assert report.function == "numpy_loss"
    assert report.measured is None
    assert report.plan.peak * 1.15 <= report.budget <= BUDGET * 1.01
    assert compiled.lowered.plan is None, "it is no plan of this program"
    text = str(compiled.report())
    assert "plan of numpy_loss" in text
    assert "leaves room for the prediction's error" in text
    assert "not measured" in text


def test_a_whole_program_is_planned_by_what_xla_takes() -> None:
    step = rematc.value_and_grad(numpy_loss, budget=BUDGET)
    compiled = rematc.compile(step, WEIGHTS, X)
    beside = rematc.compile(rematc.value_and_grad(numpy_loss), WEIGHTS, X, budget=BUDGET)
    assert compiled.lowered.stablehlo() == beside.lowered.stablehlo()
    report = compiled.lowered.budget
    assert report is not None
    assert report.measured == compiled.memory().temp_bytes <= BUDGET
    assert compiled.lowered.plan is not None
    same(compiled(WEIGHTS, X), EXPECTED)
    lowered = rematc.lower(step, WEIGHTS, X)
    assert lowered.plan is not None
    assert lowered.predicted_peak() * 1.15 <= BUDGET
    with pytest.raises(rematc.CompileError, match="has a budget of its own"):
        rematc.compile(step, WEIGHTS, X, budget="50%")


def test_a_percentage_is_of_the_program_as_it_stands() -> None:
    """Of a loop the fastest plan may compute something again, where nothing is too much."""

    def loss(w: Any, x: Any) -> Any:
        last: Any = rematc.scan(lambda h, _: (np.tanh(np.sin(h @ w) * 2), None), x, length=16)[0]
        return np.mean(last)

    lowered = rematc.lower(rematc.value_and_grad(loss), WEIGHTS[0], X)
    planner = Planner(lowered)
    assert planner.whole == lowered.predicted_peak() > planner.expected(planner.plan(0))
    assert planner.wanted(rematc.Budget("50%")) == planner.whole // 2


def test_calls_are_planned() -> None:
    for step, expected in ((rematc.value_and_grad, EXPECTED), (rematc.grad, EXPECTED[1])):
        planned: Any = step(numpy_loss, budget=BUDGET)
        same(planned(WEIGHTS, X), expected)
        assert planned.lower(WEIGHTS, X).compile().memory().temp_bytes <= BUDGET
        measured = rematc.compile(planned, WEIGHTS, X)
        assert measured.memory().temp_bytes <= BUDGET
        same(measured(WEIGHTS, X), expected)


def test_auxiliary_results_static_and_donated_arguments() -> None:
    def loss(depth: int, weights: Any, x: Any) -> Any:
        value = numpy_loss(weights[:depth], x)
        return value, {"twice": 2 * value}

    options: dict[str, Any] = {"argnums": (1, 2), "has_aux": True, "static_argnums": 0, "donate_argnums": 2}
    step: Any = rematc.value_and_grad(loss, budget=BUDGET, **options)
    (value, aux), gradients = step(8, WEIGHTS, X.copy())
    same((value, gradients), jax.value_and_grad(jax_loss, (0, 1))(WEIGHTS, X))
    same(aux["twice"], 2 * EXPECTED[0])
    measured = rematc.compile(rematc.grad(loss, budget=BUDGET, **options), 8, WEIGHTS, X)
    assert measured.memory().temp_bytes <= BUDGET


@pytest.mark.parametrize("jit", [jax.jit, rematc.jax.jit])
def test_a_jax_function_is_planned_in_anybodys_program(jit: Any) -> None:
    step = rematc.jax.value_and_grad(jax_loss, budget=BUDGET)
    assert temporary(jit(step), WEIGHTS, X) <= BUDGET
    assert temporary(jit(rematc.jax.grad(jax_loss, budget="55%")), WEIGHTS, X) <= 0.55 * WITHOUT
    same(jit(step)(WEIGHTS, X), EXPECTED)


def test_a_jax_function_by_itself() -> None:
    step = rematc.jax.value_and_grad(jax_loss, budget=BUDGET)
    same(step(WEIGHTS, X), EXPECTED)
    same(rematc.jax.grad(jax_loss, budget=BUDGET)(WEIGHTS, X), EXPECTED[1])
    same(step([jnp.asarray(w) for w in WEIGHTS], jnp.asarray(X)), EXPECTED)


def test_a_jax_function_with_auxiliary_results_and_donation() -> None:
    def loss(weights: Any, x: Any) -> Any:
        return jax_loss(weights, x), x[0]

    step = rematc.jax.value_and_grad(loss, 1, has_aux=True, budget=BUDGET, donate_argnums=1)
    (value, aux), gradient = step(WEIGHTS, jnp.array(X))
    same((value, gradient), jax.value_and_grad(jax_loss, 1)(WEIGHTS, X))
    same(aux, X[0])


def test_it_is_batched_and_differentiated_by_jax() -> None:
    batch = np.stack([X, 2 * X])
    step = rematc.jax.grad(jax_loss, 1, budget=BUDGET)
    plain = jax.grad(jax_loss, 1)
    same(jax.vmap(step, (None, 0))(WEIGHTS, batch), jax.vmap(plain, (None, 0))(WEIGHTS, batch))

    def norm(gradient: Any, x: Any) -> Any:
        return jnp.sum(gradient(WEIGHTS[:2], x) ** 2) * 1e6

    small = rematc.jax.grad(jax_loss, 1, budget="4MiB")
    same(jax.jit(jax.grad(lambda x: norm(small, x)))(X), jax.grad(lambda x: norm(plain, x))(X))


def test_derivatives_of_it_have_the_users_rules() -> None:
    """They are not planned: the plan's program has no rules any more."""

    @rematc.custom_jvp
    def square(x: Any) -> Any:
        return x * x

    square.defjvp(lambda primals, tangents: (square(primals[0]), 3 * primals[0] * tangents[0]))
    gradient: Any = rematc.grad(lambda x: np.sum(square(x)), budget="1MiB")
    np.testing.assert_allclose(gradient(X), 3 * X, rtol=1e-6)
    second: Any = rematc.grad(lambda x: np.sum(gradient(x) * X))
    np.testing.assert_allclose(second(X), 3 * X, rtol=1e-6)


@pytest.mark.parametrize("which", ["part", "whole", "rematc.jax"])
def test_what_no_plan_meets_is_an_error_at_the_users_line(which: str) -> None:
    step = rematc.value_and_grad(numpy_loss, budget="16KiB")
    runs: dict[str, Any] = {
        "part": lambda: rematc.jit(step)(WEIGHTS[:3], X),
        "whole": lambda: rematc.compile(step, WEIGHTS[:3], X),
        "rematc.jax": lambda: jax.jit(rematc.jax.grad(jax_loss, budget="16KiB"))(WEIGHTS[:3], X),
    }
    with pytest.raises(rematc.CompileError, match=r"16\.0 KiB of temporary memory; the smallest .* KiB") as caught:
        runs[which]()
    assert caught.value.loc is not None
    assert caught.value.loc.file == __file__
    assert re.search(r", in \d+ slices\. .*holds\n.*f32\[64,64\], 16384 bytes, at", str(caught.value))


@pytest.mark.parametrize("module", [rematc, rematc.jax])
def test_wrong_budgets_are_errors_where_they_are_given(module: Any) -> None:
    for derivative in (module.value_and_grad, module.grad):
        with pytest.raises(rematc.CompileError, match="'much' is no budget") as caught:
            derivative(numpy_loss, budget="much")
        assert caught.value.loc is not None
        with pytest.raises(rematc.CompileError, match="a policy or a budget"):
            derivative(numpy_loss, budget="1GiB", policy="dots")


def test_a_jit_with_a_policy_leaves_it_alone() -> None:
    step = rematc.value_and_grad(numpy_loss, budget="1GiB")
    lowered = rematc.lower(rematc.jit(step, policy="nothing"), WEIGHTS, X)
    (derivative,) = lowered.derivatives
    assert derivative.policy == "none"
    assert not derivative.recompute.equations


def test_the_plan_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "rematc.plans"):
        jax.jit(rematc.jax.grad(jax_loss, budget=BUDGET)).lower(WEIGHTS, X)
    (record,) = caplog.records
    assert "plan of jax_loss\nbudget 1.0 MiB\nplanned for" in record.getMessage()
    assert "not measured" in record.getMessage()


def test_what_xla_takes_without_a_plan_is_expected_of_it() -> None:
    """Whatever is predicted of a program: as many bytes as it takes need no recomputation."""
    lowered = rematc.lower(rematc.value_and_grad(numpy_loss), WEIGHTS, X)
    planner = Planner(lowered)
    whole = planner.plan(planner.peak)
    assert planner.expected(whole) > 1000
    planner.measured_whole(1000)
    assert planner.expected(whole) == 1000
    compiled = rematc.compile(rematc.value_and_grad(numpy_loss), WEIGHTS, X, budget="100%")
    assert compiled.lowered.budget is not None
    assert not compiled.lowered.budget.plan.recomputes
