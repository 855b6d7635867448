"""Branches compute again what others gave to branches of their index alone: the same bits, and less is handed on."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rematc
import rematc.jax
from rematc.ir.core import Equation, Graph
from rematc.ir.ops.case.op import Case
from rematc.ir.ops.regions import Checkpoint
from rematc.ir.traversal import all_equations
from rematc.ir.verifier import verify
from rematc.lowering.pipeline import BEFORE_PLAN, run_passes
from rematc.passes.planning.addressing import program_of
from rematc.passes.planning.branches_again import with_branches_again
from rematc.passes.planning.constraints import Form
from rematc.passes.planning.device import CPU
from rematc.passes.planning.forms import forms_of
from rematc.passes.planning.plan import Plan
from rematc.passes.planning.shards import Machine
from rematc.passes.planning.translation import translate
from tests.support.same_bits import SameBits

X = np.arange(6, dtype=np.float32).reshape(2, 3) / 4 - 0.5

cond: Callable[..., Any] = rematc.cond


def layer(i: Any, x: Any) -> Any:
    """What the next layer takes, and what only its derivative reads."""
    return cond(i, lambda x: (np.sin(x), np.cos(x)), lambda x: (x * 1, x + 1), x)


def backward(i: Any, *given: Any) -> Any:
    return cond(i, lambda c, *r: c * sum(r), lambda c, *r: c + r[0], *given)


def one_layer(i: Any, x: Any) -> Any:
    y, a = layer(i, x)
    return y, backward(i, y, a)


def two_layers(i: Any, x: Any) -> Any:
    y, a = layer(i, x)
    z, b = layer(i, y)
    return z, backward(i, backward(i, z, b), a)


def that_hand_on(i: Any, x: Any) -> Any:
    """The second branches read what the first give, so that it is there, and give some themselves."""
    y, a = layer(i, x)
    z, b = cond(i, lambda y, a: (y * a, np.tanh(y) + a), lambda y, a: (y + a, a * 2), y, a)
    return z, backward(i, z, a, b)


def for_two_readers(i: Any, x: Any) -> Any:
    y, a = layer(i, x)
    return y, backward(i, y, a), backward(i, y * x, a)


def in_a_step(i: Any, x: Any) -> Any:
    return rematc.scan(lambda c, _: (sum(two_layers(i, c)), None), x, None, length=3)[0]


def read_elsewhere(i: Any, x: Any) -> Any:
    y, a = layer(i, x)
    return y, backward(i, y, a) + a


def of_another_index(i: Any, x: Any) -> Any:
    y, a = layer(i, x)
    return y, backward(np.sum(x) > 0, y, a)


def with_an_effect(i: Any, x: Any) -> Any:
    def shown(x: Any) -> Any:
        jax.debug.print("{}", x)
        return jnp.sin(x), jnp.cos(x)

    y, a = jax.lax.cond(i, shown, lambda x: (x * 1, x + 1), x)
    return y, jax.lax.cond(i, lambda y, a: y * a, lambda y, a: y, y, a)


def traced(function: Callable[..., Any]) -> Graph:
    own = rematc.from_jax(function) if function is with_an_effect else function
    return run_passes(rematc.trace(own, np.bool_(True), X), "cse").graph


def branches(graph: Graph) -> list[Equation]:
    return [eqn for eqn in all_equations(graph) if isinstance(eqn.op, Case)]


def handed_on(graph: Graph) -> int:
    """How many values some branches give to others."""
    found = branches(graph)
    given = {value for eqn in found for value in eqn.results}
    return len({value for eqn in found for value in eqn.operands if value in given})


@pytest.mark.parametrize(
    ("function", "before", "after"),
    [(one_layer, 2, 1), (two_layers, 5, 3), (that_hand_on, 4, 3), (for_two_readers, 2, 1), (in_a_step, 5, 3)],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_what_is_given_to_branches_alone_is_computed_there(
    function: Callable[..., Any], before: int, after: int
) -> None:
    graph = traced(function)
    found = with_branches_again(graph)
    verify(found)
    assert (handed_on(graph), handed_on(found)) == (before, after)
    assert len(branches(found)) == len(branches(graph))
    assert all(SameBits(np.bool_(index), X)(graph, found) for index in (True, False))


def the_next_layer_alone(i: Any, x: Any) -> Any:
    """No derivative: nothing that it reads comes later than what it is given."""
    y, a = layer(i, x)
    return backward(i, y, a)


@pytest.mark.parametrize("function", [read_elsewhere, of_another_index, with_an_effect, the_next_layer_alone])
def test_nothing_changes_where_it_is_read_elsewhere_or_soon_or_must_not_run_again(
    function: Callable[..., Any],
) -> None:
    graph = traced(function)
    assert with_branches_again(graph) is graph
    assert forms_of(graph) == {}


# -- layers that may be left out ---------------------------------------------------------------------------------------

LAYERS, WIDTH = 6, 64
WEIGHTS = [
    (np.random.default_rng(n).normal(size=(WIDTH, 2 * WIDTH)).astype(np.float32) / WIDTH**0.5 / 2, np.float32(n))
    for n in range(LAYERS)
]
BATCH = np.linspace(-1, 1, 512 * WIDTH, dtype=np.float32).reshape(512, WIDTH)
FLAGS = np.array([1, 0, 1, 1, 1, 0], np.float32)


def block(x: Any, weights: Any) -> Any:
    w, scale = weights
    return x + jnp.tanh(jnp.tanh(jnp.tanh(x @ w) * scale)) @ w.T


def step(weights: Any, x: Any, flags: Any) -> Any:
    def loss(weights: Any) -> Any:
        y = x
        for w, flag in zip(weights, flags, strict=True):
            y = jax.lax.cond(flag > 0, block, lambda y, w: y, y, w)
        return jnp.mean(y * y)

    value, gradients = jax.value_and_grad(loss)(weights)
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients), value


def temporary(jitted: Any) -> int:
    return int(jitted.lower(WEIGHTS, BATCH, FLAGS).compile().memory_analysis().temp_size_in_bytes)


def as_many_products_run_again_as_planned(report: Any) -> None:
    found = re.search(r"kept: (\d+) recomputed products.*; the plan runs (\d+) products again", str(report))
    assert found is not None and found[1] == found[2] != "0"
    plan = report.budget.plan
    assert Plan.from_json(plan.to_json()).work == plan.work


@pytest.mark.parametrize("percent", [60, 22])
def test_a_step_whose_layers_are_left_out_at_random_takes_no_more_than_its_budget(percent: int) -> None:
    budget = temporary(jax.jit(step)) * percent // 100
    planned: Any = rematc.jax.jit(step, budget=budget)
    assert temporary(planned) <= budget
    expected = jax.jit(step)(WEIGHTS, BATCH, FLAGS)
    for found, wanted in zip(jax.tree.leaves(planned(WEIGHTS, BATCH, FLAGS)), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6 * np.abs(wanted).max())


def kernels_of_layers(refine: Callable[[Any, Any], Any]) -> list[tuple[str, bool]]:
    """The ops with regions of two layers' derivative, and whether they may run again."""

    def gradient(w: Any, x: Any) -> Any:
        return jax.grad(lambda w: jnp.sum(refine(w, jnp.tanh(refine(w, x))) ** 2))(w)

    graph = run_passes(rematc.trace(rematc.from_jax(gradient), WEIGHTS[0][0], BATCH), BEFORE_PLAN).graph
    program = program_of(translate(graph, Machine(CPU)))
    return [(one.op, one.is_repeatable) for one in program.kernels if one.op in ("scan", "case", "while")]


