"""Copies to the host's memory are done before what reads the next value that is copied."""

from __future__ import annotations

import numpy as np
import pytest

from rematc.compiler.api.text import parse
from rematc.ir.core import Graph
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.structural import OptimizationBarrier, ToMemory
from rematc.lowering.module import stablehlo_text
from rematc.lowering.target import Target
from rematc.passes.offload_order import OffloadOrder
from tests.support.arrays import same_bits

LAYERS = """
graph @main(%x: f32[4,4], %w: f32[4,4]) -> (f32[4,4], f32<host>[4,4], f32<host>[4,4], f32<host>[4,4]) {
  %0: f32[4,4] = dot_general %x, %w {contract=[[1],[0]], batch=[[],[]]}
  %1: f32[4,4] = sine %0
  %2: f32[4,4] = dot_general %1, %w {contract=[[1],[0]], batch=[[],[]]}
  %3: f32[4,4] = sine %2
  %4: f32[4,4] = dot_general %3, %w {contract=[[1],[0]], batch=[[],[]]}
  %5: f32<host>[4,4] = to_memory %0 {on_host=true}
  %6: f32<host>[4,4] = to_memory %2 {on_host=true}
  %7: f32<host>[4,4] = to_memory %4 {on_host=true}
  return %4, %5, %6, %7
}
"""


def names(graph: Graph) -> list[str]:
    return [eqn.op.name for eqn in graph.equations]


def test_each_copy_stands_behind_what_it_copies_and_the_next_one_waits() -> None:
    graph = OffloadOrder().run(parse(LAYERS))
    layer = ["dot_general", "optimization_barrier", "to_memory"]
    assert names(graph) == ["dot_general", "to_memory", "sine", *layer, "sine", *layer]
    barriers = [eqn for eqn in graph.equations if isinstance(eqn.op, OptimizationBarrier)]
    copies = [eqn for eqn in graph.equations if isinstance(eqn.op, ToMemory)]
    assert barriers[0].operands[1] is copies[0].results[0]
    (next_sine,) = [eqn for eqn in graph.equations if eqn.op.name == "sine"][1:]
    assert next_sine.operands == barriers[0].results[:1], "what comes next waits for the copy before"
    arrays = [np.linspace(0, 1, 16, dtype=np.float32).reshape(4, 4)] * 2
    assert same_bits(evaluate(graph, arrays), evaluate(parse(LAYERS), arrays))


def test_nothing_is_moved_where_nothing_is_copied() -> None:
    graph = parse(LAYERS.replace("<host>", "").replace("to_memory", "negate").replace(" {on_host=true}", ""))
    assert OffloadOrder().run(graph) is graph


@pytest.mark.parametrize(("platform", "barriers"), [("cuda", 2), ("tpu", 0)])
def test_programs_are_printed_so_where_barriers_hold_what_is_on_the_host(platform: str, barriers: int) -> None:
    assert stablehlo_text(parse(LAYERS), Target.of(platform)).count("optimization_barrier") == barriers
