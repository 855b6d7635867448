"""A budget of temporary memory, as XLA takes it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rematc
from rematc.ir.errors import CompileError
from rematc.lowering.planning import budget_bytes

LAYERS, WIDTH, BATCH = 8, 64, 512


def loss(weights: Any, x: Any) -> Any:
    for weight in weights:
        x = jnp.tanh(x @ weight)
    return (x**2).sum()


STEP = rematc.value_and_grad(rematc.from_jax(loss))
SHAPES = ([np.ones((WIDTH, WIDTH), np.float32)] * LAYERS, np.ones((BATCH, WIDTH), np.float32))


@pytest.fixture(scope="module")
def without() -> Any:
    return rematc.compile(STEP, *SHAPES)


@pytest.mark.parametrize("percent", [50, 65, 80])
def test_what_xla_takes_is_within_the_budget(without: Any, percent: int) -> None:
    whole = without.memory().temp_bytes
    compiled = rematc.compile(STEP, *SHAPES, budget=f"{percent}%")
    report = compiled.lowered.budget
    assert report is not None
    assert report.measured == compiled.memory().temp_bytes <= report.budget == whole * percent // 100
    assert 1 <= report.compilations <= 3
    plan = compiled.plan
    assert plan is report.plan
    assert 0 < plan.extra_flops < plan.flops
    assert plan.time_without <= plan.bound <= plan.time
    text = str(compiled.report())
    assert "no plan is below" in text
    assert "from the optimum" in text


def test_the_results_stay(without: Any) -> None:
    random = np.random.default_rng(0)
    weights = [(random.normal(size=(WIDTH, WIDTH)) / 8).astype(np.float32) for _ in range(LAYERS)]
    args = weights, random.normal(size=(BATCH, WIDTH)).astype(np.float32)
    planned = rematc.compile(STEP, *args, budget="50%")
    found, expected = map(jax.tree_util.tree_leaves, (planned(*args), without(*args)))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_a_budget_changes_no_calls_of_the_function() -> None:
    step: Any = rematc.value_and_grad(rematc.from_jax(loss))
    planned = rematc.compile(step, *SHAPES, budget="50%").memory().temp_bytes
    assert step.lower(*SHAPES).compile().memory().temp_bytes > planned


def test_a_budget_with_room_for_all_needs_no_plan(without: Any) -> None:
    compiled = rematc.compile(STEP, *SHAPES, budget="1GiB")
    assert compiled.plan is not None
    assert (compiled.plan.extra_flops, compiled.plan.stages.begins) == (0, ())
    assert compiled.memory().temp_bytes == without.memory().temp_bytes


def test_lower_plans_by_the_prediction() -> None:
    lowered = rematc.lower(STEP, *SHAPES, budget="50%")
    report = lowered.budget
    assert report is not None
    assert report.measured is None
    assert report.plan.peak <= report.budget
    assert "optimization_barrier" in lowered.ir()
    with pytest.raises(CompileError, match=r"(?s)the smallest that was reached is predicted .*f32\[512,64\]"):
        rematc.lower(STEP, *SHAPES, budget=1000)


def test_a_budget_that_cannot_be_met() -> None:
    pattern = r"(?s)no plan was found for 4\.0 KiB.*reached is \d.* KiB, predicted .*holds\n.*test_budget\.py"
    with pytest.raises(CompileError, match=pattern):
        rematc.compile(STEP, *SHAPES, budget=4096)


def test_a_budget_has_passes_of_its_own() -> None:
    with pytest.raises(CompileError, match="leave out passes"):
        rematc.compile(STEP, *SHAPES, budget=4096, passes="barriers")


@pytest.mark.parametrize(
    ("text", "count"),
    [("2GiB", 2 << 30), ("1.5 MiB", 3 << 19), ("500MB", 500_000_000), ("7 b", 7), ("64", 64), (64, 64), ("25%", 250)],
)
def test_budgets_as_they_are_written(text: int | str, count: int) -> None:
    assert budget_bytes(text, lambda: 1000) == count


@pytest.mark.parametrize("text", ["", "GiB", "4 potatoes", "-1GiB", -1, True])
def test_what_is_no_budget(text: int | str) -> None:
    with pytest.raises(CompileError, match="is no budget; write bytes as a number, '2GiB', '500MB', or '50%'"):
        budget_bytes(text, lambda: 1000)
