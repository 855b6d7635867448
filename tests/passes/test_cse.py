"""Common subexpression elimination on random graphs; `cases/cse.ir` shows what becomes of text."""

from __future__ import annotations

from hypothesis import given

from rematc.ir.core import Graph
from rematc.ir.fields import record_of
from rematc.ir.forms import Float
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.ir.registry import OPS
from rematc.ir.verifier import verify
from rematc.passes.cse import CommonSubexpressions
from tests.support.random_graphs import arguments_for, graphs, same_bits


@given(graphs(regions=2))
def test_meaning_is_preserved(graph: Graph) -> None:
    merged = CommonSubexpressions().run(graph)
    verify(merged)
    arguments = arguments_for(graph)
    assert same_bits(evaluate(merged, arguments), evaluate(graph, arguments))


@given(graphs(regions=2))
def test_no_computation_is_left_twice(graph: Graph) -> None:
    merged = CommonSubexpressions().run(graph)
    computed = [(eqn.op, eqn.operands) for eqn in merged.equations if eqn.op != OptimizationBarrier()]
    assert len(set(computed)) == len(computed)


@given(graphs(regions=2))
def test_barriers_are_neither_merged_nor_lost(graph: Graph) -> None:
    merged = CommonSubexpressions().run(graph)
    before, after = (
        [eqn.result_types for eqn in each.equations if isinstance(eqn.op, OptimizationBarrier)]
        for each in (graph, merged)
    )
    assert before == after


@given(graphs(regions=2))
def test_a_merged_graph_is_returned_as_it_is(graph: Graph) -> None:
    merged = CommonSubexpressions().run(graph)
    assert CommonSubexpressions().run(merged) is merged


def test_no_op_has_a_float_among_its_fields() -> None:
    """Equal fields are what makes ops equal, and 0.0 equals -0.0: an op with a float field needs a key of its own."""
    for op in OPS.values():
        assert not any(isinstance(field.form, Float) for field in record_of(op).fields), op.name
