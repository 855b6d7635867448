"""Work is counted by op and by its part in the backward graph."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from rematc.compiler.text import parse
from rematc.ir.core import Graph
from rematc.ir.policy import Policy
from rematc.passes.accounting import BackwardWork, Work, flat_equations, split_backward, total_work, work_by_op
from rematc.passes.barriers import Barriers
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


@settings(max_examples=40, deadline=None)
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


@settings(max_examples=40, deadline=None)
@given(smooth_graphs(regions=0))
def test_without_a_policy_nothing_but_broadcasts_is_repeated(graph: Graph) -> None:
    repeated = split(vjp(graph, is_float(graph))).recomputed
    assert {eqn.op.name for eqn in repeated} <= {"broadcast_in_dim"}
