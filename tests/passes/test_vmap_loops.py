"""vmap of loops and branches: elements may take as many steps, and the branches, that each of them wants."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rematc.ir.builder import Builder
from rematc.ir.core import Graph, Op
from rematc.ir.ops.case.op import Case
from rematc.ir.ops.scan.op import Scan
from rematc.ir.ops.while_.op import While
from rematc.ir.types import F64, I32, TensorType
from rematc.ir.verifier import verify
from rematc.passes.jvp import jvp
from rematc.passes.linearize import vjp
from rematc.passes.vmap import vmap
from tests.support.smooth_graphs import count_ops, run

VECTOR, SCALAR, COUNT = TensorType(F64, (2,)), TensorType(F64, ()), TensorType(I32, ())
STEPS, SIZE = 4, 3


def applied(op: Op, *types: TensorType) -> Graph:
    b = Builder("loop")
    return b.build(*b.emit(op, *[b.parameter(type) for type in types]))


def scan(is_reversed: bool = False) -> Graph:
    """Two carries, of which the second never sees the first, and a stack of each kind."""
    b = Builder("step")
    w, x, n, a = b.parameter(VECTOR), b.parameter(VECTOR), b.parameter(SCALAR), b.parameter(VECTOR)
    y = b.add(b.sine(b.multiply(x, w)), a)
    body = b.build(y, b.add(n, n), b.multiply(y, a), b.sine(n))
    stack = TensorType(F64, (STEPS, 2))
    return applied(Scan(body, STEPS, 1, 2, is_reversed), VECTOR, VECTOR, SCALAR, stack)


def bounded(is_counted: bool) -> Graph:
    """Doubling until a bound is met, or for a number of steps."""
    c = Builder("goes_on")
    limit, _, n, total = c.parameter(SCALAR), c.parameter(VECTOR), c.parameter(COUNT), c.parameter(SCALAR)
    goes_on = c.compare(n, c.full(COUNT, 3), "LT") if is_counted else c.compare(total, limit, "LT")
    cond = c.build(goes_on)
    b = Builder("step")
    w, x, n, total = b.parameter(VECTOR), b.parameter(VECTOR), b.parameter(COUNT), b.parameter(SCALAR)
    x = b.add(b.sine(x), w)
    body = b.build(x, b.add(n, b.full(COUNT, 1)), b.add(b.add(total, total), b.full(SCALAR, 1)))
    return applied(While(cond, body, 1, 1), SCALAR, VECTOR, VECTOR, COUNT, SCALAR)


def case() -> Graph:
    """Branches that use different operands, and one that uses none."""
    branches = []
    for kind in range(3):
        b = Builder(f"branch{kind}")
        x, y = b.parameter(VECTOR), b.parameter(VECTOR)
        result = (b.sine(x), b.multiply(b.sine(y), x), b.full(VECTOR, 2.0))[kind]
        branches.append(b.build(result, b.full(SCALAR, kind)))
    return applied(Case(tuple(branches)), COUNT, VECTOR, VECTOR)


def elements(graph: Graph, is_batched: Sequence[bool]) -> list[list[Any]]:
    """Arguments of each element; the integers are -1, 0, 1, ..., the numbers grow with the element."""
    random = np.random.default_rng(4)
    drawn = [
        [
            np.asarray(element - 1, np.int32) if type.dtype is I32 else random.normal(2 * element, 0.5, type.shape)
            for type in graph.param_types
        ]
        for element in range(SIZE)
    ]
    return [[x if is_set else y for x, y, is_set in zip(own, drawn[0], is_batched, strict=True)] for own in drawn]


def assert_vmap_is_a_loop(graph: Graph, is_batched: Sequence[bool]) -> None:
    batched = vmap(graph, is_batched, SIZE)
    verify(batched.graph)
    each = elements(graph, is_batched)
    stacked = [
        np.stack(column) if is_set else column[0]
        for column, is_set in zip(zip(*each, strict=True), is_batched, strict=True)
    ]
    found = run(batched.graph, stacked)
    for index, element in enumerate(each):
        for result, has_batch, wanted in zip(found, batched.is_batched, run(graph, element), strict=True):
            np.testing.assert_allclose(result[index] if has_batch else result, wanted, rtol=1e-13)


def ways(count: int) -> list[tuple[bool, ...]]:
    return [way for way in itertools.product((True, False), repeat=count) if any(way)]


@pytest.mark.parametrize("is_batched", ways(4))
@pytest.mark.parametrize("is_reversed", [False, True])
def test_scans(is_reversed: bool, is_batched: tuple[bool, ...]) -> None:
    assert_vmap_is_a_loop(scan(is_reversed), is_batched)


@pytest.mark.parametrize("is_batched", ways(5))
@pytest.mark.parametrize("is_counted", [False, True])
def test_while_loops(is_counted: bool, is_batched: tuple[bool, ...]) -> None:
    assert_vmap_is_a_loop(bounded(is_counted), is_batched)


@pytest.mark.parametrize("is_batched", ways(3))
def test_branches(is_batched: tuple[bool, ...]) -> None:
    assert_vmap_is_a_loop(case(), is_batched)


def test_carries_that_no_batched_value_reaches_stay_as_they_are() -> None:
    assert vmap(scan(), (False, False, False, True), SIZE).is_batched == (True, False, True, False)
    assert vmap(bounded(True), (False, True, False, False, False), SIZE).is_batched == (True, False, False)


def test_a_shared_index_takes_one_branch_and_a_batched_one_computes_all() -> None:
    def cases(graph: Graph) -> int:
        return sum(isinstance(eqn.op, Case) for eqn in graph.equations)

    assert cases(vmap(case(), (False, True, True), SIZE).graph) == 1
    of_each = vmap(case(), (True, False, False), SIZE).graph
    assert cases(of_each) == 0
    assert count_ops(of_each)["select"] == 4


@pytest.mark.parametrize("is_batched", [(True, False, False, False), (False, True, True, False), (True,) * 4])
def test_derivatives_of_batched_scans_are_batches_of_derivatives(is_batched: tuple[bool, ...]) -> None:
    """Forwards: the tangents. Backwards: cotangents of every element, by both orders of the transformations."""
    graph = scan()
    pushed = jvp(graph, (True,) * 4).graph
    assert_vmap_is_a_loop(pushed, (*is_batched, *is_batched))

    batched = vmap(graph, (True,) * 4, SIZE)
    of_batch, of_one = vjp(batched.graph, (True,) * 4), vjp(graph, (True,) * 4)
    each = elements(graph, (True,) * 4)
    forward = run(of_batch.forward, [np.stack(column) for column in zip(*each, strict=True)])
    count = len(graph.results)
    found = run(of_batch.backward, [*forward[count:], *[np.ones_like(x) for x in forward[:count]]])
    for index, element in enumerate(each):
        results = run(of_one.forward, element)
        expected = run(of_one.backward, [*results[count:], *[np.ones_like(x) for x in results[:count]]])
        for ct, wanted in zip(found, expected, strict=True):
            np.testing.assert_allclose(ct[index], wanted, rtol=1e-12)
