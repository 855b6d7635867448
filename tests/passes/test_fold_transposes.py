"""Products that are only transposed, the other way round."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from rematc.compiler.api.text import parse
from rematc.ir.core import Graph
from rematc.ir.interpreter import evaluate
from rematc.ir.verifier import verify
from rematc.passes.fold_transposes import FoldTransposes
from tests.support.arrays import assert_near
from tests.support.random_graphs import arguments_for, graphs, same_bits

GRADIENT = """graph @f(%ct: f32[2,8,64], %x: f32[2,8,4]) -> (f32[4,64]) {
  %0: f32[64,4] = dot_general %ct, %x {contract=[[0,1],[0,1]], batch=[[],[]]}
  %1: f32[4,64] = transpose %0 {permutation=[1,0]}
  return %1
}"""
IN_BATCHES = """graph @f(%a: f32[3,5,4], %b: f32[3,6,7,4]) -> (f32[3,6,7,5]) {
  %0: f32[3,5,6,7] = dot_general %a, %b {contract=[[2],[3]], batch=[[0],[0]]}
  %1: f32[3,6,7,5] = transpose %0 {permutation=[0,2,3,1]}
  return %1
}"""

#: A head that shares its table with an embedding, and scores whose second factor is turned, too.
SHARED = """graph @f(%x: f32[8,4], %table: f32[64,4], %y: f32[3,2,8,4]) -> (f32[8,64], f32[3,2,8,8]) {
  %0: f32[4,64] = transpose %table {permutation=[1,0]}
  %1: f32[8,64] = dot_general %x, %0 {contract=[[1],[0]], batch=[[],[]]}
  %2: f32[3,2,8,4] = tanh %y
  %3: f32[3,2,4,8] = transpose %2 {permutation=[0,1,3,2]}
  %4: f32[3,2,8,8] = dot_general %y, %3 {contract=[[3],[2]], batch=[[0,1],[0,1]]}
  return %1, %4
}"""


#: A head in chunks, in a loop and in a loop of loops, that reads the table transposed.
IN_CHUNKS = """graph @f(%xs: f32[3,2,8,4], %table: f32[64,4], %start: f32[]) -> (f32[], f32[3,8,64]) {{
  %0: f32[4,64] = transpose %table {{permutation=[1,0]}}
  %1: f32[], %2: f32[3,8,64] = scan %0, %start, %xs {{length=3, consts=1, carry=1,
    body=graph @outer(%t: f32[4,64], %c: f32[], %x: f32[2,8,4]) -> (f32[], f32[8,64]) {{
      %0: f32[] = scan %t, %c, %x {{length=2, consts=1, carry=1,
        body=graph @inner(%t: f32[4,64], %c: f32[], %x: f32[8,4]) -> (f32[]) {{
          %0: f32[8,64] = dot_general %x, %t {{contract=[[1],[0]], batch=[[],[]]}}
          %1: f32[] = reduce_sum %0 {{dimensions=[0,1]}}
          %2: f32[] = add %c, %1
          return %2
        }}}}
      %1: f32[1,8,4] = slice %x {{start=[1,0,0], limit=[2,8,4], strides=[1,1,1]}}
      %2: f32[8,4] = reshape %1 {{shape=[8,4]}}
      %3: f32[8,64] = dot_general %2, %t {{contract=[[1],[0]], batch=[[],[]]}}
      {}
    }}}}
  return %1, %2
}}"""


def ops(graph: Graph) -> list[str]:
    return [eqn.op.name for eqn in graph.equations]


@pytest.mark.parametrize("text", [GRADIENT, IN_BATCHES], ids=["gradient", "in batches"])
def test_a_product_that_is_only_transposed_is_computed_so(text: str) -> None:
    before = parse(text)
    after = FoldTransposes().run(before)
    verify(after)
    assert ops(after) == ["dot_general"] and after.equations[0].operands == before.equations[0].operands[::-1]
    arguments = arguments_for(before, special=0.0)
    assert_near(evaluate(after, arguments), evaluate(before, arguments), 1e-5)


def test_steps_of_loops_multiply_parameters_as_they_are() -> None:
    """Where all that read the transposed one are products; else it stays, for all of them."""
    before = parse(IN_CHUNKS.format("return %0, %3"))
    after = FoldTransposes().run(before)
    verify(after)
    (loop,) = after.equations
    assert loop.op.name == "scan" and before.params[1] in loop.operands
    arguments = arguments_for(before, special=0.0)
    assert_near(evaluate(after, arguments), evaluate(before, arguments), 1e-5)
    elsewhere = parse(
        IN_CHUNKS.format(
            "%4: f32[64] = reduce_sum %t {dimensions=[0]} %5: f32[8,64] = "
            "broadcast_in_dim %4 {shape=[8,64], dimensions=[1]} return %0, %5"
        )
    )
    assert FoldTransposes().run(elsewhere) is elsewhere


def test_a_parameter_is_multiplied_as_it_is() -> None:
    """Beside what is computed: its transpose is memory that a plan may do without."""
    before = parse(SHARED)
    after = FoldTransposes().run(before)
    verify(after)
    assert ops(after) == ["dot_general", "tanh", "transpose", "dot_general"]
    assert after.equations[0].operands == (before.params[0], before.params[1])
    arguments = arguments_for(before, special=0.0)
    assert_near(evaluate(after, arguments), evaluate(before, arguments), 1e-5)


@pytest.mark.parametrize(
    "replaced",
    [
        {"return %1": "return %1, %0", "-> (f32[4,64])": "-> (f32[4,64], f32[64,4])"},
        {"permutation=[1,0]": "permutation=[0,1]", "f32[4,64]": "f32[64,4]"},
        {"return %1": "%2: f32[64,4] = tanh %0\n  return %1, %2", "-> (f32[4,64])": "-> (f32[4,64], f32[64,4])"},
    ],
    ids=["also a result", "as it was", "also read"],
)
def test_others_stay(replaced: dict[str, str]) -> None:
    text = GRADIENT
    for old, new in replaced.items():
        text = text.replace(old, new)
    graph = parse(text)
    assert FoldTransposes().run(graph) is graph


@settings(max_examples=60)
@given(graphs(regions=2))
def test_meaning_is_preserved(graph: Graph) -> None:
    after = FoldTransposes().run(graph)
    verify(after)
    arguments = arguments_for(graph)
    assert same_bits(evaluate(graph, arguments), evaluate(after, arguments))
