"""The graphs that plans are lowered to: made once, and expected to take what they are predicted to."""

from __future__ import annotations

import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rematc
from rematc.lowering import planned_graphs
from rematc.lowering.pipeline import run_passes
from rematc.lowering.planning import GraphPlanner
from rematc.lowering.target import Target
from rematc.lowering.xla_cpu.prediction import predict
from rematc.passes.planning import budget, planner
from rematc.passes.planning.bound import bound as least_time
from rematc.passes.planning.plan import Plan

LAYERS, WIDTH, ROWS = 6, 64, 256
DONATED = tuple(range(2 * LAYERS))
CPU = Target.of("cpu")


def train_step(weights: Any, moments: Any, x: Any) -> Any:
    def loss(weights: Any) -> Any:
        y = x
        for w in weights:
            y = y + jnp.tanh(jax.nn.gelu(y @ w) @ w)
        return jnp.mean(y**2)

    gradients = jax.grad(loss)(weights)
    moments = [0.9 * m + g for m, g in zip(moments, gradients, strict=True)]
    return [w - 0.1 * m for w, m in zip(weights, moments, strict=True)], moments


@pytest.fixture
def planned() -> GraphPlanner:
    matrices = [np.ones((WIDTH, WIDTH), np.float32)] * LAYERS
    lowered = rematc.lower(rematc.from_jax(train_step), matrices, matrices, np.ones((ROWS, WIDTH), np.float32))
    return GraphPlanner(lowered.traced.graph, CPU, donated=DONATED)


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The graphs that go through the passes from now on."""
    found: list[Any] = []

    def run(graph: Any, *args: Any, **kwargs: Any) -> Any:
        found.append(graph)
        return run_passes(graph, *args, **kwargs)

    monkeypatch.setattr(planned_graphs, "run_passes", run)
    return found


def plans(planned: GraphPlanner, count: int) -> list[Plan]:
    return [planned.plan(planned.peak * (20 + 10 * index) // 100) for index in range(count)]


def test_what_is_expected_is_predicted_of_what_is_lowered_with_its_donated_buffers(planned: GraphPlanner) -> None:
    for plan in plans(planned, 5):
        expected, passed = planned.expected(plan), planned.passed(plan)
        assert expected == predict(passed.graph, CPU, DONATED).peak
        assert [record.text for record in passed.records].count("hold_readers") == 1


def test_a_plan_that_is_expected_to_fit_is_not_passed_again_to_be_lowered(
    planned: GraphPlanner, passes: list[Any]
) -> None:
    plan = planned.plan(planned.peak // 2)
    planned.expected(plan)
    first = planned.passed(plan)
    assert planned.passed(plan).graph is first.graph
    assert len(passes) == 1


def test_only_the_last_graphs_are_remembered_and_others_are_made_again(
    planned: GraphPlanner, passes: list[Any]
) -> None:
    several = list({plan.does: plan for plan in plans(planned, 8)}.values())
    assert len(several) > planned_graphs._REMEMBERED
    texts = [str(planned.passed(plan).graph) for plan in several]
    assert len(planned._graphs._made) == planned_graphs._REMEMBERED
    assert str(planned.passed(several[0]).graph) == texts[0]
    assert len(passes) == len(several) + 1


def test_before_what_is_late_is_held_no_less_is_expected(planned: GraphPlanner) -> None:
    for plan in plans(planned, 5):
        before = planned._graphs.expected_before_held(plan)
        assert before >= planned.expected(plan) == planned._graphs.expected_before_held(plan)


def test_a_bound_is_looked_for_where_somebody_asks(planned: GraphPlanner, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def bound(problem: Any, size: int) -> int:
        asked.append(size)
        return least_time(problem, size)

    monkeypatch.setattr(budget, "bound", bound)
    monkeypatch.setattr(planner, "bound", bound)
    plan = planned.plan(planned.peak // 2)
    assert not asked
    least = plan.bound
    assert asked and plan.time_without <= least <= plan.time
    count = len(asked)
    assert pickle.loads(pickle.dumps(plan.least)) == plan.least and hash(plan.least) == hash(least)
    assert Plan.from_json(plan.to_json()).bound == least
    assert len(asked) == count
