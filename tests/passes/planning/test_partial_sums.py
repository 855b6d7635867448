"""Sums of many values: the planner adds one after another where that takes less time than to compute again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rematc
from rematc.compiler.api.text import parse
from rematc.compiler.driver.budget import Planner
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.passes.kernels import kernels
from rematc.passes.planning.partial_sums import partial_sums
from rematc.passes.planning.plan import Plan

LAYERS, ROWS, WIDTH, SKIP = 8, 2048, 16, 128


def with_skips(weights: Any, x: Any) -> Any:
    """A network that sums up what its layers give. x: [rows, width]; the sum: [rows, skip]."""
    skips = 0.0
    for hidden, skip in weights:
        y = np.tanh(x @ hidden)
        x, skips = x + y, skips + y @ skip
    return np.sum(np.maximum(skips, 0) ** 2)


def arguments() -> tuple[Any, ...]:
    random = np.random.default_rng(0)
    weights = [
        tuple(random.normal(0, 0.3, shape).astype(np.float32) for shape in ((WIDTH, WIDTH), (WIDTH, SKIP)))
        for _ in range(LAYERS)
    ]
    return weights, random.normal(size=(ROWS, WIDTH)).astype(np.float32)


def found_in(text: str) -> list[str]:
    """The names of the values that are partial sums."""
    graph = parse(text)
    stored = kernels(graph.equations, graph.results).stored
    names = {value: f"%{index}" for index, eqn in enumerate(graph.equations) for value in eqn.results}
    return [names[value] for value in names if value in partial_sums(graph.equations, stored)]


SUM = """
graph @main(%x: f32[8,4], %w: f32[4,4]) -> (f32[8,4]) {
  %0: f32[8,4] = dot_general %x, %w {contract=[[1],[0]], batch=[[],[]]}
  %1: f32[8,4] = dot_general %0, %w {contract=[[1],[0]], batch=[[],[]]}
  %2: f32[8,4] = add %0, %1
  %3: f32[8,4] = dot_general %1, %w {contract=[[1],[0]], batch=[[],[]]}
  %4: f32[8,4] = add %2, %3
  %5: f32[8,4] = dot_general %3, %w {contract=[[1],[0]], batch=[[],[]]}
  %6: f32[8,4] = add %5, %4
  return %6
}
"""


def test_all_but_the_last_sum_are_partial() -> None:
    assert found_in(SUM) == ["%2", "%4"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return %6", "return %6, %2"),  # which is in memory anyway
        ("%4: f32[8,4] = add %2, %3", "%4: f32[8,4] = add %2, %0"),  # nothing is there later than its own terms
    ],
)
def test_what_gains_nothing_is_none(old: str, new: str) -> None:
    text = SUM.replace(old, new)
    if "return %6, %2" in text:
        text = text.replace("-> (f32[8,4])", "-> (f32[8,4], f32[8,4])")
    assert "%2" not in found_in(text)


def test_a_plan_adds_one_after_another() -> None:
    args = arguments()
    step = rematc.value_and_grad(with_skips)
    whole = rematc.compile(step, *args)
    planned = rematc.compile(step, *args, budget="60%")
    assert planned.plan is not None
    assert planned.plan.constraints.sums
    assert planned.memory().temp_bytes <= 0.6 * whole.memory().temp_bytes
    assert planned.plan.extra_flops == 0
    for one, other in zip(_leaves(planned(*args)), _leaves(whole(*args)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_plans_that_differ_in_what_they_hold_are_told_apart() -> None:
    """Neither runs anything again: what is expected of the one is not what is expected of the other."""
    planner = Planner(rematc.lower(rematc.value_and_grad(with_skips), *arguments()))
    plain, held = planner.plan(planner.peak), planner.plan(planner.peak * 6 // 10)
    assert (held.stages, held.decisions) == (plain.stages, plain.decisions)
    assert held.constraints.sums and not held.does_as(plain)
    assert planner.expected(held) < planner.expected(plain)


def test_where_there_is_room_nothing_is_pinned() -> None:
    lowered = rematc.lower(rematc.value_and_grad(with_skips), *arguments(), budget="1GiB")
    assert not any(isinstance(eqn.op, OptimizationBarrier) for eqn in lowered.graph.equations)


def test_a_saved_plan_pins_the_same() -> None:
    args = arguments()
    step = rematc.value_and_grad(with_skips)
    lowered = rematc.lower(step, *args, budget="50%")
    assert lowered.plan is not None
    again = rematc.lower(step, *args, plan=Plan.from_json(lowered.plan.to_json()))
    assert again.stablehlo() == lowered.stablehlo()
    assert "optimization_barrier" in again.stablehlo()


def _leaves(tree: Any) -> list[Any]:
    value, gradients = tree
    return [value, *[one for pair in gradients for one in pair]]
