"""Products whose results are widened behind them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from rematc.compiler.api.text import parse
from rematc.ir.core import Equation, Graph
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.regions import Checkpoint
from rematc.ir.verifier import verify
from rematc.passes.planning.narrow_products import hold_narrow
from tests.support.random_graphs import arguments_for, graphs, same_bits

LOGITS = """graph @f(%x: bf16[8,4], %w: bf16[4,8], %y: bf16[64]) -> (f32[8], f32[64]) {
  %0: bf16[8,8] = dot_general %x, %w {contract=[[1],[0]], batch=[[],[]]}
  %1: bf16[64] = reshape %0 {shape=[64]}
  %2: f32[64] = convert %1 {dtype=f32}
  %3: f32[64] = convert %y {dtype=f32}
  %4: f32[8,8] = reshape %2 {shape=[8,8]}
  %5: f32[8] = reduce_sum %4 {dimensions=[1]}
  %6: f32[64] = exponential %2
  return %5, %6
}"""
BARRIER = "optimization_barrier"


def ops(graph: Graph) -> list[str]:
    return [eqn.op.name for eqn in graph.equations]


def test_what_is_widened_for_several_readers_stands_behind_a_barrier() -> None:
    assert ops(hold_narrow(parse(LOGITS)))[:3] == ["dot_general", BARRIER, "reshape"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("exponential %2", "exponential %3"),
        ("convert %1 {dtype=f32}", "convert %y {dtype=f32}"),
        ("bf16", "f32"),
    ],
    ids=["one reader", "another value", "no wider"],
)
def test_nothing_else_is_held(old: str, new: str) -> None:
    assert BARRIER not in ops(hold_narrow(parse(LOGITS.replace(old, new))))


def test_stages_hold_theirs() -> None:
    body, graph = parse(LOGITS), parse(LOGITS)
    stage = Equation(Checkpoint(body, is_differentiated=True), graph.params, graph.results)
    (held,) = hold_narrow(Graph("g", graph.params, (stage,), graph.results)).equations
    assert BARRIER in ops(held.op.regions()[0])


@settings(max_examples=30)
@given(graphs())
def test_nothing_changes_but_where_values_are_held(graph: Graph) -> None:
    held = hold_narrow(graph)
    verify(held)
    arguments = arguments_for(graph)
    assert same_bits(evaluate(held, arguments), evaluate(graph, arguments))