def test_loops_of_known_length_and_branches_may_run_again() -> None:
    def looped(w: Any, x: Any) -> Any:
        return jax.lax.scan(lambda z, _: (jnp.tanh(z @ w @ w.T + x), None), x, None, length=8)[0]

    def chosen(w: Any, x: Any) -> Any:
        return jax.lax.cond(x[0, 0] > 0, looped, lambda w, x: x @ w @ w.T, w, x)

    def until(w: Any, x: Any) -> Any:
        held = jax.lax.stop_gradient(x)
        return x @ w @ w.T * jax.lax.while_loop(lambda s: jnp.max(s) < 2, lambda s: s * 2, held)

    def until_in_steps(w: Any, x: Any) -> Any:
        return jax.lax.scan(lambda z, _: (until(w, z), None), x, None, length=2)[0]

    assert kernels_of_layers(looped) == [("scan", True)] * 4
    assert kernels_of_layers(chosen) == [("case", True)] * 4
    assert kernels_of_layers(until) == [("while", False)] * 2
    assert {*kernels_of_layers(until_in_steps)} == {("scan", False), ("scan", True)}


def test_layers_that_refine_in_loops_take_no_more_than_a_small_budget() -> None:
    def loss(weights: Any, x: Any) -> Any:
        for w, scale in weights:
            z = jax.lax.scan(lambda z, _: (jnp.tanh(z @ w @ w.T + x), None), x, None, length=8)[0]  # noqa: B023
            x = x + jnp.tanh(z * scale) @ w @ w.T
        return jnp.mean(x * x)

    step = jax.value_and_grad(loss)
    whole: Any = jax.jit(step).lower(WEIGHTS, BATCH).compile()
    budget = int(whole.memory_analysis().temp_size_in_bytes) * 20 // 100
    planned: Any = rematc.jax.jit(step, budget=budget)
    taken = planned.lower(WEIGHTS, BATCH).compile().memory_analysis().temp_size_in_bytes
    assert taken <= budget
    report = planned.report(WEIGHTS, BATCH)
    assert any("output of scan" in str(one) for one in report.budget.plan.computed_again)
    as_many_products_run_again_as_planned(report)
    for found, wanted in zip(
        jax.tree.leaves(planned(WEIGHTS, BATCH)), jax.tree.leaves(whole(WEIGHTS, BATCH)), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def test_the_report_says_that_branches_compute_again() -> None:
    planned: Any = rematc.jax.jit(step, budget="22%")
    report = planned.report(WEIGHTS, BATCH, FLAGS)
    said, plan = str(report), report.budget.plan
    assert plan.extra_flops > 0 and plan.peak < plan.peak_without
    as_many_products_run_again_as_planned(report)
    assert "and branches, " in said or "plan: branches, " in said
    assert "computes again in branches what others gave them" in said


def test_the_form_is_that_of_the_program_without_its_own_checkpoints() -> None:
    def checkpointed(w: Any, x: Any) -> Any:
        def loss(w: Any) -> Any:
            y = jax.checkpoint(lambda y: jnp.tanh(jnp.tanh(y @ w)))(x)
            return jnp.sum(jax.lax.cond(y[0, 0] > 0, lambda y: jnp.sin(jnp.sin(y)), lambda y: y, y) ** 2)

        return jax.grad(loss)(w)

    graph = run_passes(rematc.trace(rematc.from_jax(checkpointed), np.eye(3, dtype=np.float32), X), BEFORE_PLAN).graph
    found = forms_of(graph)
    assert set(found) == {Form.MERGED, Form.BRANCHES}
    assert handed_on(found[Form.BRANCHES]) < handed_on(found[Form.MERGED])
    assert not any(isinstance(eqn.op, Checkpoint) for eqn in all_equations(found[Form.BRANCHES]))
