"""Timelines of memory: sums of buffers, where the backward pass begins, what is computed again."""

from __future__ import annotations

import pytest

from rematc.ir.parser import parse_graph
from rematc.passes.memory_timeline import (
    BACKWARD,
    FORWARD,
    KEPT,
    RECOMPUTED,
    LiveBuffer,
    MemoryTimeline,
    Step,
    backward_begin,
    role_of,
)
from rematc.passes.recomputation import recomputed_equations


def buffer(size: int, begin: int, end: int) -> LiveBuffer:
    return LiveBuffer("x", "f32[1]", size, begin, end, KEPT, (end,), None)


def test_live_bytes_are_sums_of_buffers_and_of_the_workspace_of_a_step() -> None:
    steps = tuple(Step("op", FORWARD, None, 7 if at == 1 else 0) for at in range(4))
    timeline = MemoryTimeline(steps, (buffer(10, 0, 2), buffer(20, 2, 3), buffer(5, 1, 1)), 2, 0, 0)
    assert timeline.live.tolist() == [10, 22, 30, 20]
    assert (timeline.peak, timeline.at) == (30, 2)
    assert [one.size for one in timeline.standing(2)] == [20, 10]
    assert timeline.highest(2) == [22, 30]
    assert timeline.highest(100) == [10, 22, 30, 20]


def test_a_timeline_of_nothing_has_no_peak() -> None:
    empty = MemoryTimeline((), (), 0, 0, 0)
    assert (empty.peak, empty.at, empty.standing(0), empty.highest(10)) == (0, 0, [], [])


def test_the_backward_pass_begins_where_most_is_held_for_longest() -> None:
    begins, ends, sizes = [0, 1, 2, 3, 4, 5], [5, 4, 3, 4, 5, 5], [8] * 6
    assert backward_begin(begins, ends, sizes, 6, []) == 3
    assert backward_begin(begins, ends, sizes, 6, [2]) == 3, "behind the loss, where as much is held there"
    assert backward_begin([], [], [], 0, []) == 0


@pytest.mark.parametrize(
    ("begin", "end", "phase", "role"),
    [(0, 1, FORWARD, FORWARD), (0, 5, FORWARD, KEPT), (4, 5, RECOMPUTED, RECOMPUTED), (4, 5, BACKWARD, BACKWARD)],
)
def test_roles(begin: int, end: int, phase: str, role: str) -> None:
    assert role_of(begin, end, phase, backward=3) == role


RECOMPUTATION = """\
graph @f(%x: f32[4,4], %w: f32[4,4]) -> (f32[], f32[4,4]) {
  %0: f32[4,4] = dot_general %x, %w {contract=[[1],[0]], batch=[[],[]]}
  %1: f32[4,4] = sine %0
  %2: f32[] = reduce_sum %1 {dimensions=[0,1]}
  %3: f32[4,4], %4: f32[4,4] = optimization_barrier %x, %w
  %5: f32[4,4] = dot_general %3, %4 {contract=[[1],[0]], batch=[[],[]]}
  %6: f32[4,4] = cosine %5
  %7: f32[4,4] = dot_general %3, %6 {contract=[[0],[0]], batch=[[],[]]}
  return %2, %7
}
"""


def test_recomputation_is_seen_through_barriers() -> None:
    graph = parse_graph(RECOMPUTATION)
    (found,) = recomputed_equations(graph)
    assert found is graph.equations[4]


def test_constants_are_never_recomputed() -> None:
    text = """\
graph @f(%x: f32[4]) -> (f32[4]) {
  %0: f32[] = constant {type=f32[], data=1.0}
  %1: f32[4] = broadcast_in_dim %0 {shape=[4], dimensions=[]}
  %2: f32[4] = broadcast_in_dim %0 {shape=[4], dimensions=[]}
  %3: f32[4] = add %1, %x
  %4: f32[4] = add %x, %2
  return %4
}
"""
    graph = parse_graph(text)
    assert recomputed_equations(graph) == [graph.equations[4]], "and operands of a sum may be exchanged"
