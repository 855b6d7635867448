"""Several stages, some of which compute again what another one had: attention, statistics, regions, loops, masks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rematc.compiler.api.text import parse
from rematc.ir.core import Equation, Graph
from rematc.ir.errors import CompileError
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.regions import Checkpoint
from rematc.ir.ops.scan.op import Scan
from rematc.ir.policy import Policy
from rematc.ir.values import Value
from rematc.ir.verifier import verify
from rematc.passes.dce import DeadCode
from rematc.passes.linearize import under_policy, vjp
from rematc.passes.slicing.counters import Counters
from rematc.passes.slicing.slicing import Sliced, sliced
from tests.passes.test_barriers import training_step
from tests.support.arrays import arguments_for, assert_near, same_bits
from tests.support.random_graphs import graphs
from tests.support.smooth_graphs import arrays_for, is_float, policies, smooth_graphs

#: Attention of 16 queries and keys; its backward pass depends on all that it gives.
ATTENTION = """
graph @main(%q: f32[16,4], %k: f32[16,4], %v: f32[16,4], %w: f32[4,4]) -> (f32[], f32[16,4], f32[16,4], f32[16,4]) {
  %0: f32[16,16] = dot_general %q, %k {contract=[[1],[1]], batch=[[],[]]}
  %1: i32[16,16] = iota {type=i32[16,16], dimension=0}
  %2: i32[16,16] = iota {type=i32[16,16], dimension=1}
  %3: bool[16,16] = compare %1, %2 {direction="GE"}
  %4: f32[] = constant {type=f32[], data=-9.0}
  %5: f32[16,16] = broadcast_in_dim %4 {shape=[16,16], dimensions=[]}
  %6: f32[16,16] = select %3, %0, %5
  %7: f32[16,16] = exponential %6
  %8: f32[16] = reduce_sum %7 {dimensions=[1]}
  %9: f32[16,4] = dot_general %7, %v {contract=[[1],[0]], batch=[[],[]]}
  %10: f32[16,4] = broadcast_in_dim %8 {shape=[16,4], dimensions=[0]}
  %11: f32[16,4] = divide %9, %10
  %12: f32[4] = reduce_sum %11 {dimensions=[0]}
  %13: f32[16,4] = broadcast_in_dim %12 {shape=[16,4], dimensions=[1]}
  %14: f32[16,4] = sine %13
  %15: f32[16,4] = dot_general %14, %w {contract=[[1],[0]], batch=[[],[]]}
  %16: f32[] = reduce_sum %15 {dimensions=[0,1]}
  %17: f32[16,16] = dot_general %15, %v {contract=[[1],[1]], batch=[[],[]]}
  %18: f32[16,16] = multiply %17, %7
  %19: f32[16,16] = select %3, %18, %5
  %20: f32[16,4] = dot_general %19, %k {contract=[[1],[0]], batch=[[],[]]}
  %21: f32[16,4] = dot_general %19, %q {contract=[[0],[0]], batch=[[],[]]}
  %22: f32[16,4] = dot_general %7, %15 {contract=[[0],[0]], batch=[[],[]]}
  return %16, %20, %21, %22
}
"""


def equations(graph: Graph) -> Iterator[Equation]:
    for eqn in graph.equations:
        yield eqn
        for region in eqn.op.regions():
            yield from equations(region)


def values(graph: Graph) -> Iterator[Value]:
    return (value for eqn in equations(graph) for value in eqn.results)


def loops(graph: Graph) -> list[Scan]:
    return [eqn.op for eqn in equations(graph) if isinstance(eqn.op, Scan)]


def assert_same(found: Sliced, graph: Graph, tolerance: float = 1e-5) -> None:
    verify(found.graph)
    arrays = arguments_for(graph, special=0)
    assert_near(evaluate(found.graph, arrays), evaluate(graph, arrays), tolerance)


def test_scores_are_computed_again_in_a_loop_of_the_backward_pass() -> None:
    """No value of 16 by 16 is left, not the mask either: each part of it is counted where it is read."""
    graph = parse(ATTENTION)
    found = sliced(graph, 4)
    assert_same(found, graph)
    assert [(loop.length, loop.body.name) for loop in loops(found.graph)] == [(4, "stage"), (4, "stage")]
    assert sorted(stage.is_again for stage in found.stages) == [False, True]
    assert not [value for value in values(DeadCode().run(found.graph)) if value.type.size >= 16 * 16]


def test_what_only_later_stages_read_is_not_computed_twice() -> None:
    """The second loop has one product for scores, and the three of its own."""
    first, second = loops(sliced(parse(ATTENTION), 4).graph)
    names = [[eqn.op.name for eqn in loop.body.equations].count("dot_general") for loop in (first, second)]
    assert names == [2, 5]


def in_region(text: str) -> str:
    """All of a graph in a region of the backward pass."""
    head, body = text.strip().split("\n", 1)
    name = head.replace("@main", "@inner")
    return f"""
{head}
  %30: f32[], %31: f32[16,4], %32: f32[16,4], %33: f32[16,4] = checkpoint %q, %k, %v, %w {{body=
  {name}
{body}, policy="nothing", is_differentiated=true}}
  return %30, %31, %32, %33
}}
"""


def test_stages_in_regions_are_cut_there() -> None:
    graph = parse(in_region(ATTENTION))
    found = sliced(graph, 4)
    assert_same(found, graph)
    assert [loop.length for loop in loops(found.graph)] == [4, 4]


LOOP = """
graph @main(%w: f32[8,64], %xs: f32[3,8,8]) -> (f32[8,64]) {
  %0: f32[] = constant {type=f32[], data=0.0}
  %1: f32[8,64] = broadcast_in_dim %0 {shape=[8,64], dimensions=[]}
  %2: f32[8,64] = scan %w, %1, %xs {body=graph @step(%w: f32[8,64], %sum: f32[8,64], %x: f32[8,8]) -> (f32[8,64]) {
    %3: f32[8,64] = dot_general %x, %w {contract=[[1],[0]], batch=[[],[]]}
    %4: f32[8,64] = exponential %3
    %5: f32[8,64] = dot_general %x, %4 {contract=[[0],[0]], batch=[[],[]]}
    %6: f32[8,64] = add %sum, %5
    return %6
  }, length=3, consts=1, carry=1}
  return %2
}
"""


def test_stages_in_steps_of_loops_are_cut_there() -> None:
    """As those of gradient accumulation."""
    graph = parse(LOOP)
    found = sliced(graph, 4)
    assert_same(found, graph)
    assert sorted(loop.length for loop in loops(found.graph)) == [3, 4]


STATISTICS = """
graph @main(%x: f32[8,4], %w: f32[4,32]) -> (f32[8]) {
  %0: f32[8,32] = dot_general %x, %w {contract=[[1],[0]], batch=[[],[]]}
  %1: f32[32] = reduce_sum %0 {dimensions=[0]}
  %2: f32[8,32] = broadcast_in_dim %1 {shape=[8,32], dimensions=[1]}
  %3: f32[8,32] = subtract %0, %2
  %4: f32[8,32] = sort %3 {dimension=1}
  %5: f32[8] = reduce_max %4 {dimensions=[1]}
  return %5
}
"""


def test_statistics_over_the_dimension_are_a_loop_of_their_own() -> None:
    graph = parse(STATISTICS)
    found = sliced(graph, 4)
    assert_same(found, graph)
    assert [loop.length for loop in loops(found.graph)] == [4, 4]


def test_what_cannot_be_repeated_is_not_computed_again() -> None:
    text = STATISTICS.replace(
        "dot_general %x, %w {contract=[[1],[0]], batch=[[],[]]}",
        'custom_call %x, %w {target="draw", types=[f32[8,32]], has_side_effect=true}',
    )
    with pytest.raises(CompileError, match="nothing can run in 4 slices"):
        sliced(parse(text), 4)


def test_sums_begin_with_zeros_that_wait_for_what_the_loop_reads() -> None:
    """XLA makes constants whenever it likes: zeros of all loops would be there from the program's beginning."""
    found = sliced(parse(ATTENTION), 4).graph
    last = [eqn for eqn in found.equations if isinstance(eqn.op, Scan)][-1]
    producer = {value: eqn for eqn in found.equations for value in eqn.results}
    op = last.op
    assert isinstance(op, Scan)
    for value in last.operands[op.consts : op.consts + op.carry]:
        scalar = producer[producer[value].operands[0]]
        assert scalar.op.name == "optimization_barrier"


