"""Programs that repeat themselves: where they do, and that large ones are cut alike in each layer."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest

import rematc
from rematc.ir.core import Graph
from rematc.ir.ops.regions import Checkpoint
from rematc.ir.printer import print_graph
from rematc.lowering.pipeline import default_pipeline
from rematc.passes.policies import parse_policy
from rematc.passes.staging.problem import least_bound, problem_at
from rematc.passes.staging.profile import Profile, profile
from rematc.passes.staging.regular import _Held, regular_cuts
from rematc.passes.staging.repetition import find_repetitions
from rematc.passes.staging.segments import _live_bytes, _local_minima, choose_cuts
from rematc.passes.staging.stage import staged_by_all

WIDTH = 64
X = np.ones((128, WIDTH), np.float32)


def layer(w: Any, x: Any) -> Any:
    return x + np.tanh(np.tanh(x @ w) * 2.0 - x @ w)


def network(ws: Any, x: Any) -> Any:
    for w in ws:
        x = layer(w, x)
    return np.mean(x * x)


def wide(ws: Any, x: Any) -> Any:
    """Layers that compute much more than what crosses between them."""
    for up, down in ws:
        hidden = x @ up
        for _ in range(4):
            hidden = np.tanh(hidden * 2.0 + hidden * hidden)
        x = x + hidden @ down
    return np.mean(x * x)


WIDE = [(np.ones((WIDTH, 16 * WIDTH), np.float32), np.ones((16 * WIDTH, WIDTH), np.float32))] * 80


def traced(layers: int) -> Graph:
    return rematc.trace(network, [np.ones((WIDTH, WIDTH), np.float32)] * layers, X)


def profiled(graph: Graph, policy: str) -> Profile:
    wrt, of = ([True] * len(values) for values in (graph.params, graph.results))
    return profile(graph, parse_policy(policy), wrt, of)


def test_layers_are_found() -> None:
    graph = traced(10)
    (found,) = find_repetitions(graph.equations, 0, len(graph.equations))
    names = [eqn.op.name for eqn in graph.equations]
    layers = [names[place : place + found.period] for place in range(found.begin, found.end, found.period)]
    assert found.count >= 9
    assert all(one == layers[0] for one in layers)
    assert layers[0].count("dot_general") == 2


def test_of_layers_with_equal_parts_the_layers_count() -> None:
    def parts(ws: Any, x: Any) -> Any:
        for w in ws:
            for _ in range(4):
                x = np.sin(np.tanh(x @ w) * 2.0 + x)
            x = np.exp(x - np.max(x, axis=0))
        return np.mean(x)

    graph = rematc.trace(parts, [np.ones((WIDTH, WIDTH), np.float32)] * 8, X)
    (found,) = find_repetitions(graph.equations, 0, len(graph.equations))
    names = [eqn.op.name for eqn in graph.equations]
    assert names[found.begin : found.begin + found.period].count("dot_general") == 4
    assert names[found.begin : found.begin + found.period].count("exponential") == 1


def test_twice_is_no_repetition() -> None:
    graph = traced(2)
    assert find_repetitions(graph.equations, 0, len(graph.equations)) == ()


@pytest.mark.parametrize("policy", ["nothing", "dots"])
def test_regular_cuts_stand_at_the_same_places_of_each_layer(policy: str) -> None:
    graph = traced(40)
    found = profiled(graph, policy)
    end = len(graph.equations)
    live = _live_bytes(found)
    (repetition,), cuts = regular_cuts(found, _local_minima(live), live, 0, end)
    names = [eqn.op.name for eqn in graph.equations]
    segments = [tuple(names[begin:stop]) for begin, stop in itertools.pairwise(cuts)]
    assert len(set(segments)) <= 2
    assert repetition.begin < cuts[0]
    assert cuts[-1] < repetition.end
    # And what they are chosen by is what staging counts.
    problem = problem_at(found, [0, *cuts, end], frozenset(cuts))
    assert _most(problem) < problem.whole


def test_a_large_program_has_few_kinds_of_segments() -> None:
    """One layer and another differ by the names of their parameters only."""
    whole = staged_by_all(rematc.trace(wide, WIDE, X), parse_policy("nothing"))
    bodies = [eqn.op.body for eqn in whole.equations if isinstance(eqn.op, Checkpoint)]
    kinds = {re.sub("%ws_[0-9_]+", "%w", print_graph(body, locations=False)) for body in bodies}
    assert len(bodies) >= len(WIDE) - 1
    assert len(kinds) <= 5


def test_functions_of_alike_segments_are_one() -> None:
    lowered = rematc.lower(rematc.value_and_grad(wide, policy="nothing"), WIDE, X, passes=default_pipeline("call"))
    text = lowered.stablehlo()
    assert text.count("func.call") >= len(WIDE) - 1
    assert text.count("func.func") <= 8


def test_a_small_program_is_cut_where_that_needs_least() -> None:
    """Alike or not: XLA compiles it in no time."""
    graph = traced(12)
    end = len(graph.equations)
    found = profiled(graph, "nothing")
    cuts = choose_cuts(found).places
    problem = problem_at(found, [0, *cuts, end])
    live = _live_bytes(found)
    _, alike = regular_cuts(found, _local_minima(live), live, 0, end)
    other = problem_at(found, [0, *alike, end])
    assert _most(problem) <= _most(other)


def _most(problem: Any) -> float:
    held, most = 0.0, 0.0
    for index in range(len(problem.places) - 1):
        most = max(most, held + problem.working[index, index + 1])
        held += problem.crossing[index, index + 1]
    return most


@pytest.mark.parametrize("policy", ["nothing", "dots"])
def test_regular_cuts_are_rated_by_what_the_search_for_the_best_ones_minimizes(policy: str) -> None:
    found = profiled(traced(10), policy)
    (repetition,) = find_repetitions(found.equations, 0, len(found.equations))
    held = _Held(found, repetition)
    draw = np.random.default_rng(0)
    inside = range(repetition.begin + 1, repetition.end)
    for count in (1, 2, 5, 9):
        cuts = sorted(draw.choice(inside, count, replace=False).tolist())
        problem = problem_at(found, [repetition.begin, *cuts, repetition.end], frozenset(cuts))
        assert held.most(cuts) == _most(problem) == pytest.approx(least_bound(problem), rel=1e-4)
