"""Where programs are cut: at the places that make the backward pass small."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rematc
from rematc.ir.core import Graph
from rematc.ir.ops.regions import Checkpoint
from rematc.passes.planning.shards import WHOLE, Shards
from rematc.passes.policies import parse_policy
from rematc.passes.staging.loops import staged_loops
from rematc.passes.staging.problem import Problem, cheapest, least_bound
from rematc.passes.staging.profile import Profile, profile
from rematc.passes.staging.segments import choose_cuts
from rematc.passes.staging.stage import staged_by_all

WIDTH = 64
X = np.ones((128, WIDTH), np.float32)
MiB = 2**20


def traced(function: Any, *args: Any) -> Graph:
    return rematc.trace(function, *args)


def weights(count: int) -> list[Any]:
    return [np.ones((WIDTH, WIDTH), np.float32) for _ in range(2 * count)]


def chain(ws: Any, x: Any) -> Any:
    for first, second in itertools.batched(ws, 2) if hasattr(itertools, "batched") else _pairs(ws):
        x = x + np.tanh(np.tanh(x @ first) @ second)
    return np.mean(x * x)


def _pairs(ws: Any) -> Any:
    return zip(ws[::2], ws[1::2], strict=True)


def profiled(graph: Graph, policy: str) -> Profile:
    wrt, of = ([True] * len(values) for values in (graph.params, graph.results))
    return profile(graph, parse_policy(policy), wrt, of)


def regions(graph: Graph) -> list[Checkpoint]:
    return [eqn.op for eqn in graph.equations if isinstance(eqn.op, Checkpoint)]


def test_between_the_segments_of_a_chain_crosses_little() -> None:
    """The stream, and within a layer what is added to it."""
    found = regions(staged_by_all(traced(chain, weights(16), X), parse_policy("nothing")))
    assert len(found) > 3
    for op in found[:-1]:
        assert set(map(str, op.body.result_types)) == {"f32[128,64]"}
        assert len(op.body.results) <= 2


def test_a_skip_over_the_whole_network_is_held_once() -> None:
    """A U-Net: what the encoder gives crosses to the decoder as it is, not through every segment."""

    def unet(ws: Any, x: Any) -> Any:
        skips = []
        for w in ws[:6]:
            x = np.tanh(x @ w)
            skips.append(x)
        for w in ws[6:]:
            x = np.tanh((x + skips.pop()) @ w)
        return np.mean(x)

    graph = traced(unet, weights(6), X)
    before = [eqn.op.name for eqn in graph.equations]
    whole = staged_by_all(graph, parse_policy("nothing"))
    after = [eqn.op.name for op in regions(whole) for eqn in op.body.equations if eqn.op.name != "name"]
    assert sorted(after) == sorted(before), "every equation once"
    assert len(regions(whole)) > 2


def test_cheap_values_of_parameters_are_repeated_and_never_cross() -> None:
    def masked(ws: Any, x: Any) -> Any:
        mask = np.tril(np.ones((128, WIDTH), np.float32)) * x[0, 0]
        for w in ws:
            x = np.tanh(np.where(mask > 0, x @ w, -1.0))
        return np.mean(x)

    found = regions(staged_by_all(traced(masked, weights(8), X), parse_policy("nothing")))
    assert len(found) > 2
    for op in found[:-1]:
        assert [str(type) for type in op.body.result_types] == ["f32[128,64]"]
    assert all(any(eqn.op.name == "compare" for eqn in op.body.equations) for op in found)


def test_small_programs_stay_in_one_piece() -> None:
    small = traced(chain, [np.ones((2, 2))] * 8, np.ones((3, 2)))
    assert len(regions(staged_by_all(small, parse_policy("nothing")))) == 1


def test_a_policy_that_saves_everything_leaves_no_region() -> None:
    graph = traced(chain, weights(8), X)
    assert staged_by_all(graph, parse_policy("everything")) == graph


def test_what_the_policy_saves_is_no_reason_to_cut() -> None:
    graph = traced(chain, weights(16), X)
    found = profiled(graph, "dots")
    assert found.saved.sum() >= 31 * X.nbytes, "nothing reads what the last product gives but the mean"
    assert found.computed.sum() < profiled(graph, "nothing").computed.sum()


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), min_size=2, max_size=7))
def test_the_bound_is_the_least_of_all_ways_to_cut(steps: list[tuple[int, int]]) -> None:
    """Against all subsets of the places. `steps` are what crosses after each stretch, and its working set."""
    count = len(steps)
    sums = np.concatenate([[0.0], np.cumsum([float(size) for _, size in steps])])
    working = np.maximum(sums[None, :] - sums[:, None], 0.0)
    crossing = np.zeros((count + 1, count + 1))
    for end in range(1, count + 1):
        crossing[:end, end] = steps[end - 1][0]

    def peak(cuts: tuple[int, ...]) -> float:
        held, worst = 0.0, 0.0
        for begin, end in itertools.pairwise((0, *cuts, count)):
            worst = max(worst, held + working[begin, end])
            held += crossing[begin, end]
        return worst

    places = range(1, count)
    best = min(peak(cuts) for size in range(count) for cuts in itertools.combinations(places, size))
    problem = Problem(range(count + 1), crossing, working, working[:, -1])
    found = least_bound(problem)
    assert found == pytest.approx(best, abs=1e-3)
    cuts = cheapest(problem, found)
    assert cuts is not None
    assert peak(tuple(cuts[0])) <= found + 1e-9


def test_deep_programs_are_cut_in_time_that_grows_with_them() -> None:
    """Places to cut are thinned out: a thousand layers cost about ten times a hundred."""
    graph = traced(chain, weights(400), X)
    cuts = choose_cuts(profiled(graph, "nothing"))
    assert 5 < len(cuts.places) <= 256


def spread_rows(graph: Graph) -> Shards:
    """The rows of the last parameter are spread over eight devices."""
    return Shards({"data": 8}, {graph.params[-1]: (("data",), ())})


def test_what_one_device_holds_is_what_counts() -> None:
    """All that is computed has the batch's rows but for the loss, and gradients of weights, which are whole."""
    graph = traced(chain, weights(3), X)
    given = [True] * len(graph.params), [True] * len(graph.results)
    one, all = (profile(graph, parse_policy("dots"), *given, shards) for shards in (spread_rows(graph), WHOLE))
    for name in ("read", "saved", "recomputed", "computed"):
        local, whole = getattr(one, name), getattr(all, name)
        assert whole.sum() >= 4 * X.nbytes, name
        np.testing.assert_array_equal(8 * local, whole, err_msg=name)
    assert 8 * sum(one.crossing.values()) == pytest.approx(sum(all.crossing.values()), rel=1e-3)
    # An adjoint works with cotangents of its rows and one gradient of weights.
    gradient = 4 * WIDTH * WIDTH
    assert max(one.adjoint) <= max(all.adjoint) / 8 + 2 * gradient


def test_a_loop_that_holds_little_on_one_device_is_not_staged() -> None:
    def loop(ws: Any, x: Any) -> Any:
        last: Any = rematc.scan(lambda x, w: (np.tanh(np.tanh(x @ w) @ w), None), x, ws)[0]
        return np.mean(last)

    graph = traced(loop, np.ones((4, 16, 16), np.float32), np.ones((128, 16), np.float32))
    policy = parse_policy("nothing")
    assert staged_loops(graph, policy)
    shards = spread_rows(graph)
    shards.follow(graph)
    assert not staged_loops(graph, policy, shards)
