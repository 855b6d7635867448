"""Graphs as values: what they are equal to, and what they remember."""

from __future__ import annotations

import dataclasses

from rematc.compiler.api.text import parse
from rematc.ir.facts import Effect
from rematc.ir.ops.arithmetic import Negate
from rematc.ir.ops.regions import Call
from rematc.ir.ops.transcendental import Cosine, Sine

TEXT = """
graph @f(%x: f32[3]) -> (f32[3]) {
  %0: f32[3] = sine %x
  %1: f32[3] = cosine %0
  return %1
}
"""


def test_a_graph_made_from_another_one_remembers_nothing_of_it() -> None:
    graph = parse(TEXT)
    assert hash(graph) and graph.effect == Effect.NONE and graph.axes == frozenset()
    assert graph.op_types == {Sine, Cosine}
    first = graph.equations[:1]
    shorter = dataclasses.replace(graph, equations=first, results=first[0].results)
    assert shorter != graph
    assert hash(shorter) != hash(graph)
    assert shorter.op_types == {Sine}
    assert len({graph: 1, shorter: 2}) == 2


def test_a_graph_knows_the_ops_in_its_regions() -> None:
    graph = parse("""
graph @f(%x: f32[3]) -> (f32[3]) {
  %0: f32[3] = negate %x
  %1: f32[3] = call %0 {body=graph @g(%x: f32[3]) -> (f32[3]) {
    %0: f32[3] = sine %x
    return %0
  }}
  return %1
}
""")
    assert graph.op_types == {Negate, Call, Sine}
    (call,) = graph.with_regions
    (body,) = call.op.regions()
    assert call is graph.equations[1] and body.op_types == {Sine} and not body.with_regions
