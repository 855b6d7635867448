"""Which stage is cut, in how many parts, and why another is not."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from rematc.compiler.api.text import parse
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.regions import Checkpoint
from rematc.ir.ops.scan.op import Scan
from rematc.ir.verifier import verify
from rematc.passes.planning.in_slices import InSlices
from rematc.passes.slicing.slicing import WAYS, Sliced, SlicePass, Slicer, sliced, sliced_once
from tests.support.arrays import arguments_for, assert_near

#: A hidden layer, a head, and the backward pass of both; the layer's is a region that computes it again.
MODEL = """
graph @model(%x: f32[6,8,4], %v: f32[4,4], %w: f32[4,90]) -> (f32[], f32[4,4], f32[4,90]) {
  %0: f32[6,8,4] = dot_general %x, %v {contract=[[2],[0]], batch=[[],[]]}
  %1: f32[6,8,4] = sine %0
  %2: f32[6,8,90] = dot_general %1, %w {contract=[[2],[0]], batch=[[],[]]}
  %3: f32[6,8,90] = cumulative_sum %2 {dimension=2}
  %4: f32[] = reduce_sum %3 {dimensions=[0,1,2]}
  %5: f32[6,8,4], %6: f32[4,90] = checkpoint %1, %w {body=
  graph @head(%1: f32[6,8,4], %w: f32[4,90]) -> (f32[6,8,4], f32[4,90]) {
    %2: f32[6,8,90] = dot_general %1, %w {contract=[[2],[0]], batch=[[],[]]}
    %3: f32[6,8,90] = cumulative_sum %2 {dimension=2, is_reversed=true}
    %5: f32[6,8,4] = dot_general %3, %w {contract=[[2],[1]], batch=[[],[]]}
    %6: f32[4,90] = dot_general %1, %3 {contract=[[0,1],[0,1]], batch=[[],[]]}
    return %5, %6
  }, policy="nothing", is_differentiated=true}
  %7: f32[4,4] = checkpoint %x, %v, %5 {body=graph @layer(%x: f32[6,8,4], %v: f32[4,4], %ct: f32[6,8,4]) -> (f32[4,4]) {
    %0: f32[6,8,4] = dot_general %x, %v {contract=[[2],[0]], batch=[[],[]]}
    %1: f32[6,8,4] = cosine %0
    %2: f32[6,8,4] = multiply %1, %ct
    %3: f32[4,4] = dot_general %x, %2 {contract=[[0,1],[0,1]], batch=[[],[]]}
    return %3
  }, policy="nothing", is_differentiated=true}
  return %4, %7, %6
}
"""


def loops(graph: Graph) -> list[Scan]:
    return [eqn.op for eqn in graph.equations if isinstance(eqn.op, Scan)]


@pytest.mark.parametrize(
    ("wanted", "count", "dimension"),
    [(2, 2, 0), (3, 3, 0), (4, 4, 1), (5, 6, 0), (7, 8, 1), (8, 8, 1), (100, 8, 1)],
)
def test_a_head_runs_in_a_number_of_parts_that_divides_a_dimension(wanted: int, count: int, dimension: int) -> None:
    """As many as asked for, or a few more; else as many as there can be."""
    graph = parse(MODEL)
    found = sliced_once(graph, wanted)
    verify(found.graph)
    stage = found.largest
    assert (stage.count, stage.dimension, stage.op) == (count, dimension, "dot_general")
    assert stage.value.type.shape == (6, 8, 90)
    assert [loop.length for loop in loops(found.graph)] == [count]
    arrays = arguments_for(graph, special=0)
    assert_near(evaluate(found.graph, arrays), evaluate(graph, arrays), 1e-4)


def test_the_regions_of_layers_stay() -> None:
    """The head is computed once, in the loop; the layer is still computed again."""
    graph = sliced_once(parse(MODEL), 4).graph
    regions = [eqn.op for eqn in graph.equations if isinstance(eqn.op, Checkpoint)]
    assert [region.body.name for region in regions] == ["layer"]
    (loop,) = loops(graph)
    assert [eqn.op.name for eqn in loop.body.equations].count("dot_general") == 3


def test_a_gradient_is_summed_up_as_it_is_given() -> None:
    """A transposed product is one of the factors in the other order: the sum lies in the memory of the result."""
    text = """
