"""Stages in parts: whatever is cut, the program means the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rematc.compiler.api.text import parse
from rematc.ir.core import Graph
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.scan.op import Scan
from rematc.ir.values import Array, Value
from rematc.ir.verifier import verify
from rematc.passes.dce import DeadCode
from rematc.passes.linearize import vjp
from rematc.passes.manager import PassManager, parse_pipeline
from rematc.passes.slicing.loop import in_parts
from rematc.passes.slicing.stages import Stage, Stages
from tests.passes.test_barriers import training_step
from tests.support.arrays import arguments_for, assert_near, same_bits
from tests.support.random_graphs import graphs
from tests.support.smooth_graphs import arrays_for, is_float, smooth_graphs


def flat(graph: Graph) -> Graph:
    return PassManager(parse_pipeline("inline,simplify,cse,dce")).run(graph).graph


def every_stage(graph: Graph, more_than: int, cuts_through: bool = False) -> Iterator[tuple[Stages, Stage, int]]:
    """Around each value that is computed, along each dimension, in each number of parts."""
    stages = Stages(graph, cuts_through=cuts_through)
    for value in stages.producer:
        for d in range(value.type.rank):
            stage = stages.around(value, d, more_than)
            if value in stage.made:
                yield from (
                    (stages, stage, count) for count in range(2, value.type.shape[d] + 1) if stage.has_parts(count)
                )


def is_exact(stage: Stage) -> bool:
    """Whether nothing is added up, and no library adds up inside by the shape of what it is given."""
    return not any(slicing.is_sum or eqn.op.is_product for eqn, slicing in stage.slicings.items())


@settings(max_examples=60)
@given(smooth_graphs(), st.sampled_from([0, 8, 64]))
def test_any_stage_of_a_training_step_gives_the_same(graph: Graph, more_than: int) -> None:
    before = flat(training_step(vjp(graph, is_float(graph))))
    arrays = arrays_for(before)
    expected = evaluate(before, arrays)
    for stages, stage, count in every_stage(before, more_than):
        after = in_parts(stages, stage, count)
        verify(after)
        assert_near(evaluate(after, arrays), expected, 1e-9)


@settings(max_examples=60)
@given(smooth_graphs(), st.sampled_from([0, 8]))
def test_any_stage_through_functions_and_regions_gives_the_same(graph: Graph, more_than: int) -> None:
    before = training_step(vjp(graph, is_float(graph)))
    arrays = arrays_for(before)
    expected = evaluate(before, arrays)
    for stages, stage, count in every_stage(before, more_than, True):
        after = in_parts(stages, stage, count)
        verify(after)
        assert_near(evaluate(after, arrays), expected, 1e-9)


@settings(max_examples=60)
@given(graphs(), st.sampled_from([0, 8, 64]))
def test_stages_without_sums_give_the_same_bits(graph: Graph, more_than: int) -> None:
    before = flat(graph)
    arrays = arguments_for(before)
    expected = evaluate(before, arrays)
    for stages, stage, count in every_stage(before, more_than):
        after = in_parts(stages, stage, count)
        verify(after)
        if is_exact(stage):
            assert same_bits(evaluate(after, arrays), expected)


# -- what a loop looks like --------------------------------------------------------------------------------------------

HEAD = """
graph @head(%x: f32[8,4], %w: f32[4,100], %ct: f32[]) -> (f32[], f32[8,4], f32[4,100]) {
  %0: f32[8,100] = dot_general %x, %w {contract=[[1],[0]], batch=[[],[]]}
  %1: f32[8,100] = exponential %0
  %2: f32[8] = reduce_sum %1 {dimensions=[1]}
  %3: f32[] = reduce_sum %2 {dimensions=[0]}
  %4: f32[8,100] = broadcast_in_dim %ct {shape=[8,100], dimensions=[]}
  %5: f32[8,100] = multiply %4, %1
  %6: f32[8,4] = dot_general %5, %w {contract=[[1],[1]], batch=[[],[]]}
  %7: f32[4,100] = dot_general %x, %5 {contract=[[0],[0]], batch=[[],[]]}
  return %3, %6, %7
}
"""


def head_in(count: int) -> Graph:
    stages = Stages(parse(HEAD))
    (logits,) = stages.graph.equations[0].results
    return in_parts(stages, stages.around(logits, 0, 100), count)


def values(graph: Graph) -> Iterator[Value]:
    """All that something needs."""
    for eqn in DeadCode().run(graph).equations:
        yield from eqn.results
        for region in eqn.op.regions():
            yield from values(region)


def test_forward_and_backward_of_a_head_are_one_loop() -> None:
    graph = head_in(4)
    verify(graph)
    (loop,) = [eqn.op for eqn in graph.equations if isinstance(eqn.op, Scan)]
    assert (loop.length, loop.consts, loop.carry) == (4, 2, 3)  # %w and %ct; both gradients, and the sums over rows
    assert not [value for value in values(graph) if value.type.shape == (8, 100)]
    assert [eqn.op.name for eqn in graph.equations if eqn.op.name in ("dot_general", "exponential")] == []


@pytest.mark.parametrize("count", [2, 4, 8])
def test_a_head_in_parts_gives_the_same(count: int) -> None:
    graph = parse(HEAD)
    arrays = arguments_for(graph, special=0)
    assert_near(evaluate(head_in(count), arrays), evaluate(graph, arrays), 1e-5)


def test_another_dimension_than_the_first_is_read_in_place() -> None:
    """Nothing is moved to the front: what is cut is read, and written, at a start."""
    text = """
