"""Work is counted by op and by its part in the backward graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rematc
from rematc.compiler.api.text import parse
from rematc.compiler.reports.differentiation import Differentiation
from rematc.ir.core import Graph
from rematc.ir.policy import Policy
from rematc.passes.accounting import BackwardWork, Work, flat_equations, split_backward, total_work, work_by_op
from rematc.passes.barriers import Barriers
from rematc.passes.dce import DeadCode
from rematc.passes.linearize import Vjp, under_policy, vjp
from rematc.passes.policies import parse_policy
from tests.support.smooth_graphs import is_float, policies, smooth_graphs

MLP = parse(
    """graph @f(%w: f64[3,4], %x: f64[4]) -> (f64[3]) {
         %0: f64[3] = dot_general %w, %x {contract=[[1],[0]], batch=[[],[]]}
         %1: f64[3] = sine %0
         return %1
       }"""
)


def split(pulled: Vjp) -> BackwardWork:
    return split_backward(pulled.backward, [index >= len(pulled.residuals) for index in range(_arity(pulled))])


def _arity(pulled: Vjp) -> int:
    return len(pulled.backward.params)


def test_work_by_op_has_the_dearest_first() -> None:
    assert list(work_by_op(MLP.equations).items()) == [("dot_general", Work(1, 24)), ("sine", Work(1, 3))]
    assert total_work(MLP.equations) == Work(2, 27)


def test_regions_count_as_their_equations() -> None:
    wrapped = under_policy(MLP, parse_policy("nothing"))
    assert [eqn.op.name for eqn in flat_equations(wrapped)] == ["dot_general", "sine"]
    assert total_work(wrapped.equations).flops == 27


def test_recomputation_is_told_from_differentiation() -> None:
    for policy, recomputed in (("nothing", ["dot_general", "cosine"]), ("dots", ["cosine"])):
        pulled = vjp(under_policy(MLP, parse_policy(policy)), [True, True])
        parts = split(pulled)
        assert [eqn.op.name for eqn in parts.recomputed] == recomputed
        assert sorted(eqn.op.name for eqn in parts.adjoint) == ["dot_general", "dot_general", "multiply"]


@settings(max_examples=40)
@given(smooth_graphs(), st.none() | policies())
def test_every_equation_has_one_part_unless_it_follows_from_constants(graph: Graph, policy: Policy | None) -> None:
    primal = graph if policy is None else under_policy(graph, policy)
    pulled = vjp(primal, is_float(graph))
    flat = Barriers("none").run(pulled.backward)
    parts, flat_parts = split(pulled), split(replace(pulled, backward=flat))
    assert total_work(parts.recomputed) == total_work(flat_parts.recomputed)
    assert total_work(parts.adjoint) == total_work(flat_parts.adjoint)
    variable = set(flat.params)
    for eqn in flat.equations:
        if not variable.isdisjoint(eqn.operands):
            variable.update(eqn.results)
            assert (eqn in flat_parts.recomputed) != (eqn in flat_parts.adjoint)
        else:
            assert eqn not in flat_parts.recomputed
            assert eqn not in flat_parts.adjoint


@settings(max_examples=40)
@given(smooth_graphs(regions=0))
def test_without_a_policy_nothing_but_broadcasts_is_repeated(graph: Graph) -> None:
    """But for `stop_gradient`, which computes nothing: it stands again before a residual that is read behind one."""
    repeated = split(vjp(graph, is_float(graph))).recomputed
    assert {eqn.op.name for eqn in repeated} <= {"broadcast_in_dim", "stop_gradient"}
    assert total_work([eqn for eqn in repeated if eqn.op.name == "stop_gradient"]).flops == 0


# -- loops, branches, calls ----------------------------------------------------------------------------------------


def work_of(function: Any, *arguments: Any) -> dict[str, int]:
    """How often each op is evaluated."""
    graph = DeadCode().run(rematc.trace(function, *arguments))
    return {name: work.equations for name, work in work_by_op(flat_equations(graph)).items()}


def test_the_dearest_branch_counts() -> None:
    def function(x: Any) -> Any:
        return rematc.cond(x.sum() > 0, lambda x: np.sin(np.sin(x)), np.cos, x)

    counts = work_of(function, np.ones(4))
    assert counts["sine"] == 2
    assert "cosine" not in counts


@pytest.mark.parametrize(
    ("first", "test", "change", "steps"),
    [
        (0, lambda i: i < 7, lambda i: i + 1, 7),
        (0, lambda i: i <= 7, lambda i: i + 2, 4),
        (0, lambda i: i < 7, lambda i: 2 + i, 4),
        (9, lambda i: i > 0, lambda i: i - 3, 3),
        (9, lambda i: i >= 0, lambda i: i - 3, 4),
        (9, lambda i: i < 3, lambda i: i + 1, 0),
    ],
)
def test_a_counted_loop_counts_its_steps(first: int, test: Any, change: Any, steps: int) -> None:
    def function(x: Any) -> Any:
        def step(state: Any) -> Any:
            return change(state[0]), np.sin(state[1])

        return rematc.while_loop(lambda state: test(state[0]), step, (np.int32(first), x))[1]

    counts = work_of(function, np.ones(4))
    assert counts.get("sine", 0) == steps
    assert counts["compare"] == steps + 1
    taken, i = 0, first
    while test(i):
        taken, i = taken + 1, change(i)
    assert taken == steps


@pytest.mark.parametrize(
    ("test", "change"),
    [
        (lambda i, x: i < x.sum(), lambda i: i + 1),
        (lambda i, x: i < 7, lambda i: i * 2),
        (lambda i, x: i != 7, lambda i: i + 1),
    ],
)
def test_a_loop_whose_steps_are_not_known_counts_one(test: Any, change: Any) -> None:
    def function(x: Any) -> Any:
        def step(state: Any) -> Any:
            return change(state[0]), np.sin(state[1])

        return rematc.while_loop(lambda state: test(*state), step, (np.int32(1), x))[1]

    assert work_of(function, np.ones(4))["sine"] == 1


def test_loops_in_loops_and_calls_count_as_often_as_they_are_evaluated() -> None:
    inner = rematc.jit(np.sin)

    def function(x: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            return rematc.fori_loop(0, 3, lambda i, c: inner(c) + i, c), None

        return rematc.scan(step, x, None, 5)[0]

    assert work_of(function, np.ones(4))["sine"] == 15


def test_recomputation_in_branches_and_loops_is_told_from_differentiation() -> None:
    def loss(x: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            return rematc.cond(c.sum() > 0, lambda c: np.sin(np.exp(c)), lambda c: c, c), None

        last: Any = rematc.checkpoint(lambda x: rematc.scan(step, x, None, 5)[0])(x)
        return last.sum()

    (record,) = rematc.lower(rematc.grad(loss), np.ones(4)).records
    assert isinstance(record, Differentiation)
    backward = DeadCode().run(record.vjp.backward)
    parts = split_backward(backward, [index >= len(record.vjp.residuals) for index in range(len(backward.params))])
    recomputed, adjoint = work_by_op(parts.recomputed), work_by_op(parts.adjoint)
    assert recomputed["exponential"].equations >= 5
    assert recomputed["cosine"].equations == 5
    assert "exponential" not in adjoint
    assert adjoint["multiply"].equations == 10