graph @main(%x: f32[8,4], %w: f32[4,90]) -> (f32[8], f32[4,90]) {
  %0: f32[8,90] = dot_general %x, %w {contract=[[1],[0]], batch=[[],[]]}
  %1: f32[8,90] = exponential %0
  %2: f32[8] = reduce_sum %1 {dimensions=[1]}
  %3: f32[90,4] = dot_general %1, %x {contract=[[0],[0]], batch=[[],[]]}
  %4: f32[4,90] = transpose %3 {permutation=[1,0]}
  return %2, %4
}
"""
    graph = parse(text)
    found = sliced(graph, 4).graph
    (loop,) = [eqn for eqn in found.equations if isinstance(eqn.op, Scan)]
    assert found.results[1] in loop.results
    arrays = arguments_for(graph, special=0)
    assert_near(evaluate(found, arrays), evaluate(graph, arrays), 1e-5)


def test_no_parts_are_no_loop() -> None:
    graph = parse(MODEL)
    assert SlicePass().run(graph) is graph


def refusal(body: str, result: str, way: Callable[[Graph, int], Sliced] = sliced) -> str:
    text = f"graph @main(%x: f32[8,4], %w: f32[4,90]) -> ({result}) {{\n{body}\n}}"
    with pytest.raises(CompileError) as caught:
        way(parse(text), 4)
    return re.sub(r" at \S+( \(\w+\))?", "", caught.value.message)


PRODUCT = "%0: f32[8,90] = dot_general %x, %w {contract=[[1],[0]], batch=[[],[]]}\n"


def test_statistics_of_a_batch_need_it_whole() -> None:
    """The mean over one dimension, and the spread over the other, where nothing is computed again."""
    body = f"""{PRODUCT}
  %1: f32[90] = reduce_sum %0 {{dimensions=[0]}}
  %2: f32[8,90] = broadcast_in_dim %1 {{shape=[8,90], dimensions=[1]}}
  %3: f32[8,90] = subtract %0, %2
  %4: f32[8] = reduce_sum %3 {{dimensions=[1]}}
  %5: f32[8,90] = broadcast_in_dim %4 {{shape=[8,90], dimensions=[0]}}
  %6: f32[8,90] = multiply %3, %5
  %7: f32[] = reduce_sum %6 {{dimensions=[0,1]}}
  return %7"""
    message = refusal(body, "f32[]", sliced_once)
    assert "f32[8,90]" in message
    assert "along dimension 0: 'reduce_sum' sums over it what is read there again" in message


def test_a_sort_needs_its_lines_whole() -> None:
    body = f"""{PRODUCT}
  %1: f32[8,90] = sort %0 {{dimension=0}}
  %2: f32[8,90] = sort %0 {{dimension=1}}
  %3: f32[8,90] = add %1, %2
  %4: f32[] = reduce_sum %3 {{dimensions=[0,1]}}
  return %4"""
    message = refusal(body, "f32[]")
    assert "along dimension 0: 'sort' needs it whole" in message
    assert "along dimension 1: 'sort' needs it whole" in message


def test_a_result_is_whole() -> None:
    message = refusal(f"{PRODUCT}\n  return %0", "f32[8,90]")
    assert "along dimension 0: it is a result of the function, or what is made of it" in message


def test_effects_are_never_repeated() -> None:
    body = f"""{PRODUCT}
  %1: f32[8,90] = exponential %0
  debug_print %1 {{format="", keywords=[], is_ordered=false}}
  %2: f32[] = reduce_sum %1 {{dimensions=[0,1]}}
  return %2"""
    message = refusal(body, "f32[]")
    assert "'debug_print' needs it whole" in message


def test_a_chain_is_cut_from_end_to_end() -> None:
    """Its parameters are as large as what is computed of them, and there anyway: the step runs in microbatches."""
    text = """
