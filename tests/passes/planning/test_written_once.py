"""What a plan counts on being written once, in the place of another value, is behind a barrier."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rematc.compiler.api.text import parse
from rematc.ir.ops.regions import Checkpoint
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.passes.planning.apply import apply
from rematc.passes.planning.device import CPU, H100
from rematc.passes.planning.problem import Problem, Stages, problem_of, simulate
from rematc.passes.planning.shards import Machine
from rematc.passes.planning.translation import translate
from rematc.passes.planning.written_once import written_once
from tests.support.problems import problems, staged

ON_CPU = Machine(CPU)

#: Logits, what the loss makes of them in their place, and the two products that read that: with a stage at %2.
HEAD = """graph @f(%x: f32[8,16], %w: f32[16,512]) -> (f32[16,512], f32[8,16]) {
  %0: f32[8,512] = dot_general %x, %w {contract=[[1],[0]], batch=[[],[]]}
  %1: f32[8] = reduce_max %0 {dimensions=[1]}
  %2: f32[8,512] = dot_general %x, %w {contract=[[1],[0]], batch=[[],[]]}
  %3: f32[8,512] = broadcast_in_dim %1 {shape=[8,512], dimensions=[0]}
  %4: f32[8,512] = subtract %2, %3
  %5: f32[16,512] = dot_general %x, %4 {contract=[[0],[0]], batch=[[],[]]}
  %6: f32[8,16] = dot_general %4, %w {contract=[[1],[1]], batch=[[],[]]}
  return %5, %6
}"""
STAGE = Stages((2,), ((1,),))


def barriers(text: str, stages: Stages = STAGE) -> int:
    """How many there are in the stage."""
    (region,) = [
        eqn for eqn in apply(translate(parse(text), ON_CPU), stages).equations if isinstance(eqn.op, Checkpoint)
    ]
    return sum(isinstance(eqn.op, OptimizationBarrier) for eqn in region.op.regions()[0].equations)


def test_what_several_products_read_is_written_once() -> None:
    assert barriers(HEAD) == 1
    sums = HEAD.replace("(f32[16,512], f32[8,16])", "(f32[8], f32[512])").replace("%5: f32[16,512] =", "%5: f32[8] =")
    sums = sums.replace("dot_general %x, %4 {contract=[[0],[0]], batch=[[],[]]}", "reduce_max %4 {dimensions=[1]}")
    sums = sums.replace(
        "%6: f32[8,16] = dot_general %4, %w {contract=[[1],[1]], batch=[[],[]]}",
        "%6: f32[512] = reduce_max %4 {dimensions=[0]}",
    )
    assert barriers(sums) == 0, "reductions take it into their own kernels"
    assert barriers(HEAD.replace("%6: f32[8,16] = dot_general %4", "%6: f32[8,16] = dot_general %3")) == 0, "one reader"


def test_what_is_written_over_lives_no_longer_than_to_its_next_run() -> None:
    problem = problem_of(
        cost=[0] * 5,
        reads=[[], [], [0], [1], [0, 1]],
        size=[1, 0],
        producer=[0, 2],
        results=[],
        replaces=[-1, 0],
    )
    assert not any(written_once(problem, Stages((4,), ((0,),))))


@given(st.data())
def test_without_the_place_of_the_other_a_value_would_exceed_the_peak(data: st.DataObject) -> None:
    problem = data.draw(problems())
    stages = data.draw(staged(problem))
    peak = simulate(problem, stages).peak
    for value in frozenset().union(*written_once(problem, stages)):
        assert problem.replaces[value] >= 0
        read = [node for node, reads in enumerate(problem.reads) if value in reads]
        assert len(read) + sum(node in again for again in stages.again for node in read) > 1
        # What is written over is read by all who read the value, too: it lives as long.
        old = int(problem.replaces[value])
        reads = [[*row, old] if value in row and old not in row else row for row in problem.reads]
        beside = dataclasses.replace(problem, reads=reads)
        assert simulate(beside, stages).peak > peak


def copies(problem: Problem) -> list[int]:
    return problem.workspace.tolist()


def test_products_that_sum_over_several_dimensions_copy_what_is_in_memory_anyway() -> None:
    text = """graph @f(%x: f32[2,8,3], %w: f32[3,4], %v: f32[3,64]) -> (f32[64,4], f32[2,8,4]) {
      %0: f32[2,8,4] = dot_general %x, %w {contract=[[2],[0]], batch=[[],[]]}
      %1: f32[2,8,64] = dot_general %x, %v {contract=[[2],[0]], batch=[[],[]]}
      %2: f32[64,4] = dot_general %1, %0 {contract=[[0,1],[0,1]], batch=[[],[]]}
      %3: f32[2,8,4] = negate %0
      return %2, %3
    }"""
    small = math.prod((2, 8, 4)) * 4
    assert copies(translate(parse(text), ON_CPU).problem)[2] == small, "the smaller factor, which goes first"
    assert copies(translate(parse(text), Machine(H100)).problem)[2] == 0


@pytest.mark.parametrize(("order", "is_copied"), [("[0,2,1]", False), ("[2,0,1]", True), ("[0,1,2]", True)])
def test_convolutions_copy_what_does_not_stand_in_their_order(order: str, is_copied: bool) -> None:
    """XLA:CPU takes images as batch, space, features; gradients of kernels have the batch for features."""
    window = "window_strides=[1], padding=[[0,0]], lhs_dilation=[1], rhs_dilation=[1], window_reversal=[false]"
    text = f"""graph @f(%x: f32[4,4,4], %k: f32[1,4,4]) -> (f32[4,4,4], f32[4,4,4]) {{
      %0: f32[4,4,4] = dot_general %x, %x {{contract=[[2],[1]], batch=[[0],[0]]}}
      %1: f32[4,4,4] = convolution %0, %k {{{window}, dimensions={{input={order}, kernel=[2,1,0], output=[0,2,1]}}}}
      %2: f32[4,4,4] = negate %0
      return %1, %2
    }}"""
    assert copies(translate(parse(text), ON_CPU).problem)[1] == is_copied * 4**3 * 4
