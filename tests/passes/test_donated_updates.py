"""Updates of donated parameters, behind the reads of what they are written over."""

from __future__ import annotations

from rematc.ir.core import Graph
from rematc.ir.parser import parse_graph
from rematc.ir.verifier import verify
from rematc.passes.donated_updates import updated_last

STEP = """graph @step(%w: f32[4,4], %ct: f32[4,4], %x: f32[4,4]) -> (f32[4,4], f32[4,4]) {
  %g: f32[4,4] = multiply %x, %ct
  %new: f32[4,4] = subtract %w, %g
  %dx: f32[4,4] = multiply %ct, %w
  return %new, %dx
}
"""


def names(graph: Graph) -> list[str]:
    return [eqn.op.name for eqn in graph.equations]


def test_an_update_waits_for_the_reads_of_the_old_value() -> None:
    graph = parse_graph(STEP)
    found = updated_last(graph, [(0, 0)])
    verify(found)
    assert names(found) == ["multiply", "multiply", "optimization_barrier", "subtract"]
    barrier, update = found.equations[2:]
    assert barrier.operands == (graph.params[0], graph.results[1])
    assert update.operands[0] == barrier.results[0] and found.results == graph.results


def test_an_update_behind_all_reads_stays() -> None:
    graph = parse_graph(STEP.replace("multiply %x, %ct", "multiply %x, %w").replace("multiply %ct, %w", "add %g, %x"))
    assert updated_last(graph, [(0, 0)]) is graph


def test_an_update_that_is_read_stays() -> None:
    read = "%y: f32[4,4] = add %new, %dx\n  return %new, %y"
    graph = parse_graph(STEP.replace("return %new, %dx", read))
    assert updated_last(graph, [(0, 0)]) is graph


def test_updates_that_read_each_others_old_values_do_not_wait_for_each_other() -> None:
    graph = parse_graph(STEP.replace("multiply %ct, %w", "subtract %ct, %w"))
    found = updated_last(graph, [(0, 0), (1, 1)])
    assert names(found) == ["multiply", "subtract", "optimization_barrier", "subtract"]
    verify(found)
