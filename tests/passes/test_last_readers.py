"""What reads little of a large value reads it before something is written in its place."""

from __future__ import annotations

from rematc.compiler.api.text import parse
from rematc.ir.core import Graph
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.ir.verifier import verify
from rematc.passes.kernels import CPU
from rematc.passes.legalize.last_readers import reads_before, with_waits
from tests.support.random_graphs import arguments_for, same_bits

#: A softmax, of which the loss of one class reads the logits, and its sum: fused, it reads both after the exponentials.
HEAD = """graph @f(%h: f32[8,4], %w: f32[4,64]) -> (f32[8,64], f32[8]) {
  %0: f32[8,64] = dot_general %h, %w {contract=[[1],[0]], batch=[[],[]]}
  %1: f32[8,1] = slice %0 {start=[0,3], limit=[8,4], strides=[1,1]}
  %2: f32[8] = reshape %1 {shape=[8]}
  %3: f32[8] = reduce_max %0 {dimensions=[1]}
  %4: f32[8,64] = broadcast_in_dim %3 {shape=[8,64], dimensions=[0]}
  %5: f32[8,64] = subtract %0, %4
  %6: f32[8,64] = exponential %5
  %7: f32[8] = reduce_sum %6 {dimensions=[1]}
  %8: f32[8] = subtract %7, %2
  %9: f32[8] = add %2, %8
  return %6, %9
}"""


def head(*replaced: tuple[str, str]) -> Graph:
    text = HEAD
    for old, new in replaced:
        text = text.replace(old, new)
    return parse(text)


def test_the_class_is_read_before_the_exponentials_are_written() -> None:
    graph = head()
    product, (part,) = graph.equations[0].results[0], graph.equations[1].results
    waits = reads_before(graph, CPU)
    assert waits == {5: (product, [part])}, "the maximum is read before them anyway"
    held = with_waits(graph, waits)
    verify(held)
    (barrier,) = [eqn for eqn in held.equations if isinstance(eqn.op, OptimizationBarrier)]
    assert barrier.operands == (product, part)
    assert not any(product in eqn.operands for eqn in held.equations[held.equations.index(barrier) + 1 :])
    arguments = arguments_for(graph, special=0.0)
    assert same_bits(evaluate(held, arguments), evaluate(graph, arguments))


def test_whoever_reads_it_later_has_it_from_the_barrier() -> None:
    """Else the compiler would compute it there, of the logits."""
    graph = head(
        ("  %2: f32[8] = reshape %1 {shape=[8]}\n", ""),
        ("  %8: f32[8] = subtract", "  %2: f32[8] = reshape %1 {shape=[8]}\n  %8: f32[8] = subtract"),
    )
    held = with_waits(graph, reads_before(graph, CPU))
    (barrier,) = [eqn for eqn in held.equations if isinstance(eqn.op, OptimizationBarrier)]
    (reshape,) = [eqn for eqn in held.equations if eqn.op.name == "reshape"]
    assert reshape.operands == (barrier.results[1],)


def test_what_reads_half_of_it_does_not_wait() -> None:
    graph = head(
        ("f32[8,1] = slice", "f32[8,32] = slice"),
        ("limit=[8,4]", "limit=[8,35]"),
        ("reshape %1 {shape=[8]}", "reduce_sum %1 {dimensions=[1]}"),
    )
    assert reads_before(graph, CPU) == {}
