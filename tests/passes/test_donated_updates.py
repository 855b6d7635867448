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
    assert names(found) == ["multiply", "optimization_barrier", "multiply", "subtract"]
    barrier, _, update = found.equations[1:]
    assert barrier.operands == (graph.params[0], graph.results[1])
    assert update.operands[0] == barrier.results[0] and found.results == graph.results


def test_an_update_behind_all_reads_stays() -> None:
    graph = parse_graph(STEP.replace("multiply %x, %ct", "multiply %x, %w").replace("multiply %ct, %w", "add %g, %x"))
    assert updated_last(graph, [(0, 0)]) is graph


def test_an_update_that_is_read_stays() -> None:
    read = "%y: f32[4,4] = add %new, %dx\n  return %new, %y"
    graph = parse_graph(STEP.replace("return %new, %dx", read))
    assert updated_last(graph, [(0, 0)]) is graph


def test_of_two_updates_that_read_each_others_old_values_one_waits() -> None:
    graph = parse_graph(STEP.replace("multiply %ct, %w", "subtract %ct, %w"))
    found = updated_last(graph, [(0, 0), (1, 1)])
    verify(found)
    assert names(found) == ["subtract", "optimization_barrier", "multiply", "subtract"]


SIGNS = """graph @lion(%p: f32[64,64], %m: f32[64,64], %g: f32[64,64], %a: f32[64,64]) -> (f32[64,64], f32[64,64]) {
  %0: f32[64,64] = multiply %m, %a
  %1: f32[64,64] = multiply %g, %a
  %2: f32[64,64] = add %0, %1
  %moment: f32[64,64] = subtract %2, %g
  %3: f32[64,64] = multiply %m, %m
  %4: f32[64,64] = add %3, %g
  %5: f32[64,64] = tanh %4
  %weight: f32[64,64] = subtract %p, %5
  return %weight, %moment
}
"""


def test_an_update_waits_for_that_of_another_parameter_which_reads_the_old_value() -> None:
    """Not for what is a part of that one's kernel, and all of its own kernel reads the value that waits."""
    graph = parse_graph(SIGNS)
    found = updated_last(graph, [(0, 0), (1, 1)])
    verify(found)
    assert names(found)[-5:] == ["optimization_barrier", "multiply", "multiply", "add", "subtract"]
    barrier, first = found.equations[-5:-3]
    assert barrier.operands == (graph.params[1], graph.results[0])
    assert first.operands[0] == barrier.results[0]


def test_what_is_shared_with_another_kernel_stays_and_only_the_rest_waits() -> None:
    text = SIGNS.replace("%4: f32[64,64] = add %3, %g", "%4: f32[64,64] = add %3, %1")
    found = updated_last(parse_graph(text), [(0, 0), (1, 1)])
    verify(found)
    assert names(found)[-4:] == ["optimization_barrier", "multiply", "add", "subtract"]