graph @main(%x: f32[3,8,4], %w: f32[4,50]) -> (f32[3,8]) {
  %0: f32[3,8,50] = dot_general %x, %w {contract=[[2],[0]], batch=[[],[]]}
  %1: f32[3,8,50] = exponential %0
  %2: f32[3,8] = reduce_sum %1 {dimensions=[2]}
  return %2
}
"""
    stages = Stages(parse(text))
    (logits,) = stages.graph.equations[0].results
    graph = in_parts(stages, stages.around(logits, 1, 100), 4)
    verify(graph)
    assert not [eqn for eqn in graph.equations if eqn.op.name == "transpose"]
    arrays = arguments_for(graph, special=0)
    assert_near(evaluate(graph, arrays), evaluate(stages.graph, arrays), 1e-5)


def test_what_follows_from_a_sum_is_not_in_the_loop() -> None:
    """The mean over the dimension is there once the loop has ended."""
    text = """
graph @main(%x: f32[8,50]) -> (f32[8,50]) {
  %0: f32[8,50] = exponential %x
  %1: f32[50] = reduce_sum %0 {dimensions=[0]}
  %2: f32[8,50] = broadcast_in_dim %1 {shape=[8,50], dimensions=[1]}
  %3: f32[8,50] = subtract %0, %2
  %4: f32[8,50] = sine %3
  return %4
}
"""
    stages = Stages(parse(text))
    (first,) = stages.graph.equations[0].results
    stage = stages.around(first, 0, 0)
    assert [eqn.op.name for eqn in stage.slicings] == ["exponential", "reduce_sum"]
    assert [value.type.shape for value in stages.whole(stage)] == [(8, 50)]
    graph = in_parts(stages, stage, 2)
    verify(graph)
    arrays = arguments_for(graph, special=0)
    assert_near(evaluate(graph, arrays), evaluate(stages.graph, arrays), 1e-5)


def test_what_kernels_make_of_less_is_made_in_each_part() -> None:
    """The mask of the labels is no larger than a part of the logits: it would be written whole, and read in parts."""
    text = """
graph @main(%x: f32[8,4], %w: f32[4,50], %labels: i32[8]) -> (f32[8]) {
  %0: f32[8,50] = dot_general %x, %w {contract=[[1],[0]], batch=[[],[]]}
  %1: f32[8,50] = exponential %0
  %2: i32[8,50] = iota {type=i32[8,50], dimension=1}
  %3: i32[8,50] = broadcast_in_dim %labels {shape=[8,50], dimensions=[0]}
  %4: bool[8,50] = compare %2, %3 {direction="EQ"}
  %5: f32[8,50] = select %4, %1, %0
  %6: f32[8] = reduce_sum %5 {dimensions=[1]}
  return %6
}
"""
    stages = Stages(parse(text))
    (logits,) = stages.graph.equations[0].results
    graph = in_parts(stages, stages.around(logits, 0, 400), 4)
    verify(graph)
    assert not [value for value in values(graph) if value.type.shape == (8, 50)]
    arrays = arguments_for(graph, special=0)
    assert_near(evaluate(graph, arrays), evaluate(stages.graph, arrays), 1e-5)


def test_what_kernels_make_of_more_is_read_as_it_is() -> None:
    """Of a narrower copy of something large the copy is read: the large one would live on for it."""
    text = """
