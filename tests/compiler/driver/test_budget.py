"""A budget of temporary memory, as XLA takes it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rematc
from rematc.compiler.driver.budget import Planner, first_within
from rematc.ir.errors import CompileError
from rematc.lowering.planning import Budget, GraphPlanner, UnreachableBudgetError, budget_bytes, having_another_way
from rematc.lowering.target import Target
from rematc.passes.planning.plan import Plan

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
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6 * np.abs(other).max())


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
    with pytest.raises(CompileError, match=r"(?s)reached is predicted 1\..* KiB, in 512 slices.*what 'scan' takes"):
        rematc.lower(STEP, *SHAPES, budget=1000)


def test_a_budget_that_cannot_be_met() -> None:
    pattern = r"(?s)no plan was found for 256 B.*reached is \d.* KiB, predicted .*holds\n.*test_budget\.py"
    with pytest.raises(CompileError, match=pattern):
        rematc.compile(STEP, *SHAPES, budget=256)


def test_what_a_loop_takes_is_named_where_nothing_lives_around_it() -> None:
    def steps(weights: Any, rows: Any) -> Any:
        def step(weights: Any, x: Any) -> Any:
            found, gradients = jax.value_and_grad(loss)(weights, x)
            return [one - 0.1 * other for one, other in zip(weights, gradients, strict=True)], found

        return jax.lax.scan(step, weights, rows)

    rows = np.ones((4, BATCH, WIDTH), np.float32)
    with pytest.raises(CompileError, match=r"what 'scan' takes while it runs, at .*test_budget\.py:\d+"):
        rematc.compile(rematc.from_jax(steps), SHAPES[0], rows, budget=4096)


def test_a_budget_that_is_hardly_missed_is_said_in_bytes() -> None:
    planner = GraphPlanner(rematc.trace(STEP, *SHAPES), Target.of("cpu"))
    plan = planner.plan(planner.peak)
    error = planner.unreachable(1_100_000, plan, planner.expected(plan), 1_100_001)
    assert "for 1100000 bytes of temporary memory; the smallest that was reached is 1100001 bytes, " in str(error)
    assert "is 1.0 MiB, " in str(planner.unreachable(900_000, plan, planner.expected(plan), 1_100_001))


def test_what_is_far_from_a_budget_is_said_soon_where_there_is_another_way() -> None:
    """As often as it is asked; and without another way, and in limited time, the smallest plan is looked for.

    So it is where something must not be computed again: in slices it may be.
    """
    graph, target = rematc.trace(STEP, *SHAPES), Target.of("cpu")
    planner = GraphPlanner(graph, target)
    with having_another_way(True):
        for _ in range(2):
            with pytest.raises(UnreachableBudgetError, match="the nearest takes") as caught:
                planner.predicted_within(10)
            assert caught.value.is_far
        near = planner.nearest
        planner.refuse_far(planner.whole)
        with having_another_way(False), pytest.raises(UnreachableBudgetError, match="the smallest that was") as caught:
            planner.predicted_within(10)
        assert not caught.value.is_far and planner.nearest <= near
        planner.refuse_far(planner.smallest.peak)
        GraphPlanner(graph, target, seconds=1e-6).refuse_far(10)
        GraphPlanner(graph, target, constraints=Budget(10, never_repeat=["dot_general"]).constraints).refuse_far(10)


def test_a_budget_has_passes_of_its_own() -> None:
    with pytest.raises(CompileError, match="leave out passes"):
        rematc.compile(STEP, *SHAPES, budget=4096, passes="barriers")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("2GiB", 2 << 30),
        ("1.5 MiB", 3 << 19),
        ("500MB", 500_000_000),
        ("7 b", 7),
        ("64", 64),
        (64, 64),
        ("25%", 250),
        ("device", 77),
    ],
)
def test_budgets_as_they_are_written(text: int | str, count: int) -> None:
    assert budget_bytes(text, lambda: 1000, lambda: 77) == count


@pytest.mark.parametrize("text", ["", "GiB", "4 potatoes", "-1GiB", -1, True])
def test_what_is_no_budget(text: int | str) -> None:
    with pytest.raises(
        CompileError, match="is no budget; write bytes as a number, '2GiB', '500MB', '50%', or 'device'"
    ):
        budget_bytes(text, lambda: 1000, lambda: 77)


class _Device:
    """A device that says what it has."""

    def __init__(self, stats: dict[str, int] | None) -> None:
        self._stats = stats

    def memory_stats(self) -> dict[str, int] | None:
        return self._stats


def test_a_budget_is_what_the_device_has_free(monkeypatch: pytest.MonkeyPatch) -> None:
    weights, batch = SHAPES
    device = _Device({"bytes_limit": 2_000_000, "bytes_in_use": 500_000})
    monkeypatch.setattr("rematc.lowering.targeting.device_of_platform", lambda _: device)
    results = 4 + sum(weight.nbytes for weight in weights)
    placed = rematc.lower(STEP, [jnp.asarray(weight) for weight in weights], batch, budget="device").budget
    assert placed is not None
    assert placed.budget == 1_500_000 - results - batch.nbytes
    absent = rematc.lower(STEP, *SHAPES, budget="device").budget
    assert absent is not None
    assert absent.budget == placed.budget - sum(weight.nbytes for weight in weights)


def test_the_cpu_does_not_say_what_it_has_free() -> None:
    with pytest.raises(CompileError, match="platform 'cpu' does not say what memory it has; write bytes"):
        rematc.lower(STEP, *SHAPES, budget="device")


def test_seconds_of_planning_are_spent_on_a_budget() -> None:
    report = rematc.lower(STEP, *SHAPES, budget="60%", plan_seconds=1e-9).budget
    assert report is not None
    assert report.plan.is_feasible
    for seconds in (0, -1.0, float("nan")):
        with pytest.raises(CompileError, match="plan_seconds is a number above 0"):
            rematc.lower(STEP, *SHAPES, budget="60%", plan_seconds=seconds)
    with pytest.raises(CompileError, match="add budget, or leave out plan_seconds"):
        rematc.lower(STEP, *SHAPES, plan_seconds=1)
    assert rematc.pareto(STEP, *SHAPES, points=2, measure=False, plan_seconds=1e-9).points


def test_plans_that_differ_in_loops_alone_are_each_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def looped(weights: Any, x: Any) -> Any:
        def step(x: Any, w: Any) -> Any:
            return x + np.sin(np.tanh(np.sin(x @ w) @ w) @ w), None

        scan: Any = rematc.scan
        return np.sum(scan(step, x, weights)[0] ** 2)

    args = np.ones((12, WIDTH, WIDTH), np.float32), np.ones((BATCH, WIDTH), np.float32)
    step, first = rematc.value_and_grad(looped), [True]
    rest = Planner.expected_within

    def too_large_at_first(self: Planner, target: int, aim: int, ratio: float) -> Plan:
        return self.plan(target * 6 // 5) if first and first.pop() else rest(self, target, aim, ratio)

    monkeypatch.setattr(Planner, "expected_within", too_large_at_first)
    report = rematc.compile(step, *args, budget="60%").lowered.budget
    assert report is not None
    assert (report.compilations, report.plan.stages.begins) == (2, ())
    assert report.plan.peak > Planner(rematc.lower(step, *args)).plan(0).peak


def test_a_plan_that_takes_more_than_expected_is_followed_by_a_little_smaller_one() -> None:
    """And not by the smallest: that for what is aimed at next does the same as the first one."""
    planner = Planner(rematc.lower(STEP, *SHAPES))
    first = planner.plan(planner.peak * 4 // 5)

    def compiled(plan: Plan, _: int) -> tuple[Plan, int]:
        return plan, planner.expected(plan) * 106 // 100

    wanted = planner.expected(first) * 103 // 100
    plan, report = first_within(planner, Budget.of(wanted), lambda: planner.whole, compiled)
    assert report.compilations == 2
    assert report.measured is not None and report.measured <= wanted
    assert 0 < plan.extra_flops < planner.plan(0).extra_flops


def test_room_is_left_for_what_xla_took_more_than_expected() -> None:
    """Of the third plan it takes more once more: the fourth leaves room for that, too."""
    planner = Planner(rematc.lower(STEP, *SHAPES))
    percents = iter([110, 120, 140, 140])

    def compiled(plan: Plan, _: int) -> tuple[Plan, int]:
        return plan, planner.expected(plan) * next(percents) // 100

    wanted = planner.expected(planner.plan(planner.peak * 9 // 10)) * 102 // 100
    plan, report = first_within(planner, Budget.of(wanted), lambda: planner.whole, compiled)
    assert report.compilations == 4
    assert report.measured is not None and report.measured <= wanted
    assert 0 < plan.extra_flops < planner.plan(0).extra_flops


@pytest.mark.parametrize("policy", ["nothing", "dots"])
def test_a_narrow_head_is_planned_for_what_policies_take(policy: str) -> None:
    """Its logits are read by sums and by other kernels: XLA writes them in float32, and each of its exponentials."""

    def head(weights: Any, x: Any, targets: Any) -> Any:
        for weight in weights["layers"]:
            x = x + jnp.tanh(x @ weight)
        logits = (x @ weights["words"].T).astype(jnp.float32)
        picked = jax.nn.log_softmax(logits)
        entropy = -0.9 * jnp.take_along_axis(picked, targets[:, None], -1)[:, 0] - 0.1 * picked.mean(-1)
        return jnp.mean(entropy + 1e-4 * jax.nn.logsumexp(logits, -1) ** 2)

    def zeros(*shape: int) -> Any:
        return np.zeros(shape, jnp.bfloat16)

    args = {"layers": [zeros(64, 64)] * 3, "words": zeros(4001, 64)}, zeros(512, 64), np.zeros(512, np.int32)
    function = rematc.from_jax(head)
    taken = rematc.compile(rematc.value_and_grad(function, policy=policy), *args).memory().temp_bytes
    planned = rematc.compile(rematc.value_and_grad(function), *args, budget=taken)
    assert planned.memory().temp_bytes <= taken
    assert planned.lowered.predicted_peak() == pytest.approx(planned.memory().temp_bytes, rel=0.1)
