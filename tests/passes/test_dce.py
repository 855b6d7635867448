"""Dead code elimination on random graphs; `cases/dce.ir` shows what becomes of text."""

from __future__ import annotations

from hypothesis import given

from rematc.ir.builder import Builder
from rematc.ir.core import Graph
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.regions import Call
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.ir.types import F32, TensorType
from rematc.ir.verifier import verify
from rematc.passes.dce import DeadCode
from tests.support.random_graphs import arguments_for, graphs, same_bits

PAIR = TensorType(F32, (2,))


@given(graphs(regions=2))
def test_meaning_is_preserved(graph: Graph) -> None:
    clean = DeadCode().run(graph)
    verify(clean)
    assert clean.params == graph.params
    arguments = arguments_for(graph)
    assert same_bits(evaluate(clean, arguments), evaluate(graph, arguments))


@given(graphs(regions=2))
def test_every_equation_that_is_left_is_read(graph: Graph) -> None:
    clean = DeadCode().run(graph)
    read = set(clean.results).union(*(eqn.operands for eqn in clean.equations))
    assert all(not read.isdisjoint(eqn.results) for eqn in clean.equations)


@given(graphs(regions=2))
def test_a_clean_graph_is_returned_as_it_is(graph: Graph) -> None:
    clean = DeadCode().run(graph)
    assert DeadCode().run(clean) is clean


def test_a_barrier_waits_for_operands_that_nothing_uses() -> None:
    b = Builder()
    x, ct = b.parameter(PAIR), b.parameter(PAIR)
    graph = b.build(b.emit(OptimizationBarrier(), x, ct)[0])
    assert DeadCode().run(graph) is graph


def test_a_function_called_often_stays_one_object() -> None:
    b = Builder("f")
    x = b.parameter(PAIR)
    b.sine(x)
    body = b.build(b.negate(x))
    b = Builder()
    x = b.parameter(PAIR)
    graph = b.build(b.emit1(Call(body), b.emit1(Call(body), x)))
    first, second = (eqn.op.regions()[0] for eqn in DeadCode().run(graph).equations)
    assert first is second
    assert len(first.equations) == 1
