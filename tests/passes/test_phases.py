"""The phases of equations: a derivative marks its own, and what repeats others is found in the whole program."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import rematc
from rematc.ir.core import Graph
from rematc.ir.ops.regions import Call
from rematc.ir.ops.scan.op import Scan
from rematc.ir.parser import parse_graph
from rematc.ir.printer import print_graph
from rematc.lowering.pipeline import default_pipeline
from rematc.passes.memory_timeline import BACKWARD, FORWARD, RECOMPUTED
from rematc.passes.phases import Phases, phases_of

X = np.ones((16, 8), np.float32)
WEIGHTS = np.full((4, 2, 8, 8), 0.1, np.float32)


def layer(weights: Any, x: Any) -> Any:
    return x + np.sin(np.tanh(x @ weights[0]) @ weights[1])


def chain(layers: Any, x: Any) -> Any:
    for weights in layers:
        x = rematc.checkpoint(layer)(weights, x)
    return np.mean(x * x)


def loop(layers: Any, x: Any) -> Any:
    x, _ = rematc.lax.scan(lambda carry, weights: (rematc.checkpoint(layer)(weights, carry), None), x, layers)
    return np.mean(x * x)


def graph_of(function: Any, *args: Any, **options: Any) -> Graph:
    return rematc.lower(rematc.value_and_grad(function), *args, **options).graph


def products(graph: Graph, phases: Phases) -> list[str]:
    """The phases of products, those of regions where they stand."""
    found = []
    for eqn in graph.equations:
        if eqn.op.is_product:
            found.append(str(phases[eqn].phase))
        for region in eqn.op.regions():
            found += products(region, phases[eqn].inside)
    return found


def test_each_checkpoint_recomputes_in_a_stage_of_its_own() -> None:
    graph = graph_of(chain, WEIGHTS, X)
    assert Counter(products(graph, phases_of(graph))) == Counter(
        {FORWARD: 8, BACKWARD: 15, **{f"recompute/{stage}": 2 for stage in range(1, 5)}}
    ), "the first layer's argument has no cotangent"


def test_without_a_barrier_what_is_merged_is_computed_once() -> None:
    graph = graph_of(chain, WEIGHTS, X, passes=default_pipeline("none"))
    assert set(products(graph, phases_of(graph))) == {FORWARD, BACKWARD}


def test_a_step_of_the_backward_loop_repeats_what_one_of_the_forward_loop_computed() -> None:
    graph = graph_of(loop, WEIGHTS, X)
    assert products(graph, phases_of(graph)) == [FORWARD] * 2 + ["recompute/1"] * 2 + [BACKWARD] * 4
    assert sum(isinstance(eqn.op, Scan) for eqn in graph.equations) == 2


def test_functions_that_stay_are_written_once_and_say_what_holds_for_all_calls() -> None:
    graph = graph_of(chain, WEIGHTS, X, passes=default_pipeline("call"))
    phases = phases_of(graph)
    calls = [eqn for eqn in graph.equations if isinstance(eqn.op, Call)]
    bodies = {id(phases[eqn].inside) for eqn in calls}
    assert len(calls) == 4 and len(bodies) < 4, "layers alike are one function"
    found = {phased.phase.name for eqn in calls for phased in phases[eqn].inside.values()}
    assert found == {RECOMPUTED, BACKWARD}
    shared = [phases[eqn].inside for eqn in calls if sum(phases[eqn].inside is phases[one].inside for one in calls) > 1]
    assert {phased.phase.stage for inside in shared for phased in inside.values()} == {0}


def test_a_backward_pass_that_is_a_function_is_found_in_it() -> None:
    function: Any = rematc.value_and_grad(lambda x: np.sum(np.sin(np.cos(x))), policy="nothing")
    graph = rematc.lower(function, X, passes=default_pipeline("call")).graph
    (call,) = [eqn for eqn in graph.equations if isinstance(eqn.op, Call)]
    assert not any(eqn.loc is not None and eqn.loc.is_backward for eqn in graph.equations)
    found = phases_of(graph)[call]
    assert found.phase.name == BACKWARD
    assert {phased.phase.name for phased in found.inside.values()} == {RECOMPUTED, BACKWARD}


def test_what_follows_from_gradients_is_of_the_backward_pass() -> None:
    differentiated: Any = rematc.value_and_grad(chain)

    def step(layers: Any, x: Any) -> Any:
        value, gradient = differentiated(layers, x)
        rate = np.cos(x[0, 0])
        return value, layers - rate * gradient, np.sqrt(np.sum(gradient * gradient))

    graph = rematc.lower(step, WEIGHTS, X).graph
    phases = phases_of(graph)
    writes = {value: phases[eqn].phase.name for eqn in graph.equations for value in eqn.results}
    assert [writes[value] for value in graph.results] == [FORWARD, BACKWARD, BACKWARD]
    (rate,) = [eqn for eqn in graph.equations if eqn.op.name == "cosine" and not eqn.result_types[0].shape]
    assert phases[rate].phase.name == FORWARD, "a rate follows from no gradient"


@pytest.mark.parametrize("function", [chain, loop])
def test_a_program_without_a_derivative_has_none(function: Any) -> None:
    assert phases_of(rematc.lower(function, WEIGHTS, X).graph) == {}


def test_marks_are_no_part_of_text_and_equality() -> None:
    graph = graph_of(chain, WEIGHTS, X)
    text = print_graph(graph)
    again = parse_graph(text)
    assert print_graph(again) == text and again == graph
    assert phases_of(again) == {}
    loc = next(eqn.loc for eqn in graph.equations if eqn.loc is not None)
    assert loc == loc.backward() and hash(loc) == hash(loc.backward())
