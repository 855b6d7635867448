"""What no tangent comes to, and much would be saved for, is computed before the segments, and only it is saved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rematc
from rematc.ir.core import Graph
from rematc.ir.verifier import verify
from rematc.passes.policies import parse_policy
from rematc.passes.staging.apart import held_apart
from rematc.passes.staging.stage import ways_to_stage

ROWS, WIDTH, WORDS = 16, 8, 512
RANDOM = np.random.default_rng(0)
W, FROZEN = (RANDOM.normal(size=(3, WIDTH, WIDTH)).astype(np.float32) / 3 for _ in range(2))
HEAD = RANDOM.normal(size=(WIDTH, WORDS)).astype(np.float32) / 3
X = RANDOM.normal(size=(ROWS, WIDTH)).astype(np.float32)


def score(w: Any, head: Any, x: Any) -> Any:
    """A number for each row, of logits of many words."""
    for layer in w:
        x = np.tanh(x @ layer)
    logits = x @ head
    return np.sum(np.sin(logits), axis=-1)


def compared(w: Any, frozen: Any, head: Any, x: Any) -> Any:
    """A loss that compares a model with another one, which is not trained."""
    return np.mean(np.exp(score(w, head, x) - score(frozen, head, x)))


def stopped(w: Any, frozen: Any, head: Any, x: Any) -> Any:
    """The same, of a model with itself as it is."""
    return np.mean(np.exp(score(w, head, x) - score(rematc.stop_gradient(w * frozen), head, x)))


def graph_of(function: Any) -> Graph:
    return rematc.trace(function, W, FROZEN, HEAD, X)


WRT = (True, False, False, False)


@pytest.mark.parametrize("function", [compared, stopped])
def test_the_reference_is_a_parameter_of_what_is_cut(function: Any) -> None:
    graph = graph_of(function)
    apart = held_apart(graph, parse_policy("dots"), WRT)
    assert apart is not None and apart.held == 1
    assert apart.rest.params[-1].type.shape == (ROWS,)
    products = [sum(eqn.op.is_product for eqn in part) for part in (apart.before, apart.rest.equations)]
    assert products == [4, 4]
    verify(apart.joined(apart.rest))
    for way in ways_to_stage(graph, parse_policy("dots"), WRT, (True,)):
        verify(way)
        assert way.param_types == graph.param_types


@pytest.mark.parametrize("policy", ["nothing", "everything"])
def test_where_nothing_would_be_saved_for_it_nothing_is_held(policy: str) -> None:
    assert held_apart(graph_of(compared), parse_policy(policy), WRT) is None


@pytest.mark.parametrize("policy", ["dots", "auto"])
def test_what_follows_from_the_model_itself_does_not_run_it_twice(policy: str) -> None:
    def finite(w: Any, frozen: Any, head: Any, x: Any) -> Any:
        x = x @ frozen[0]
        scores = x @ w[0] @ x.T + x @ w[1] @ x.T
        logits = np.exp(scores - scores.max(-1, keepdims=True)) @ x @ head
        most = logits.max(-1)
        return np.mean(np.log(np.sum(np.exp(logits - np.where(np.isfinite(most), most, 0)[:, None]), -1)))

    graph = graph_of(finite)
    assert held_apart(graph, parse_policy(policy), WRT) is None
    lowered = [rematc.lower(rematc.value_and_grad(finite, policy=one), W, FROZEN, HEAD, X) for one in (None, policy)]
    without, under = [one.stablehlo().count("stablehlo.dot_general") for one in lowered]
    assert under == without


def test_what_a_tangent_comes_to_is_not_held() -> None:
    def weighted(w: Any, frozen: Any, head: Any, x: Any) -> Any:
        return np.mean(np.exp(np.sin(np.sum(w[0, 0, 0] * (x @ head), axis=-1))))

    assert held_apart(graph_of(weighted), parse_policy("dots"), WRT) is None


def test_what_is_larger_than_what_is_saved_for_it_is_not_held() -> None:
    def outer(w: Any, frozen: Any, head: Any, x: Any) -> Any:
        mask = np.cos((x @ frozen[0])[:, None, :] - x[None])
        return np.sum(mask * (x @ w[0]))

    assert held_apart(graph_of(outer), parse_policy("dots"), WRT) is None


@pytest.mark.parametrize("function", [compared, stopped])
@pytest.mark.parametrize("policy", ["nothing", "dots", "auto"])
def test_gradients_are_the_same(function: Any, policy: str) -> None:
    expected: Any = rematc.value_and_grad(function)(W, FROZEN, HEAD, X)
    found: Any = rematc.value_and_grad(function, policy=policy)(W, FROZEN, HEAD, X)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_the_logits_of_the_reference_are_not_saved() -> None:
    compiled = rematc.compile(rematc.value_and_grad(compared, policy="dots"), W, FROZEN, HEAD, X)
    lines = [line for line in str(compiled.report()).splitlines() if f"f32[{ROWS},{WORDS}]" in line]
    assert len(lines) == 1, "those of the model that is trained"
