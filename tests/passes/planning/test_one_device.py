"""What one of several devices runs: parts of values, what is gathered for products, and sums over devices."""

from __future__ import annotations

import pytest

from rematc.compiler.api.text import parse
from rematc.ir.core import Equation, Graph
from rematc.ir.ops.scan.op import Scan
from rematc.ir.values import Value
from rematc.passes.planning.one_device import on_one_device
from rematc.passes.planning.shards import WHOLE, Axes, Shards

SIZES = {"data": 8, "model": 4}
WHOLE_MATRIX: Axes = ((), ())
BATCH: Axes = (("data",), ())
ROWS: Axes = (("model",), ())
COLUMNS: Axes = ((), ("model",))
PRODUCT = """
graph @main(%x: f32[64,32], %w: f32[32,16]) -> (f32[64,16]) {
  %0: f32[64,16] = dot_general %x, %w {contract=[[1],[0]], batch=[[],[]]}
  return %0
}
"""
TWICE = """
graph @main(%x: f32[64,32], %w: f32[32,32]) -> (f32[64,32]) {
  %0: f32[64,32] = dot_general %x, %w {contract=[[1],[0]], batch=[[],[]]}
  %1: f32[64,32] = dot_general %0, %w {contract=[[1],[0]], batch=[[],[]]}
  return %1
}
"""
LOOP = """
graph @main(%x: f32[64,32], %ws: f32[6,32,32]) -> (f32[64,32]) {
  %0: f32[64,32] = scan %x, %ws {
    body=graph @step(%c: f32[64,32], %w: f32[32,32]) -> (f32[64,32]) {
      %0: f32[64,32] = dot_general %c, %w {contract=[[1],[0]], batch=[[],[]]}
      %1: f32[32] = reduce_sum %0 {dimensions=[0]}
      %2: f32[64,32] = broadcast_in_dim %1 {shape=[64,32], dimensions=[1]}
      %3: f32[64,32] = add %0, %2
      return %3
    }, length=6, consts=0, carry=1
  }
  return %0
}
"""
PLACED = r"""
graph @main(%x: f32[64,32]) -> (f32[64,32]) {
  %0: f32[64,32] = placement %x {what="reshard", mesh="<[\"data\"=8, \"model\"=4]>", dimensions=["{}","{\"model\"}"]}
  return %0
}
"""


def runs(graph: Graph) -> list[tuple[str, tuple[int, ...]]]:
    """The ops that a device runs, with the shapes that they give; those of regions, too."""
    found = []
    for eqn in graph.equations:
        for region in eqn.op.regions():
            found += runs(region)
        found.append((eqn.op.name, eqn.results[0].type.shape))
    return found


def on_one(text: str, *of_params: Axes, result: Axes | None = None) -> list[tuple[str, tuple[int, ...]]]:
    """The same of a program whose parameters are spread so, and the result of its first equation."""
    graph = parse(text)
    axes = dict(zip(graph.params, of_params, strict=True))
    if result is not None:
        axes[graph.equations[0].results[0]] = result
    return runs(on_one_device(graph, Shards(SIZES, axes))[0])


@pytest.mark.parametrize(
    ("of_x", "of_w", "of_result", "expected"),
    [
        (BATCH, WHOLE_MATRIX, BATCH, [("dot_general", (8, 16))]),
        (WHOLE_MATRIX, COLUMNS, COLUMNS, [("dot_general", (64, 4))]),
        # Terms of the sum are on four devices; each gets all of it, or its part of the rows.
        (COLUMNS, ROWS, WHOLE_MATRIX, [("dot_general", (64, 16)), ("device_sum", (64, 16))]),
        (COLUMNS, ROWS, ROWS, [("dot_general", (64, 16)), ("device_sum", (64, 16)), ("slice", (16, 16))]),
        # The weights of a fully sharded model.
        (BATCH, (("data",), ()), BATCH, [("device_gather", (32, 16)), ("dot_general", (8, 16))]),
    ],
)
def test_products(of_x: Axes, of_w: Axes, of_result: Axes, expected: list[tuple[str, tuple[int, ...]]]) -> None:
    assert on_one(PRODUCT, of_x, of_w, result=of_result) == expected


@pytest.mark.parametrize(("op", "over_devices"), [("reduce_max", "device_extremum"), ("reduce_sum", "device_sum")])
def test_what_is_reduced_is_not_gathered(op: str, over_devices: str) -> None:
    """The logits of a vocabulary that is spread over devices."""
    text = f"graph @f(%x: f32[64,32]) -> (f32[64]) {{ %0: f32[64] = {op} %x {{dimensions=[1]}} return %0 }}"
    of_x = (("data",), ("model",))
    assert on_one(text, of_x, result=(("data",),)) == [(op, (8,)), (over_devices, (8,))]


def test_what_several_products_read_is_gathered_once() -> None:
    found = on_one(TWICE, BATCH, (("data",), ()))
    assert found == [("device_gather", (32, 32)), ("dot_general", (8, 32)), ("dot_general", (8, 32))]


def test_loops_sum_and_repeat_in_their_bodies() -> None:
    found = on_one(LOOP, BATCH, ((), (), ()))
    inside = [("dot_general", (8, 32)), ("reduce_sum", (32,)), ("device_sum", (32,))]
    assert found[:3] == inside
    # What is repeated is whole on each device, and the sum with it takes its part.
    assert found[-2:] == [("add", (8, 32)), ("scan", (8, 32))]


def test_regions_of_the_same_values_gather_them_each_for_itself() -> None:
    """As the loops of the forward and the backward pass do, whose steps share what they compute."""
    graph = parse(TWICE)
    x, w = graph.params
    steps = [Graph(name, (w, x), graph.equations, graph.results) for name in ("forward", "backward")]
    between, last = Value(x.type), Value(x.type)
    first = Equation(Scan(steps[0], length=3, consts=1, carry=1), (w, x), (between,))
    second = Equation(Scan(steps[1], length=3, consts=1, carry=1), (w, between), (last,))
    loops = Graph("main", (w, x), (first, second), (last,))
    local, _ = on_one_device(loops, Shards(SIZES, {w: (("data",), ()), x: BATCH}))
    for eqn in local.equations:
        (step,) = eqn.op.regions()
        assert [one.op.name for one in step.equations] == ["device_gather", "dot_general", "dot_general"]


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (WHOLE_MATRIX, [("placement", (64, 8))]),
        (COLUMNS, []),  # it lies there
        (BATCH, [("device_gather", (64, 32)), ("placement", (64, 8))]),
    ],
)
def test_a_placement_gathers_what_lies_elsewhere(before: Axes, expected: list[tuple[str, tuple[int, ...]]]) -> None:
    assert on_one(PLACED, before) == expected


def test_parts_know_what_they_are_parts_of() -> None:
    graph = parse(PRODUCT)
    (result,) = graph.results
    local, values = on_one_device(graph, Shards(SIZES, {graph.params[0]: BATCH, result: BATCH}))
    assert values[local.results[0]] is result
    assert local.params[0].type.shape == (8, 32)
    # What is whole is the value itself.
    assert local.params[1] is graph.params[1]


def test_on_one_device_a_program_is_itself() -> None:
    graph = parse(PRODUCT)
    assert on_one_device(graph, WHOLE) == (graph, {})
