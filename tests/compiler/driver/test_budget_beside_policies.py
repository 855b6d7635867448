"""Budgets of what XLA takes under a policy: a plan fits, and takes hardly longer than the policy's program."""

from __future__ import annotations

import functools
from typing import Any

import pytest

import rematc
from benchmarks.architectures import unwrapped
from benchmarks.architectures.language import Language, indexed
from benchmarks.architectures.library import JAX
from rematc.compiler.driver.budget import Planner
from rematc.compiler.driver.pareto import candidates
from rematc.lowering.target import Target

#: Four layers, unrolled, in bfloat16, whose logits are most of the memory.
MODEL = Language(4, False, 128, 2, 2, 512, 30_000, False, indexed)


@functools.cache
def _lowered(policy: str | None) -> Any:
    step = rematc.value_and_grad(rematc.from_jax(MODEL.build(JAX, unwrapped, unwrapped)), policy=policy)
    return rematc.lower(step, *MODEL.shapes())


@functools.cache
def _taken(policy: str) -> tuple[int, float, int]:
    """Bytes that XLA takes under a policy, and seconds and floating-point operations of what is done again."""
    under = _lowered(policy)
    (point,) = [one.point for one in candidates(_lowered(None), {policy: under}, 2) if one.point.name == policy]
    return under.compile().memory().temp_bytes, point.extra_seconds, point.extra_flops


@pytest.mark.slow
@pytest.mark.skipif(
    not Target.of("cpu").keeps_bfloat16, reason="XLA computes with bfloat16 in 32 bits, which plans do not know"
)
def test_logits_that_are_widened_for_several_readers_are_held_as_planned() -> None:
    planner = Planner(_lowered(None))
    plan = planner.plan(0)
    assert planner.lower(plan, 0).compile().memory().temp_bytes <= 1.06 * plan.peak


@pytest.mark.skipif(
    not Target.of("cpu").keeps_bfloat16,
    reason="XLA computes with bfloat16 in 32 bits: no library's product is converted",
)
@pytest.mark.parametrize("policy", ["nothing", "dots", "auto"])
def test_logits_that_the_library_converts_lie_in_the_shape_of_its_product(policy: str) -> None:
    """Nothing is written over them that has another shape, though it has their size."""
    lowered = _lowered(policy)
    assert lowered.predicted_peak() == pytest.approx(lowered.compile().memory().temp_bytes, rel=0.02)


@pytest.mark.parametrize("policy", ["nothing", "dots-no-batch"])
def test_a_budget_that_a_policy_meets_is_met_in_as_little_time(policy: str) -> None:
    budget, seconds, flops = _taken(policy)
    step = rematc.value_and_grad(rematc.from_jax(MODEL.build(JAX, unwrapped, unwrapped)))
    compiled = rematc.compile(step, *MODEL.shapes(), budget=budget)
    plan = compiled.plan
    assert compiled.memory().temp_bytes <= budget
    assert plan is not None and (plan.time - plan.time_without) * 1e-9 <= 1.02 * seconds
    most = 1.3 if Target.of("cpu").keeps_bfloat16 else 1.5
    assert plan.extra_flops <= most * flops, "time is what a plan minimizes: it may multiply more and move less"
