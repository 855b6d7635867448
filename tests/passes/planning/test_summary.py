"""What plans say that they keep and compute again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rematc
from rematc.passes.planning import summary
from rematc.passes.planning.plan import Plan

LAYERS, WIDTH, BATCH = 8, 64, 512
ARGS = [np.eye(WIDTH, dtype=np.float32)] * LAYERS, np.ones((BATCH, WIDTH), np.float32)
LAYER = BATCH * WIDTH * 4


def loss(weights: Any, x: Any) -> Any:
    for place, weight in enumerate(weights):
        x = rematc.checkpoint_name(np.tanh(x @ weight), f"layer {place}")
    return np.sum(x * x)


def planned(step: Any, budget: Any) -> Plan:
    plan = rematc.lower(step, *ARGS, budget=budget).plan
    assert plan is not None
    return plan


@pytest.mark.parametrize("step", [rematc.value_and_grad(loss), rematc.grad(loss)])
def test_without_recomputation_all_residuals_are_kept(step: Any) -> None:
    plan = planned(step, "1GiB")
    names = {f"named 'layer {place}'" for place in range(LAYERS)}
    kept = {one.what for one in plan.kept}
    # Without the loss, the last layer's value is read at once.
    assert names - {f"named 'layer {LAYERS - 1}'"} <= kept
    assert plan.computed_again == ()
    assert plan.work.again == summary.KernelWork(0, 0)
    assert plan.work.total.flops == plan.flops


def test_with_the_loss_the_boundary_is_exact() -> None:
    plan = planned(rematc.value_and_grad(loss), "1GiB")
    assert [one.what for one in plan.kept] == [f"named 'layer {place}'" for place in range(LAYERS)]
    assert plan.work.forward.kernels == 2 * LAYERS + 1


def test_a_layer_is_kept_or_computed_again() -> None:
    plan = planned(rematc.value_and_grad(loss), "75%")
    kept, again = ({one.what for one in values if "layer" in one.what} for values in (plan.kept, plan.computed_again))
    assert kept and again
    assert not kept & again
    assert kept | again == {f"named 'layer {place}'" for place in range(LAYERS)}
    sizes = [one.size for one in plan.computed_again]
    assert sizes == sorted(sizes, reverse=True)
    products = [one for one in plan.computed_again if one.what == "output of dot_general"]
    assert plan.work.products == sum(one.times for one in products)
    assert plan.work.total.flops == plan.flops + plan.extra_flops
    assert Plan.from_json(plan.to_json()).kept == plan.kept


def test_of_loops_the_values_of_a_step_are_named() -> None:
    def looped(weights: Any, x: Any) -> Any:
        def step(x: Any, w: Any) -> Any:
            h = rematc.checkpoint_name(np.tanh(x @ w), "hidden")
            return x + np.sin(h @ w), None

        scan: Any = rematc.scan
        return np.sum(scan(step, x, weights)[0] ** 2)

    weights, x = np.stack(ARGS[0]), ARGS[1]
    free = rematc.lower(rematc.value_and_grad(looped), weights, x, budget="1GiB").plan
    assert free is not None
    assert any(one.what.startswith("named 'hidden'") and one.what.endswith("8 steps") for one in free.kept)
    plan = rematc.lower(rematc.value_and_grad(looped), weights, x, budget="60%").plan
    assert plan is not None
    (hidden,) = [one for one in plan.computed_again if one.what == "named 'hidden'"]
    assert (hidden.steps, hidden.how, hidden.size) == (LAYERS, "in each step", LAYERS * LAYER)
    assert "hidden" not in plan.saved_names
    assert plan.work.looped == 2 * LAYERS


def test_around_loops_that_compute_again_is_a_barrier() -> None:
    """Without one XLA on the CPU would get it as a program that recomputes nothing, with a head in memory twice."""

    def looped(weights: Any, x: Any) -> Any:
        def step(x: Any, w: Any) -> Any:
            return x + np.sin(np.tanh(x @ w) @ w), None

        scan: Any = rematc.scan
        return np.sum(scan(step, x, weights)[0] ** 2)

    lowered = rematc.lower(rematc.value_and_grad(looped), np.stack(ARGS[0]), ARGS[1], budget="60%")
    assert lowered.plan is not None
    assert lowered.plan.loops and not lowered.plan.stages.begins
    assert lowered.stablehlo().count("stablehlo.optimization_barrier") == 1
