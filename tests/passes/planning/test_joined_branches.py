"""Branches are computed in those that alone read what they give: the same bits, and fewer branches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rematc
from rematc.ir.core import Graph
from rematc.ir.ops.case.op import Case
from rematc.ir.verifier import verify
from rematc.lowering.pipeline import run_passes
from rematc.passes.planning.joined_branches import with_joined_branches
from tests.support.same_bits import SameBits

X = np.arange(6, dtype=np.float32).reshape(2, 3) / 4 - 0.5
INDEX = np.bool_(True)

cond: Callable[..., Any] = rematc.cond


def pair(is_first: Any, x: Any) -> Any:
    return cond(is_first, lambda x: (np.sin(x), x + 1), lambda x: (np.cos(x), x * x), x)


def product(is_first: Any, *given: Any) -> Any:
    return cond(is_first, lambda x, y, z: x * y + z, lambda x, y, z: np.exp(x) * z - y, *given)


def one_after_another(i: Any, x: Any) -> Any:
    return product(i, *pair(i, x), x)


def three(i: Any, x: Any) -> Any:
    a, b = pair(i, x)
    return product(i, *pair(i, product(i, a, b, x)), np.tanh(x))


def two_for_one(i: Any, x: Any) -> Any:
    a, b = pair(i, x)
    c, d = pair(i, x * 2)
    return product(i, a, c, product(i, b, d, x))


def read_elsewhere(i: Any, x: Any) -> Any:
    a, b = pair(i, x)
    return product(i, a, b, x) + np.tanh(a)


def returned(i: Any, x: Any) -> Any:
    a, b = pair(i, x)
    return product(i, a, b, x), b


def of_another_index(i: Any, x: Any) -> Any:
    return product(np.sum(x) > 0, *pair(i, x), x)


def that_is_the_index(i: Any, x: Any) -> Any:
    a, b = pair(i, x)
    return product(np.sum(a) > 0, a, b, x)


def traced(function: Callable[..., Any]) -> Graph:
    """Its graph, in which branches that the same boolean chooses have one index."""
    return run_passes(rematc.trace(function, INDEX, X), "cse").graph


def cases(graph: Graph) -> int:
    return sum(isinstance(eqn.op, Case) for eqn in graph.equations)


@pytest.mark.parametrize(
    ("function", "before", "after"),
    [
        (one_after_another, 2, 1),
        (three, 4, 1),
        (two_for_one, 4, 1),
        (read_elsewhere, 2, 2),
        (returned, 2, 2),
        (of_another_index, 2, 2),
        (that_is_the_index, 2, 2),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_branches_are_joined_where_nothing_else_reads_them(
    function: Callable[..., Any], before: int, after: int
) -> None:
    graph = traced(function)
    found = with_joined_branches(graph)
    verify(found)
    assert (cases(graph), cases(found)) == (before, after)
    assert all(SameBits(np.bool_(index), X)(graph, found) for index in (True, False))


def test_operands_that_both_take_are_given_once() -> None:
    graph = with_joined_branches(traced(one_after_another))
    (eqn,) = [eqn for eqn in graph.equations if isinstance(eqn.op, Case)]
    assert len(eqn.operands) == len(set(eqn.operands)) == 2