graph @chain(%x: f32[8,4], %w: f32[4,4]) -> (f32[4,4]) {
  %0: f32[8,4] = dot_general %x, %w {contract=[[1],[0]], batch=[[],[]]}
  %1: f32[8,4] = tanh %0
  %2: f32[8,4] = dot_general %1, %w {contract=[[1],[0]], batch=[[],[]]}
  %3: f32[4,4] = dot_general %1, %2 {contract=[[0],[0]], batch=[[],[]]}
  return %3
}
"""
    found = sliced(parse(text), 2)
    assert (found.largest.count, found.largest.dimension) == (2, 0)
    assert [eqn.op.name for eqn in found.graph.equations if eqn.op.name in ("dot_general", "tanh")] == []


# -- through the program -----------------------------------------------------------------------------------------------


def through(graph: Graph, count: int) -> Sliced:
    return Slicer(graph).through(count)


#: A batch goes through layers in a loop; its gradients come from another loop, which stacks those of the layers.
LAYERS = """
graph @layers(%x: f32[6,4], %w: f32[3,4,4]) -> (f32[], f32[3,4,4]) {
  %0: f32[6,4], %1: f32[3,6,4] = scan %x, %w {body=graph @layer(%x: f32[6,4], %w: f32[4,4]) -> (f32[6,4], f32[6,4]) {
    %0: f32[6,4] = dot_general %x, %w {contract=[[1],[0]], batch=[[],[]]}
    %1: f32[6,4] = sine %0
    return %1, %x
  }, length=3, consts=0, carry=1}
  %2: f32[6,4] = exponential %0
  %3: f32[] = reduce_sum %2 {dimensions=[0,1]}
  %4: f32[6,4], %5: f32[3,4,4] = scan %2, %w, %1 {body=
  graph @back(%ct: f32[6,4], %w: f32[4,4], %x: f32[6,4]) -> (f32[6,4], f32[4,4]) {
    %0: f32[6,4] = dot_general %x, %w {contract=[[1],[0]], batch=[[],[]]}
    %1: f32[6,4] = cosine %0
    %2: f32[6,4] = multiply %1, %ct
    %3: f32[4,4] = dot_general %x, %2 {contract=[[0],[0]], batch=[[],[]]}
    %4: f32[6,4] = dot_general %2, %w {contract=[[1],[1]], batch=[[],[]]}
    return %4, %3
  }, length=3, consts=0, carry=1, is_reversed=true}
  return %3, %5
}
"""


@pytest.mark.parametrize("count", [2, 3, 6])
def test_a_batch_goes_through_layers_in_loops(count: int) -> None:
    """Both loops are in the step of one, and the gradients of the layers are added up where that one holds them."""
    graph = parse(LAYERS)
    found = through(graph, count)
    verify(found.graph)
    (loop,) = loops(found.graph)
    forward, backward = loops(loop.body)
    assert (loop.length, forward.length, backward.length) == (count, 3, 3)
    assert [type.shape for type in backward.body.result_types] == [(6 // count, 4), (3, 4, 4)]
    stacked = [type.shape for eqn in loop.body.equations for type in eqn.result_types if type.shape == (3, 4, 4)]
    assert len(stacked) == 1, "what the loop gives, and no stack beside it"
    arrays = arguments_for(graph, special=0)
    assert_near(evaluate(found.graph, arrays), evaluate(graph, arrays), 1e-4)


#: A statistic of a batch stands between what makes rows and what reads them again.
STATISTIC = """
graph @statistic(%x: f32[64,8], %w: f32[8,32], %v: f32[32,8]) -> (f32[64,8]) {
  %0: f32[64,32] = dot_general %x, %w {contract=[[1],[0]], batch=[[],[]]}
  %1: f32[64,32] = sine %0
  %2: f32[64] = reduce_sum %1 {dimensions=[1]}
  %3: f32[64] = sort %2 {dimension=0, num_keys=1}
  %4: f32[1] = slice %3 {start=[31], limit=[32], strides=[1]}
  %5: f32[] = reshape %4 {shape=[]}
  %6: f32[64,32] = broadcast_in_dim %5 {shape=[64,32], dimensions=[]}
  %7: f32[64,32] = multiply %1, %6
  %8: f32[64,8] = dot_general %7, %v {contract=[[1],[0]], batch=[[],[]]}
  return %8
}
"""


def test_what_waits_for_a_statistic_computes_its_rows_again() -> None:
    graph = parse(STATISTIC)
    found = through(graph, 8)
    assert [stage.is_again for stage in found.stages] == [False, True]
    assert [eqn.op.name for eqn in found.graph.equations if eqn.result_types[0].shape == (64, 32)] == []
    arrays = arguments_for(graph, special=0)
    assert_near(evaluate(found.graph, arrays), evaluate(graph, arrays), 1e-4)


def test_a_program_is_cut_again_as_it_was() -> None:
    graph = parse(LAYERS)
    for count, way in ((2, "through"), (3, "once")):
        found = Slicer(graph).cut(InSlices(count, way))
        assert found.asked == InSlices(count, way)
        assert found.graph == WAYS[way](Slicer(graph), count).graph
    with pytest.raises(CompileError, match="'thorough' is no way to cut a program; did you mean 'through'"):
        Slicer(graph).cut(InSlices(2, "thorough"))