graph @main(%x: f32[8,50], %w: f32[50,20]) -> (f32[8,50], f32[8]) {
  %0: f32[8,50] = exponential %x
  %1: f16[8,50] = convert %0 {dtype=f16}
  %2: f16[50,20] = convert %w {dtype=f16}
  %3: f32[8,20] = dot_general %1, %2 {contract=[[1],[0]], batch=[[],[]], result_dtype=f32}
  %4: f32[8] = reduce_sum %3 {dimensions=[1]}
  return %0, %4
}
"""
    stages = Stages(parse(text))
    (product,) = stages.graph.equations[3].results
    stage = stages.around(product, 0, 800)
    assert [eqn.op.name for eqn in stage.slicings] == ["dot_general", "reduce_sum"]


def test_what_is_large_and_lies_between_is_cut_along() -> None:
    """Of two layers whose inputs are small: a stage that goes through takes the inside of both, another that of one."""
    text = """
graph @main(%x: f32[8,4], %w: f32[4,100], %v: f32[100,4]) -> (f32[8]) {
  %0: f32[8,100] = dot_general %x, %w {contract=[[1],[0]], batch=[[],[]]}
  %1: f32[8,100] = sine %0
  %2: f32[8,4] = dot_general %1, %v {contract=[[1],[0]], batch=[[],[]]}
  %3: f32[8,100] = dot_general %2, %w {contract=[[1],[0]], batch=[[],[]]}
  %4: f32[8,100] = exponential %3
  %5: f32[8,4] = dot_general %4, %v {contract=[[1],[0]], batch=[[],[]]}
  %6: f32[8,100] = dot_general %5, %w {contract=[[1],[0]], batch=[[],[]]}
  %7: f32[8,100] = multiply %6, %1
  %8: f32[8] = reduce_sum %7 {dimensions=[1]}
  return %8
}
"""
    graph = parse(text)
    (inside,) = graph.equations[0].results
    arrays = arguments_for(graph, special=0)
    for cuts_through, left in ((False, {(8, 4), (8, 100)}), (True, set())):
        stages = Stages(graph, cuts_through=cuts_through)
        stage = stages.around(inside, 0, 200)
        assert {
            value.type.shape for value in stages.producer if value not in stage.made and value.type.rank > 1
        } == left
        after = in_parts(stages, stage, 4)
        verify(after)
        assert_near(evaluate(after, arrays), evaluate(graph, arrays), 1e-5)


def test_numbers_and_constants_are_made_in_each_part() -> None:
    text = """
graph @main(%x: f32[8,50], %y: i32[8]) -> (f32[8]) {
  %0: f32[8,50] = exponential %x
  %1: i32[8,50] = iota {type=i32[8,50], dimension=0}
  %2: i32[8,50] = broadcast_in_dim %y {shape=[8,50], dimensions=[0]}
  %3: bool[8,50] = compare %1, %2 {direction="EQ"}
  %4: f32[] = constant {type=f32[], data=0.5}
  %5: f32[8,50] = broadcast_in_dim %4 {shape=[8,50], dimensions=[]}
  %6: f32[8,50] = select %3, %0, %5
  %7: f32[8] = reduce_sum %6 {dimensions=[1]}
  return %7
}
"""
    stages = Stages(parse(text))
    (first,) = stages.graph.equations[0].results
    graph = in_parts(stages, stages.around(first, 0, 100), 4)
    verify(graph)
    (loop,) = [eqn.op for eqn in graph.equations if isinstance(eqn.op, Scan)]
    assert loop.consts == 0
    arrays: Sequence[Array] = [np.ones((8, 50), np.float32), np.arange(8, dtype=np.int32)]
    assert_near(evaluate(graph, arrays), evaluate(stages.graph, arrays), 1e-5)