@settings(max_examples=80)
@given(smooth_graphs(), policies(), st.sampled_from([2, 3, 4]))
def test_training_steps_under_policies_give_the_same(graph: Graph, policy: Policy, count: int) -> None:
    step = training_step(vjp(under_policy(graph, policy), is_float(graph)))
    try:
        found = sliced(step, count)
    except CompileError:
        return
    verify(found.graph)
    arrays = arrays_for(step)
    assert_near(evaluate(found.graph, arrays), evaluate(step, arrays), 1e-9)


@settings(max_examples=80)
@given(graphs(), st.sampled_from([2, 3, 4]))
def test_any_graph_gives_the_same(graph: Graph, count: int) -> None:
    try:
        found = sliced(graph, count)
    except CompileError:
        return
    verify(found.graph)
    arrays = arguments_for(graph, special=0)
    assert_near(evaluate(found.graph, arrays), evaluate(graph, arrays), 1e-4)


# -- counters ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["i32", "u32", "u8"])
def test_counters_of_a_shape_are_the_same(dtype: str) -> None:
    text = f"""
graph @main() -> ({dtype}[2,3,4]) {{
  %0: {dtype}[24] = iota {{type={dtype}[24], dimension=0}}
  %1: {dtype}[2,3,4] = reshape %0 {{shape=[2,3,4]}}
  return %1
}}
"""
    graph = parse(text)
    found = Counters().run(graph)
    assert "reshape" not in [eqn.op.name for eqn in found.equations]
    assert same_bits(evaluate(found, []), evaluate(graph, []))


@pytest.mark.parametrize("dtype", ["f32", "i8"])
def test_counters_that_are_not_exact_stay(dtype: str) -> None:
    """Floats may round; narrow numbers run over."""
    text = f"""
graph @main() -> ({dtype}[16,16]) {{
  %0: {dtype}[256] = iota {{type={dtype}[256], dimension=0}}
  %1: {dtype}[16,16] = reshape %0 {{shape=[16,16]}}
  return %1
}}
"""
    graph = parse(text)
    assert Counters().run(graph) is graph


def test_regions_keep_their_policy() -> None:
    graph = sliced(parse(in_region(ATTENTION)), 4).graph
    (region,) = [eqn.op for eqn in graph.equations if isinstance(eqn.op, Checkpoint)]
    assert region.is_differentiated
