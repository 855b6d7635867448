"""Steps of loops, and branches, that differentiate in themselves run in stages: the same bits in less memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rematc
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.ir.ops.regions import Checkpoint
from rematc.ir.ops.scan.op import Scan
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.ir.traversal import all_equations
from rematc.ir.verifier import verify
from rematc.lowering.pipeline import BEFORE_PLAN, run_passes
from rematc.passes.barriers import Barriers
from rematc.passes.planning.budget import fitting_plan
from rematc.passes.planning.constraints import FREE, Constraints
from rematc.passes.planning.device import CPU, H100, V5E, Device
from rematc.passes.planning.loop_levels import ends, least_step, loop_levels
from rematc.passes.planning.loops import LoopChoice, with_decisions
from rematc.passes.planning.plan import Plan
from rematc.passes.planning.planner import Planner
from rematc.passes.planning.problem import Problem, Stages, simulate
from rematc.passes.planning.shards import Machine
from rematc.passes.planning.staged_bodies import BodyPlans, StagedBody, _Around
from rematc.passes.planning.translation import Regions, translate
from tests.support.same_bits import SameBits

ON_CPU = Machine(CPU)

PARTS, ROWS, WIDTH, DEPTH = 3, 16, 8, 6
RANDOM = np.random.default_rng(0)
W = RANDOM.normal(size=(DEPTH, WIDTH, WIDTH)).astype(np.float32) / 3
X = RANDOM.normal(size=(PARTS, ROWS, WIDTH)).astype(np.float32)


def layers(w: Any, x: Any) -> Any:
    for index in range(DEPTH):
        x = x + rematc.checkpoint_name(np.tanh(np.tanh(x @ w[index]) @ w[index]), "layer")
    return np.sum(x**2)


def accumulated(w: Any, x: Any) -> Any:
    """The gradients of parts of a batch, summed."""

    def step(total: Any, part: Any) -> Any:
        value, gradient = rematc.value_and_grad(layers)(w, part)
        return total + gradient, value

    return rematc.scan(step, 0 * w, x)


def descended(w: Any, x: Any) -> Any:
    """Steps of descent over parts of a batch, twice over all."""
    gradient: Callable[..., Any] = rematc.grad(layers)

    def epoch(w: Any, _: Any) -> Any:
        return rematc.scan(lambda w, part: (w - 0.1 * gradient(w, part), None), w, x)[0], None

    return rematc.scan(epoch, w, None, 2)[0]


def searched(w: Any, x: Any) -> Any:
    """Steps of descent until the loss is small, or there were four."""
    gradient: Callable[..., Any] = rematc.value_and_grad(layers)

    def step(state: Any) -> Any:
        w, loss, count = state
        loss, change = gradient(w, x[0])
        return w - 0.1 * change, loss, count + 1

    begin = w, np.float32(9.0), np.int32(0)
    return rematc.while_loop(lambda state: np.logical_and(state[1] > 1e-3, state[2] < 4), step, begin)[0]


def alternating(w: Any, x: Any) -> Any:
    """A step for one of two losses, each differentiated in its branch."""

    def on(loss: Callable[..., Any]) -> Callable[..., Any]:
        gradient: Callable[..., Any] = rematc.grad(loss)
        return lambda w, x: w - 0.1 * gradient(w, x)

    first, second = on(layers), on(lambda w, x: layers(np.sin(w), x))
    return rematc.cond(np.sum(x) > 0, first, second, w, x[0])


FUNCTIONS = [accumulated, descended, searched, alternating]


def flat(function: Callable[..., Any]) -> Graph:
    return run_passes(rematc.trace(function, W, X), BEFORE_PLAN).graph


def peak(graph: Graph) -> int:
    return simulate(translate(graph, ON_CPU).problem).peak


same_bits = SameBits(W, X)


@pytest.mark.slow
@pytest.mark.parametrize("function", FUNCTIONS)
def test_at_each_level_values_are_the_same_to_the_bit_in_less_memory(function: Callable[..., Any]) -> None:
    graph = flat(function)
    whole = peak(graph)
    first, bodies = ends(loop_levels(graph, ON_CPU)), BodyPlans(Regions(ON_CPU), FREE)
    budgets = [whole * part // 8 for part in range(8)]
    staged = [bodies.levels(graph, level, least_step(whole), budget) for level in first for budget in budgets]
    levels = {level for one in staged for level in one}
    assert len(levels) > 3
    for decisions in levels:
        instead = with_decisions(graph, decisions)
        verify(instead)
        assert same_bits(graph, instead), decisions
        assert peak(instead) < whole
    assert min(peak(with_decisions(graph, decisions)) for decisions in levels) < whole / 2


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("part", [0.5, 0.7, 0.9])
def test_what_is_around_bodies_takes_what_it_does_with_their_stages(function: Callable[..., Any], part: float) -> None:
    graph = flat(function)
    around, plans = _Around(graph, Regions(ON_CPU), FREE), BodyPlans(Regions(ON_CPU), FREE)
    rooms = around.rooms(round(part * peak(graph)))
    staged = plans._within(around, rooms)
    assert staged is not None and staged.decisions
    expected = simulate(around.problem(staged.runs))
    found = simulate(translate(with_decisions(graph, staged.decisions), ON_CPU).problem)
    assert found.peak <= expected.peak <= round(part * peak(graph))
    assert found.time <= expected.time, "what runs again may be fused there"
    assert simulate(around.problem(())).peak == peak(graph)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_plan_in_half_of_the_memory_is_held_by_barriers_in_the_step(function: Callable[..., Any]) -> None:
    planner = Planner(flat(function), ON_CPU)
    plan = planner.plan(planner.peak // 2)
    assert plan.is_feasible
    assert plan.recomputes
    pinned = Barriers(strategy="optimization_barrier").run(planner.applied(plan))
    ops = [eqn.op for eqn in all_equations(pinned)]
    assert not any(isinstance(op, Checkpoint) for op in ops)
    assert any(isinstance(op, OptimizationBarrier) for op in ops)
    assert plan.extra_flops == sum(eqn.flops for eqn in pinned.equations) - plan.flops


@pytest.mark.parametrize("function", [searched, alternating])
def test_a_plan_of_a_branch_or_a_search_is_saved_applied_and_shown(function: Callable[..., Any]) -> None:
    graph = flat(function)
    planner = Planner(graph, ON_CPU)
    plan = planner.plan(planner.peak // 2)
    again = Plan.from_json(plan.to_json())
    assert again.does == plan.does
    assert (again.loops, again.peak, again.time) == (plan.loops, plan.peak, plan.time)
    assert same_bits(graph, Planner(graph, ON_CPU).applied(again))
    assert {one.is_branch for one in plan.loops} == {function is alternating}
    how = "in stages of a branch" if function is alternating else "in stages of each step of the loop"
    assert f"computed again {how}" in str(plan)
    assert f"is computed again {how}: kept, it would take 512 B until it is read there" in plan.explain("tanh")
    assert " 1 steps" not in "".join(map(str, plan.computed_again))


def test_loops_that_differentiate_in_a_branch_stack_less() -> None:
    def deep(w: Any, x: Any) -> Any:
        def step(x: Any, w: Any) -> Any:
            return np.tanh(np.tanh(x @ w) @ w), None

        last: Any = rematc.scan(step, x, w)[0]
        return np.sum(last**2)

    def descent(w: Any, x: Any) -> Any:
        gradient: Any = rematc.grad(deep)(w, x)
        return w - 0.1 * gradient

    def function(w: Any, x: Any) -> Any:
        return rematc.cond(np.sum(x**2) > 0, descent, lambda w, x: w, w, x[0])

    graph = flat(function)
    levels = [level for level in loop_levels(graph, ON_CPU) if level]
    assert levels
    for decisions in levels:
        assert all(decision.path and decision.path[0].region for decision in decisions)
        instead = with_decisions(graph, decisions)
        verify(instead)
        assert same_bits(graph, instead)
    assert min(peak(with_decisions(graph, decisions)) for decisions in levels) < peak(graph)


def test_a_plan_without_recomputation_looks_for_no_stages() -> None:
    planner = Planner(flat(accumulated), ON_CPU)
    plan = planner.plan(planner.peak)
    assert not plan.recomputes
    assert plan.time == plan.time_without


def test_what_was_found_for_a_larger_size_is_not_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []

    def searching(problem: Problem, budget: int, **how: Any) -> Any:
        searched.append(budget)
        return fitting_plan(problem, budget, **how)

    monkeypatch.setattr("rematc.passes.planning.staged_bodies.fitting_plan", searching)
    graph = flat(accumulated)
    body = BodyPlans(Regions(ON_CPU), FREE)._body(
        next(eqn.op.body for eqn in graph.equations if isinstance(eqn.op, Scan))
    )
    size = body.peak * 3 // 4
    found = body.plan(size)
    assert found is not None and found.run.peak < size and searched == [size]
    for smaller in (size, (size + found.run.peak) // 2, found.run.peak):
        assert body.plan(smaller) is found
    assert searched == [size]
    less = body.plan(found.run.peak - 1)
    assert len(searched) > 1 and less is not None and less.run.peak < found.run.peak


def test_what_was_found_for_less_is_not_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []

    def searching(problem: Problem, budget: int, **how: Any) -> Any:
        searched.append(budget)
        return None if len(searched) == 1 else fitting_plan(problem, budget, **how)

    monkeypatch.setattr("rematc.passes.planning.staged_bodies.fitting_plan", searching)
    step = next(eqn.op.body for eqn in flat(accumulated).equations if isinstance(eqn.op, Scan))
    body = BodyPlans(Regions(ON_CPU), FREE)._body(step)
    size = body.peak * 3 // 4
    found = body.plan(size)
    assert found is not None and searched[0] == size > searched[1]
    count = len(searched)
    assert body.plan(size) is found and len(searched) == count


def segments(w: Any, x: Any) -> Any:
    """Several layers in each step of a loop that is differentiated."""

    def step(carry: Any, part: Any) -> Any:
        for index in range(DEPTH):
            y = np.tanh(part @ w[index])
            part = part + np.tanh(y * np.sin(y)) @ w[index].T
        return part + carry, np.sum(part**2)

    losses: Any = rematc.scan(step, x[0], x)[1]
    return np.sum(losses)


@pytest.mark.parametrize("percent", [15, 20])
def test_what_loops_drop_and_the_stages_of_their_steps_are_chosen_together(percent: int) -> None:
    w, x = np.zeros((DEPTH, 32, 64), np.float32), np.zeros((8, 64, 32), np.float32)
    gradient = rematc.lower(rematc.value_and_grad(segments), w, x).traced.graph
    graph = run_passes(gradient, BEFORE_PLAN).graph
    planner = Planner(graph, ON_CPU)
    budget = planner.peak * percent // 100
    plan = planner.plan(budget)
    assert plan.is_feasible
    assert [type(decision) for decision in plan.decisions] == [LoopChoice, StagedBody]
    levels, bodies = loop_levels(graph, ON_CPU), BodyPlans(Regions(ON_CPU), FREE)
    assert plan.decisions[0] not in levels[-1]
    staged = [one for level in ends(levels) for one in bodies.levels(graph, level, least_step(planner.peak), budget)]
    beside = planner._fastest_of(FREE, [*levels, *staged], budget, None)[0]
    assert beside is not None
    assert plan.time < beside[1].run.time
    again = Plan.from_json(plan.to_json())
    assert again.does_as(plan)
    verify(Planner(graph, ON_CPU).applied(again))


def recurrence(w: Any, x: Any) -> Any:
    """Many steps of several layers: a step is little of what the loop stacks."""

    def step(carry: Any, _: Any) -> Any:
        for index in range(DEPTH):
            carry = np.tanh(np.tanh(carry @ w[index]) * carry)
        return carry, None

    last: Any = rematc.scan(step, x, None, 32)[0]
    return np.sum(last)


def test_small_steps_run_in_stages_where_they_may() -> None:
    w, x = np.zeros((DEPTH, 8, 8), np.float32), np.zeros((256, 8), np.float32)
    gradient = rematc.lower(rematc.value_and_grad(recurrence), w, x).traced.graph
    planner = Planner(run_passes(gradient, BEFORE_PLAN).graph, ON_CPU)

    def has_stages(plan: Plan) -> bool:
        return any(isinstance(decision, StagedBody) for decision in plan.decisions)

    without = planner.plan(0)
    assert not has_stages(without) and not planner.plan(without.peak - 1).is_feasible
    assert planner.has_small_steps(without.peak) and not planner.has_small_steps(planner.peak)
    less = planner.plan(without.peak - 1, in_small_steps=True)
    assert less.is_feasible and has_stages(less)
    assert planner.plan(0, in_small_steps=True).peak <= less.peak
    budgets = range(without.peak, 2 * without.peak, without.peak // 8)
    times = [(planner.plan(budget).time, planner.plan(budget, in_small_steps=True).time) for budget in budgets]
    assert all(beside <= time for time, beside in times) and any(beside < time for time, beside in times)


@pytest.mark.parametrize(
    "constraints", [FREE, Constraints(never_repeat=("dot_general",)), Constraints(keep=("layer",))]
)
def test_a_plan_is_saved_applied_and_explained(constraints: Constraints) -> None:
    graph = flat(accumulated)
    planner = Planner(graph, ON_CPU, constraints=constraints)
    plan = planner.plan(0)
    (loop,) = plan.loops
    assert loop.length == PARTS
    assert isinstance(loop.decision, StagedBody)
    again = rematc.Plan.from_json(plan.to_json())
    assert again.loops == plan.loops
    assert (again.peak, again.time, again.extra_flops) == (plan.peak, plan.time, plan.extra_flops)
    assert same_bits(graph, Planner(graph, ON_CPU).applied(again))
    assert "computed again in stages of each step of the loop" in str(plan)
    assert "1 step" in str(plan)
    found = {one.op for one in loop.stacks}
    assert ("dot_general" in found) == (constraints.never_repeat == ())
    assert any("layer" in one.names for one in loop.stacks) == (constraints.keep == ())
    assert (
        "is computed again in stages of each step of the loop: kept, it would take 512 B until it is read there"
        in plan.explain("tanh")
    )


@pytest.mark.parametrize(
    "stages",
    [Stages((200,), ((0,),)), Stages((3,), ((4,),)), Stages((0,), ((),))],
    ids=["late", "not yet run", "early"],
)
def test_stages_that_a_step_cannot_run_in_are_refused(stages: Stages) -> None:
    graph = flat(accumulated)
    (place,) = [place for place, eqn in enumerate(graph.equations) if eqn.op.name == "scan"]
    with pytest.raises(CompileError, match="the plan "):
        with_decisions(graph, [StagedBody((), place, stages)])
    with pytest.raises(CompileError, match="another program"):
        with_decisions(graph, [StagedBody((), len(graph.equations), stages)])


def test_a_document_with_a_loop_that_nothing_is_said_of_is_refused() -> None:
    text = Planner(flat(accumulated), ON_CPU).plan(0).to_json()
    begin = text.index('"stages": [', text.index('"loops": ['))
    with pytest.raises(CompileError, match="a loop of it either drops"):
        rematc.Plan.from_json(text[:begin] + text[begin:].replace('"stages": [', '"other": [', 1))


def normalized(w: Any, x: Any) -> Any:
    """Layers whose kernels on GPUs compute again what those on CPUs read."""
    for index in range(DEPTH):
        y = np.tanh(x @ w[index])
        z = y - y.mean(-1, keepdims=True)
        z = z / np.sqrt((z * z).mean(-1, keepdims=True) + 1e-5)
        x = x + z * np.exp(-z * z)
    return np.sum(x**2)


@pytest.mark.parametrize("device", [CPU, H100, V5E], ids=lambda device: device.name)
def test_steps_are_planned_for_the_kernels_of_the_device(device: Device) -> None:
    def descent(w: Any, x: Any) -> Any:
        gradient: Callable[..., Any] = rematc.grad(normalized)
        return rematc.scan(lambda w, part: (w - 0.1 * gradient(w, part), None), w, x)[0]

    x = np.zeros((PARTS, 64 * ROWS, WIDTH), np.float32)
    graph = run_passes(rematc.lower(descent, W, x).traced.graph, BEFORE_PLAN).graph
    planner = Planner(graph, Machine(device))
    plan = planner.plan(planner.peak * 2 // 3)
    assert plan.is_feasible
    assert [type(loop.decision) for loop in plan.loops] == [StagedBody]
    assert Plan.from_json(plan.to_json()).does_as(plan)
    step = next(eqn.op.body for eqn in planner.applied(plan).equations if isinstance(eqn.op, Scan))
    assert any(isinstance(eqn.op, Checkpoint) for eqn in all_equations(step))
