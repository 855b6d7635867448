"""Checkpoints that are whole programs, by the graph; and the policies of several, one in the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rematc
from rematc.ir.ops.regions import Checkpoint
from rematc.ir.verifier import verify
from rematc.passes.policies import as_policy
from rematc.passes.staging.whole import policy_on_whole

X = np.ones(4, np.float32)


def loss(x: Any) -> Any:
    return np.sum(np.sin(x))


def region(**options: Any) -> Any:
    return rematc.checkpoint(loss, **options)


def found(function: Callable[[Any], Any], policy: str | None = None) -> str | None:
    """The policy on the whole of a function, of whose results the first gets a cotangent."""
    graph = rematc.trace(function, X)
    of = [index == 0 for index in range(len(graph.results))]
    whole, both = policy_on_whole(graph, None if policy is None else as_policy(policy), of)
    verify(whole)
    assert whole is graph or not any(isinstance(eqn.op, Checkpoint) for eqn in whole.equations)
    return None if both is None else both.spec


def test_a_region_that_is_all_of_a_function() -> None:
    assert found(region()) == "nothing"
    assert found(region(policy="dots")) == "dots"
    assert found(region(prevent_cse=True)) == "nothing"
    assert found(region(prevent_cse=(True,))) == "nothing"


@pytest.mark.parametrize(
    "function",
    [
        lambda x: region()(x.astype(np.float32) * 2),
        lambda x: (region()(x) / 2).astype(np.float64),
        lambda x: (region()(x), x, x * 2),
        lambda x: rematc.checkpoint(lambda x: (np.cos(x), loss(x)))(x)[::-1],
        lambda x: rematc.jit(region())(x + 1),
    ],
)
def test_what_takes_no_time_may_be_beside_it(function: Callable[[Any], Any]) -> None:
    assert found(function) == "nothing"


@pytest.mark.parametrize(
    "function",
    [
        loss,
        lambda x: region()(x) + np.sum(x),
        lambda x: region()(np.cumsum(x)),
        lambda x: (region()(x), np.sum(x)),
        lambda x: region()(x) + region(policy="dots")(x),
        lambda x: (x[0], region()(x)),
        region(prevent_cse=False),
        region(prevent_cse=(False,)),
        rematc.grad(lambda x: region()(x) + x[0]),
    ],
)
def test_what_is_no_policy_on_the_whole(function: Callable[[Any], Any]) -> None:
    assert found(function) is None


def test_the_rule_of_a_region_is_no_region_of_the_users() -> None:
    """The backward side of one, which is to stay behind its barrier."""
    graph = rematc.trace(rematc.grad(lambda x: np.sum(rematc.checkpoint(np.sin)(x))), X)
    assert any(isinstance(eqn.op, Checkpoint) and eqn.op.is_differentiated for eqn in graph.equations)
    assert policy_on_whole(graph, None, [True]) == (graph, None)


@pytest.mark.parametrize(
    ("around", "inner", "both"),
    [
        ("dots", "dots", "dots"),
        ("nothing", "dots", "nothing"),
        ("dots", "nothing", "nothing"),
        ("everything", "dots", "dots"),
        ("dots", "everything", "dots"),
        ("everything", None, "nothing"),
    ],
)
def test_a_value_is_saved_where_both_policies_save_it(around: str, inner: str | None, both: str) -> None:
    assert found(region(policy=inner), around) == both
    assert found(rematc.checkpoint(region(policy=inner), policy=around)) == both


def test_policies_of_which_neither_says_it_for_both_stay_apart() -> None:
    graph = rematc.trace(region(policy="dots"), X)
    assert policy_on_whole(graph, as_policy("auto"), [True]) == (graph, as_policy("auto"))
    nested = rematc.trace(rematc.checkpoint(region(policy="dots"), policy="auto"), X)
    (eqn,) = policy_on_whole(nested, None, [True])[0].equations
    assert isinstance(eqn.op, Checkpoint)
    assert eqn.op.policy == as_policy("dots")
