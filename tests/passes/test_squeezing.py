"""What is computed of products in batches of one, without that dimension."""

from __future__ import annotations

import jax
import numpy as np
from hypothesis import given

import rematc
from rematc.compiler.api.text import parse
from rematc.ir.core import Graph
from rematc.ir.interpreter import evaluate
from rematc.ir.verifier import verify
from rematc.passes.dce import DeadCode
from rematc.passes.legalize.squeezing import Squeezing
from tests.support.random_graphs import arguments_for, graphs, same_bits

#: One head of attention: scores of products in a batch of one, written as JAX does it and as StableHLO may.
HEAD = """graph @f(%x: f32[1,8,4], %y: f32[2,1,8,4], %z: f32[2,1,8,8]) -> (f32[1,4,8], f32[2,1,8,4]) {
  %m: f32[8,4] = reshape %x {shape=[8,4]}
  %p: f32[8,8] = dot_general %m, %m {contract=[[1],[1]], batch=[[],[]]}
  %0: f32[1,8,8] = reshape %p {shape=[1,8,8]}
  %1: f32[1,8,8] = exponential %0
  %2: f32[1,8] = reduce_sum %1 {dimensions=[2]}
  %3: f32[1,8,8] = broadcast_in_dim %2 {shape=[1,8,8], dimensions=[0,1]}
  %4: f32[1,8,8] = divide %1, %3
  %5: f32[8,8] = reshape %4 {shape=[8,8]}
  %6: f32[8,4] = dot_general %5, %m {contract=[[1],[0]], batch=[[],[]]}
  %7: f32[1,8,4] = reshape %6 {shape=[1,8,4]}
  %8: f32[1,4,8] = transpose %7 {permutation=[0,2,1]}
  %q: f32[2,1,8,8] = dot_general %y, %y {contract=[[3],[3]], batch=[[0,1],[0,1]]}
  %9: f32[2,1,8,8] = add %q, %z
  %10: f32[2,1,8,8], %11: f32[2,1,8,4] = optimization_barrier %9, %y
  %12: f32[2,1,8,4] = dot_general %10, %11 {contract=[[3],[2]], batch=[[0,1],[0,1]]}
  return %8, %12
}"""


def shapes(graph: Graph) -> list[tuple[str, tuple[int, ...]]]:
    made = {value: eqn.op.name for eqn in graph.equations for value in eqn.results}
    return [(name, value.type.shape) for value, name in made.items() if name != "reshape"]


def test_what_is_computed_of_a_product_in_a_batch_of_one_is_without_that_dimension() -> None:
    before = parse(HEAD)
    squeezing = Squeezing()
    after = DeadCode().run(squeezing.graph(before))
    verify(after)
    assert shapes(after) == [
        ("dot_general", (8, 8)),
        ("exponential", (8, 8)),
        ("reduce_sum", (8,)),
        ("broadcast_in_dim", (8, 8)),
        ("divide", (8, 8)),
        ("dot_general", (8, 4)),
        ("transpose", (4, 8)),
        ("dot_general", (2, 8, 8)),
        ("add", (2, 8, 8)),
        ("optimization_barrier", (2, 8, 8)),
        ("optimization_barrier", (2, 1, 8, 4)),
        ("dot_general", (2, 8, 4)),
    ]
    arguments = arguments_for(before, special=0.0)
    assert same_bits(evaluate(before, arguments), evaluate(after, arguments))
    old = {value for eqn in before.equations for value in eqn.results}
    for new, value in squeezing.origins.items():
        assert value in old and new not in old and new.type.size == value.type.size


def test_a_graph_without_such_products_stays() -> None:
    before = parse(
        """graph @f(%x: f32[1,8,4], %w: f32[4,4]) -> (f32[1,8,4]) {
  %0: f32[1,8,4] = dot_general %x, %w {contract=[[2],[0]], batch=[[],[]]}
  %1: f32[1,8,4] = sine %0
  return %1
}"""
    )
    assert Squeezing().graph(before) is before


@given(graphs(regions=2))
def test_meaning_is_preserved(graph: Graph) -> None:
    after = Squeezing().graph(graph)
    verify(after)
    arguments = arguments_for(graph)
    assert same_bits(evaluate(after, arguments), evaluate(graph, arguments))


def steps(x: jax.Array, count: int) -> jax.Array:
    """Newton's iteration for an orthogonal matrix, of a batch of one."""
    for _ in range(count):
        x = 1.5 * x - 0.5 * (x @ x.swapaxes(-1, -2)) @ x
    return x


def test_an_iteration_holds_no_product_of_its_steps_before() -> None:
    x = np.zeros((1, 128, 1024), np.float32)
    taken, by_jax = [], []
    for count in (2, 6):
        function = rematc.from_jax(lambda x, count=count: 2 * steps(x, count))
        lowered = rematc.lower(function, x)
        taken.append(rematc.compile(function, x).memory().temp_bytes)
        analysis = jax.jit(steps, static_argnums=1).lower(x, count).compile().memory_analysis()
        assert analysis is not None
        by_jax.append(analysis.temp_size_in_bytes)
        assert abs(lowered.predicted_peak() / taken[-1] - 1) < 0.05
    assert taken[1] < 1.1 * taken[0]
    assert by_jax[1] > 1.5 * by_jax[0]


def test_a_graph_without_any_stays_itself() -> None:
    """Dimensions of one element that are added to what is no product are left."""
    before = parse("""graph @f(%x: f32[8,1], %y: f32[8]) -> (f32[8,1], f32[1,8]) {
  %0: f32[8,1] = sine %x
  %1: f32[1,8] = reshape %y {shape=[1,8]}
  return %0, %1
}""")
    assert Squeezing().graph(before) is before
