"""Memory against time: plans for many budgets, and policies."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import jax
import numpy as np
import pytest

import rematc
from rematc.compiler.reports.labelling import Label
from rematc.compiler.reports.pareto import Pareto, ParetoPoint, marked
from rematc.compiler.reports.scatter import Mark, scatter
from rematc.ir.errors import CompileError
from tests.compiler.driver.test_budget import SHAPES, STEP, loss


@pytest.fixture(scope="module")
def curve() -> Pareto:
    return rematc.pareto(STEP, *SHAPES, points=4)


def test_the_curve_goes_from_the_smallest_peak_to_everything(curve: Pareto) -> None:
    names = {point.name for point in curve.points}
    assert {"nothing", "dots", "auto", "everything"} <= names
    plans = [point for point in curve.points if point.plan is not None]
    assert len(plans) == 3
    assert [point.memory for point in curve.points] == sorted(point.memory for point in curve.points)
    everything = next(point for point in curve.points if point.name == "everything")
    assert (everything.extra_seconds, everything.extra_flops, everything.is_dominated) == (0, 0, False)
    assert everything.measured == rematc.compile(STEP, *SHAPES).memory().temp_bytes
    assert curve.points[0].memory < everything.memory
    kept = [point for point in curve.points if not point.is_dominated]
    assert [point.extra_seconds for point in kept] == sorted([point.extra_seconds for point in kept], reverse=True)


def test_policies_are_measured_under_themselves(curve: Pareto) -> None:
    nothing = next(point for point in curve.points if point.name == "nothing")
    step = rematc.value_and_grad(rematc.from_jax(loss), policy="nothing")
    assert nothing.measured == rematc.compile(step, *SHAPES).memory().temp_bytes
    assert nothing.extra_flops > 0
    assert nothing.extra_seconds > 0


def test_a_plan_of_the_curve_can_be_applied(curve: Pareto) -> None:
    point = next(point for point in curve.points if point.plan is not None)
    assert rematc.compile(STEP, *SHAPES, plan=point.plan).memory().temp_bytes == point.measured


def test_a_policy_that_the_function_has_already_leaves_none_beside_plans() -> None:
    step = rematc.value_and_grad(rematc.from_jax(loss), policy="dots")
    curve = rematc.pareto(step, *SHAPES, points=2, measure=False)
    assert [point.name for point in curve.points if point.plan is None] == ["no plan"]
    assert all(point.measured is None for point in curve.points)


def test_a_function_without_derivatives_has_plans_alone() -> None:
    curve = rematc.pareto(rematc.from_jax(loss), *SHAPES, points=2, measure=False)
    assert [point.name for point in curve.points] == ["everything"]


def head(w: Any, x: Any) -> Any:
    logits = np.tanh(x @ w[:, :64]) @ w[:, 64:].T @ w
    most = np.max(logits, -1, keepdims=True)
    return np.sum(np.log(np.sum(np.exp(logits - most), -1, keepdims=True)) + most)


_struct: Any = jax.ShapeDtypeStruct  # whose constructor JAX leaves untyped
HEAD = _struct((64, 128), np.float32), _struct((4096, 64), np.float32)


def test_slices_stand_beside_plans_and_policies() -> None:
    step = rematc.value_and_grad(head)
    whole, curve = (rematc.pareto(step, *HEAD, points=3, slices=slices) for slices in ("off", "auto"))
    assert {point.slices for point in whole.points} == {1}
    assert {point.slices for point in curve.points} == {1, 4, 16, 64}
    beside = [point for point in curve.points if point.slices == 1]
    assert {replace(point, is_dominated=False) for point in beside} == {
        replace(point, is_dominated=False) for point in whole.points
    }
    cut = next(point for point in curve.points if point.name == "16 slices")
    assert cut.plan is None and cut.measured == rematc.compile(step, *HEAD, slices=16).memory().temp_bytes
    assert curve.points[0].slices > 1 and curve.points[0].memory < whole.points[0].memory
    planned = next(point for point in curve.points if point.slices > 1 and point.plan is not None)
    assert rematc.compile(step, *HEAD, plan=planned.plan).memory().temp_bytes == planned.measured
    assert planned.name.startswith(f"{planned.slices} slices, plan ")
    only = rematc.pareto(step, *HEAD, points=2, slices=4, measure=False)
    assert {point.slices for point in only.points} == {1, 4}
    assert planned.plan is not None
    as_planned = rematc.pareto(step, *HEAD, points=2, slices=planned.plan.slices, measure=False)
    assert {point.slices for point in as_planned.points} == {1, planned.slices}
    with pytest.raises(CompileError, match="has slices of its own"):
        rematc.pareto(rematc.value_and_grad(head, slices=4), *HEAD, slices="auto")
    total = rematc.value_and_grad(np.sum)
    with pytest.raises(CompileError, match="4 slices"):
        rematc.pareto(total, HEAD[0], slices=4)
    assert {point.slices for point in rematc.pareto(total, HEAD[0], slices="auto").points} == {1}


def test_what_is_no_curve() -> None:
    with pytest.raises(CompileError, match="2 points or more, got 1"):
        rematc.pareto(STEP, *SHAPES, points=1)
    with pytest.raises(CompileError, match="leave out budget"):
        rematc.pareto(STEP, *SHAPES, budget="50%")


def test_dominated_points_are_marked() -> None:
    def at(memory: int, seconds: float) -> ParetoPoint:
        return ParetoPoint("", memory, seconds, 0)

    points = marked([at(4, 1.0), at(2, 2.0), at(4, 2.0), at(3, 3.0), at(4, 1.0)])
    found = [(point.memory, point.extra_seconds, point.is_dominated) for point in points]
    assert found == [(2, 2.0, False), (3, 3.0, True), (4, 1.0, False), (4, 1.0, False), (4, 2.0, True)]


def test_the_curve_is_data_a_table_and_a_picture(curve: Pareto) -> None:
    document: dict[str, Any] = curve.as_dict()
    assert [point["measured"] for point in document["points"]] == [point.measured for point in curve.points]
    assert document["points"][0].keys() == {
        *("name", "predicted", "extra_seconds", "extra_flops", "measured", "is_dominated", "plan", "slices")
    }
    assert "everything" in str(curve)
    picture = ElementTree.fromstring(curve.svg("a <b> & c"))
    texts = [element.text for element in picture.iter() if element.tag.endswith("text")]
    assert {"a <b> & c", "temporary memory, MiB"} <= set(texts)
    assert {"nothing", "everything"} <= {name for text in texts for name in (text or "").split(", ")}
    assert len([element for element in picture.iter() if element.tag.endswith("circle")]) == len(curve.points)


@pytest.mark.parametrize("marks", [[Mark(0, 0)], [Mark(3, -2), Mark(5e9, 1e-9)], [Mark(7, 0, "x", False)]])
def test_any_points_have_a_picture_and_stand_inside(marks: list[Mark]) -> None:
    picture = ElementTree.fromstring(scatter(marks, "x", "y"))
    for circle in picture.iter("{http://www.w3.org/2000/svg}circle"):
        assert 0 <= float(circle.attrib["cx"]) <= 640
        assert 0 <= float(circle.attrib["cy"]) <= 400


@pytest.mark.parametrize("is_filled", [True, False])
def test_labels_stand_apart_and_inside(is_filled: bool) -> None:
    places = [(0.5, 90), (0.5, 30), (0.63, 17), (1.1, 13), (1.1, 13), (1.12, 0), (1.12, 0), (1.12, 2)]
    marks = [Mark(x, y, f"label {at}", is_filled) for at, (x, y) in enumerate(places)]
    picture = ElementTree.fromstring(scatter(marks, "x", "y", "a title " * 40))
    texts = [element for element in picture.iter() if element.tag.endswith("text")]
    found = [
        Label(float(each.attrib["x"]), float(each.attrib["y"]), each.text or "", each.attrib["text-anchor"])
        for each in texts
    ]
    assert {"label 3, label 4", "label 5, label 6"} <= {one.text for one in found}
    assert all(one.is_inside(640, 400) for one in found)
    assert not any(one.overlaps(other) for one, other in itertools.combinations(found, 2))
    points = [(float(each.attrib["cx"]), float(each.attrib["cy"])) for each in picture.iter() if "cx" in each.attrib]
    assert not any(one.covers(point) for one in found for point in points)
