"""Graphs as values: what they are equal to, and what they remember."""

from __future__ import annotations

import dataclasses

from rematc.compiler.api.text import parse
from rematc.ir.facts import Effect

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
    first = graph.equations[:1]
    shorter = dataclasses.replace(graph, equations=first, results=first[0].results)
    assert shorter != graph
    assert hash(shorter) != hash(graph)
    assert len({graph: 1, shorter: 2}) == 2
