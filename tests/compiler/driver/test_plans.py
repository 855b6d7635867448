"""Plans saved, and applied to the program that they were made for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rematc
from rematc.compiler.driver.budget import Planner
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.lowering.pipeline import BEFORE_PLAN
from rematc.passes.linearize import vjp
from tests.compiler.driver.test_budget import SHAPES, STEP, loss
from tests.passes.test_barriers import training_step
from tests.support.smooth_graphs import arrays_for, is_float, smooth_graphs


@settings(max_examples=15)
@given(smooth_graphs(regions=0), st.sampled_from([5, 6, 8, 10]))
def test_a_plan_read_from_its_document_gives_the_same_text(graph: Graph, tenths: int) -> None:
    step, arrays = training_step(vjp(graph, is_float(graph))), arrays_for(graph)
    cts = [np.ones(param.type.shape, param.type.dtype.numpy) for param in step.params[len(arrays) :]]
    lowered = rematc.lower(step, *arrays, *cts)
    planner = Planner(lowered)
    plan = planner.plan(planner.peak * tenths // 10)
    text = planner.lower(plan, plan.budget).stablehlo()
    again = rematc.lower(step, *arrays, *cts, plan=rematc.Plan.from_json(plan.to_json()))
    assert again.stablehlo() == text
    assert again.plan == plan


def test_a_plan_is_applied_from_a_file(tmp_path: Path) -> None:
    first = rematc.lower(STEP, *SHAPES, budget="50%")
    plan = first.plan
    assert plan is not None
    file = tmp_path / "plan.json"
    file.write_text(plan.to_json())
    for given_plan in (plan, file, str(file)):
        assert rematc.lower(STEP, *SHAPES, plan=given_plan).stablehlo() == first.stablehlo()
    compiled = rematc.compile(STEP, *SHAPES, plan=file)
    report = compiled.lowered.budget
    assert compiled.plan == plan
    assert report is not None
    assert (report.measured, report.compilations) == (compiled.memory().temp_bytes, 1)
    assert compiled.memory().temp_bytes < rematc.compile(STEP, *SHAPES).memory().temp_bytes
    assert "computed again" in str(compiled.report())
    passes = f'{BEFORE_PLAN},plan{{file="{file}"}},barriers{{strategy=optimization_barrier}}'
    piped = rematc.lower(STEP, *SHAPES, passes=f"{passes},simplify,cse,dce,narrow,unpad,legalize")
    assert piped.stablehlo() == first.stablehlo()


def test_a_plan_stands_in_the_place_of_the_budget_that_it_was_made_for() -> None:
    step = rematc.value_and_grad(rematc.from_jax(loss), budget="60%")
    plan = rematc.compile(step, *SHAPES).plan
    assert plan is not None
    assert rematc.lower(step, *SHAPES, plan=plan).plan == plan


def test_a_program_without_a_budget_has_no_plan() -> None:
    lowered = rematc.lower(STEP, *SHAPES)
    assert lowered.plan is None
    assert lowered.compile().plan is None


def test_a_plan_of_another_program_is_refused() -> None:
    plan = rematc.lower(STEP, *SHAPES, budget="50%").plan

    def other(weights: Any, x: Any) -> Any:
        return loss([*weights[:-1], jnp.cos(weights[-1])], x)

    step = rematc.value_and_grad(rematc.from_jax(other))
    for wider in ((step, SHAPES), (STEP, (SHAPES[0], np.ones((256, 64), np.float32)))):
        with pytest.raises(
            CompileError, match=r"(?s)made for another program.*kernel \d+: .*at .*test_budget\.py:\d+; now"
        ):
            rematc.lower(wider[0], *wider[1], plan=plan)


def test_what_excludes_a_plan(tmp_path: Path) -> None:
    plan = rematc.lower(STEP, *SHAPES, budget="50%").plan
    with pytest.raises(CompileError, match="leave out budget, or plan"):
        rematc.lower(STEP, *SHAPES, plan=plan, budget="50%")
    with pytest.raises(CompileError, match="leave out passes"):
        rematc.lower(STEP, *SHAPES, plan=plan, passes="dce")
    with pytest.raises(CompileError, match="3 is no plan; pass a rematc"):
        rematc.lower(STEP, *SHAPES, plan=3)
    with pytest.raises(CompileError, match=r"cannot read the plan .*missing\.json"):
        rematc.lower(STEP, *SHAPES, plan=tmp_path / "missing.json")
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(CompileError, match=r"other\.json: this is no plan"):
        rematc.lower(STEP, *SHAPES, plan=tmp_path / "other.json")
    with pytest.raises(CompileError, match="leave out budget, or file"):
        rematc.lower(STEP, *SHAPES, passes="plan{budget=1,file=x}")
