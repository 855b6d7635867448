"""A program's own checkpoints under a budget: planned anew, the same to the bit, faster or smaller than they stand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import rematc
import rematc.jax
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.ir.ops.regions import Checkpoint
from rematc.ir.ops.scan.op import Scan
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.ir.traversal import all_equations
from rematc.ir.verifier import verify
from rematc.lowering.pipeline import BEFORE_PLAN, run_passes
from rematc.passes.planning.constraints import Form
from rematc.passes.planning.device import CPU
from rematc.passes.planning.opened import opened
from rematc.passes.planning.plan import Plan
from rematc.passes.planning.planner import Planner
from rematc.passes.planning.shards import Machine
from tests.support.same_bits import SameBits

DEPTH, ROWS, WIDTH = 4, 256, 16
RANDOM = np.random.default_rng(0)
WEIGHTS = RANDOM.normal(size=(DEPTH, 2, WIDTH, WIDTH)).astype(np.float32) / 4
X = RANDOM.normal(size=(ROWS, WIDTH)).astype(np.float32)
POLICIES = jax.checkpoint_policies

Wrap = Callable[[Any], Any]


def layer(w: Any, x: Any) -> Any:
    return x + jnp.tanh(jnp.tanh(x @ w[0]) @ w[1])


def plain(function: Any) -> Any:
    return function


def unrolled(wrap: Wrap) -> Any:
    def loss(w: Any, x: Any) -> Any:
        for index in range(DEPTH):
            x = wrap(layer)(w[index], x)
        return jnp.mean(x**2)

    return loss


def scanned(wrap: Wrap) -> Any:
    def loss(w: Any, x: Any) -> Any:
        return jnp.mean(jax.lax.scan(lambda x, w: (wrap(layer)(w, x), None), x, w)[0] ** 2)

    return loss


def accumulated(wrap: Wrap) -> Any:
    """Not a loss: the gradients of two halves of the batch, each of a loop over layers, are summed in a loop."""

    def gradients(w: Any, x: Any) -> Any:
        step = lambda total, part: (total + jax.grad(scanned(wrap))(w, part), None)  # noqa: E731
        return jax.lax.scan(step, 0 * w, x.reshape(2, -1, WIDTH))[0]

    return gradients


def random(wrap: Wrap) -> Any:
    """Each layer draws numbers, in its checkpoint."""

    def draw(w: Any, x: Any, key: Any) -> Any:
        return layer(w, x) * jax.random.bernoulli(key, 0.5, x.shape)

    def loss(w: Any, x: Any) -> Any:
        for index in range(DEPTH):
            x = wrap(draw)(w[index], x, jax.random.key(index))
        return jnp.mean(x**2)

    return loss


LOSSES = [unrolled, scanned, random]
WRAPS: dict[str, Wrap] = {
    "all": jax.checkpoint,
    "dots": lambda function: jax.checkpoint(function, policy=POLICIES.dots_saveable),
    "whole": lambda function: jax.checkpoint(jax.checkpoint(function)),
}


def step_of(loss: Any, wrap: Wrap) -> Any:
    if loss is accumulated:
        return lambda w, x: w - 0.1 * loss(wrap)(w, x)

    def step(w: Any, x: Any) -> Any:
        value, gradient = jax.value_and_grad(loss(wrap))(w, x)
        return w - 0.1 * gradient, value

    return step


def flat(loss: Any, wrap: Wrap) -> Graph:
    return run_passes(rematc.trace(rematc.from_jax(step_of(loss, wrap)), WEIGHTS, X), BEFORE_PLAN).graph


def flops(graph: Graph) -> int:
    return sum(eqn.flops for eqn in graph.equations)


same_bits = SameBits(WEIGHTS, X)


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("loss", [*LOSSES, accumulated])
def test_what_checkpoints_compute_again_is_there_once(loss: Any, wrap: str) -> None:
    graph, without = flat(loss, WRAPS[wrap]), flat(loss, plain)
    assert any(isinstance(eqn.op, Checkpoint) for eqn in all_equations(graph))
    found = opened(graph)
    has_loops = any(isinstance(eqn.op, Scan) for eqn in all_equations(graph))
    assert set(found) == ({Form.MERGED, Form.STACKED} if has_loops else {Form.MERGED})
    for one in found.values():
        verify(one)
        assert not any(isinstance(eqn.op, Checkpoint) for eqn in all_equations(one))
        assert same_bits(graph, one)
    products = [sum(eqn.op.is_product for eqn in all_equations(one)) for one in (*found.values(), without)]
    assert products[-2] == products[-1], "the last one is all that can be done"
    assert flops(list(found.values())[-1]) <= 1.02 * flops(without)


def test_a_program_without_checkpoints_stays() -> None:
    assert opened(flat(scanned, plain)) == {}


@pytest.mark.parametrize("loss", LOSSES)
def test_with_more_memory_nothing_is_computed_again(loss: Any) -> None:
    graph = flat(loss, jax.checkpoint)
    planner = Planner(graph, Machine(CPU), forms=opened(graph))
    without = Planner(flat(loss, plain), Machine(CPU))
    plan = planner.plan(2 * without.peak)
    assert plan.constraints.form and plan.is_feasible
    assert plan.time < planner.plan(planner.peak).time
    assert (plan.time, plan.extra_flops) == (plan.time_without, 0)
    assert plan.flops <= 1.02 * without.plan(without.peak).flops
    assert "plans its own checkpoints anew" in str(plan)


def test_a_curve_goes_on_to_where_nothing_is_computed_again() -> None:
    graph = flat(unrolled, jax.checkpoint)
    planner = Planner(graph, Machine(CPU), forms=opened(graph))
    first, *_, last = planner.curve(5)
    assert first.peak < planner.peak < last.peak
    assert last.time == last.time_without < first.time


def test_with_less_memory_than_the_checkpoints_take_there_is_a_plan() -> None:
    graph = flat(unrolled, jax.checkpoint)
    standing, planner = Planner(graph, Machine(CPU)), Planner(graph, Machine(CPU), forms=opened(graph))
    assert planner.plan(0).peak < standing.plan(0).peak


@pytest.mark.parametrize("loss", LOSSES)
def test_plans_are_saved_and_applied(loss: Any) -> None:
    graph = flat(loss, jax.checkpoint)
    planner = Planner(graph, Machine(CPU), forms=opened(graph))
    for budget in (0, planner.peak, 4 * planner.peak):
        plan = planner.plan(budget)
        again = Plan.from_json(plan.to_json())
        assert again.does == plan.does
        assert (again.peak, again.time, again.extra_flops) == (plan.peak, plan.time, plan.extra_flops)
        assert same_bits(graph, planner.applied(again))
        assert all(loop.products == one.products for loop, one in zip(plan.loops, again.loops, strict=True))


def test_a_plan_for_checkpoints_that_are_not_there_is_refused() -> None:
    graph = flat(scanned, jax.checkpoint)
    plan = Planner(graph, Machine(CPU), forms=opened(graph)).plan(2**30)
    with pytest.raises(CompileError, match="is planned in a form that this one has not"):
        Planner(flat(scanned, plain), Machine(CPU)).applied(plan)
    text = plan.to_json().replace('"form": "stacked"', '"form": "other"')
    with pytest.raises(CompileError, match=r"'form' of 'constraints' is \"other\", expected one of"):
        Plan.from_json(text)


@pytest.mark.parametrize(("loss", "budget"), [(unrolled, "90%"), (scanned, "90%"), (scanned, "300%")])
def test_steps_of_jax_meet_their_budgets(loss: Any, budget: str) -> None:
    step = step_of(loss, jax.checkpoint)
    jitted: Any = rematc.jax.jit(step, budget=budget)
    report = jitted.report(WEIGHTS, X).budget
    assert report.measured <= report.budget
    for a, b in zip(jitted(WEIGHTS, X), jax.jit(step)(WEIGHTS, X), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)
    again: Any = rematc.jax.jit(step, plan=Plan.from_json(report.plan.to_json()))
    assert again.lower(WEIGHTS, X).as_text() == jitted.lower(WEIGHTS, X).as_text()


def test_regions_that_rematc_was_asked_for_and_differentiates_stay() -> None:
    def loss(w: Any, x: Any) -> Any:
        for index in range(DEPTH):
            x = rematc.jax.checkpoint(layer)(w[index], x)
        return jnp.mean(x**2)

    def own(x: Any, w: Any) -> Any:
        return rematc.checkpoint(lambda x: np.tanh(np.tanh(x @ w) @ w))(x)

    def squared(w: Any, x: Any) -> Any:
        return np.sum(own(own(x, w[0, 0]), w[0, 1]) ** 2)

    for function in (rematc.grad(rematc.from_jax(loss)), rematc.grad(squared)):
        graph = run_passes(rematc.trace(function, WEIGHTS, X), BEFORE_PLAN).graph
        assert any(isinstance(eqn.op, Checkpoint) for eqn in all_equations(graph))
        assert opened(graph) == {}


def exported(function: Any) -> Graph:
    text = jax.export.export(jax.jit(function))(WEIGHTS, X).mlir_module()
    return run_passes(rematc.trace(rematc.from_stablehlo(text), WEIGHTS, X), BEFORE_PLAN).graph


@pytest.mark.parametrize("loss", [unrolled, scanned])
def test_barriers_of_another_frontend_that_keep_recomputation_apart_are_left_out(loss: Any) -> None:
    graph, without = exported(step_of(loss, jax.checkpoint)), exported(step_of(loss, plain))
    assert any(isinstance(eqn.op, OptimizationBarrier) for eqn in all_equations(graph))
    found = list(opened(graph).values())
    assert len(found) == (2 if loss is scanned else 1)
    for one in found:
        verify(one)
        assert not any(isinstance(eqn.op, OptimizationBarrier) for eqn in all_equations(one))
        assert same_bits(graph, one)
    products = [sum(eqn.op.is_product for eqn in all_equations(one)) for one in (graph, found[-1], without)]
    assert products[0] > products[1] == products[2]


def test_other_barriers_stay() -> None:
    def apart(w: Any, x: Any) -> Any:
        barrier: Any = jax.lax.optimization_barrier
        return jnp.sum(jnp.tanh(barrier(x @ w[0, 0])) @ w[0, 1])

    assert opened(exported(apart)) == {}
    graph = run_passes(rematc.trace(rematc.from_jax(step_of(lambda _: apart, plain)), WEIGHTS, X), BEFORE_PLAN).graph
    assert any(isinstance(eqn.op, OptimizationBarrier) for eqn in graph.equations)
    assert opened(graph) == {}
