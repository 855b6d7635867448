"""Inlining on random graphs; `cases/inline.ir` shows what becomes of text."""

from __future__ import annotations

from hypothesis import given

from rematc.ir.builder import Builder
from rematc.ir.core import Graph
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.regions import Call
from rematc.ir.types import F32, TensorType
from rematc.ir.verifier import verify
from rematc.passes.inline import Inline
from tests.support.random_graphs import arguments_for, graphs, same_bits
from tests.support.work import lines_run

PAIR = TensorType(F32, (2,))


@given(graphs(regions=3))
def test_meaning_is_preserved(graph: Graph) -> None:
    flat = Inline().run(graph)
    verify(flat)
    arguments = arguments_for(graph)
    assert same_bits(evaluate(flat, arguments), evaluate(graph, arguments))


def has_calls(graph: Graph) -> bool:
    return any(
        isinstance(eqn.op, Call) or any(has_calls(region) for region in eqn.op.regions()) for eqn in graph.equations
    )


@given(graphs(regions=3))
def test_no_call_is_left_and_a_graph_without_calls_is_returned_as_it_is(graph: Graph) -> None:
    flat = Inline().run(graph)
    assert not has_calls(flat)
    assert (flat is graph) == (not has_calls(graph))


def chain_of_calls(depth: int, length: int) -> Graph:
    """`length` calls of a function that calls one that calls ... `depth` deep."""
    b = Builder("leaf")
    graph = b.build(b.negate(b.parameter(PAIR)))
    for _ in range(depth):
        b = Builder("f")
        graph = b.build(b.emit1(Call(graph), b.parameter(PAIR)))
    b = Builder("main")
    value = b.parameter(PAIR)
    for _ in range(length):
        value = b.emit1(Call(graph), value)
    return b.build(value)


def test_work_is_that_of_the_equations_written() -> None:
    """Copied at each of 50 levels, they would be 50 times as much."""
    deep, flat = (chain_of_calls(depth, length=2_000) for depth in (50, 1))
    assert len(Inline().run(deep).equations) == 2_000
    assert lines_run(lambda: Inline().run(deep)) < 2 * lines_run(lambda: Inline().run(flat))
