"""What one of several devices holds, computes and sends."""

from __future__ import annotations

import pytest

from rematc.compiler.api.text import parse
from rematc.ir.core import Graph
from rematc.passes.planning.device import H100
from rematc.passes.planning.problem import simulate
from rematc.passes.planning.shards import WHOLE, Axes, Machine, Sent, Shards
from rematc.passes.planning.translation import translate

BATCH: Axes = (("data",), ())
ROWS: Axes = (("model",), ())
COLUMNS: Axes = ((), ("model",))
SIZES = {"data": 8, "model": 4}
PRODUCT = """
graph @main(%x: f32[64,32], %w: f32[32,16]) -> (f32[64,16]) {
  %0: f32[64,16] = dot_general %x, %w {contract=[[1],[0]], batch=[[],[]]}
  return %0
}
"""
LOOP = """
graph @main(%x: f32[64,32], %ws: f32[6,32,32]) -> (f32[64,32], f32[6,64,32]) {
  %0: f32[64,32], %1: f32[6,64,32] = scan %x, %ws {
    body=graph @step(%c: f32[64,32], %w: f32[32,32]) -> (f32[64,32], f32[64,32]) {
      %0: f32[64,32] = dot_general %c, %w {contract=[[1],[0]], batch=[[],[]]}
      %1: f32[64,32] = tanh %0
      return %1, %1
    }, length=6, consts=0, carry=1
  }
  return %0, %1
}
"""


def spread(graph: Graph, *of_params: Axes, result: Axes | None = None) -> Shards:
    """Shards in which parameters are spread so, and the first equation's result where that is given."""
    axes = dict(zip(graph.params, of_params, strict=True))
    if result is not None:
        axes[graph.equations[0].results[0]] = result
    shards = Shards(SIZES, axes)
    shards.follow(graph)
    return shards


@pytest.mark.parametrize(
    ("of_x", "of_w", "of_result", "local", "flops", "sent"),
    [
        # Nothing is sent where rows are spread, or columns.
        (BATCH, ((), ()), BATCH, (8, 16), 2 * 8 * 32 * 16, Sent()),
        (((), ()), COLUMNS, COLUMNS, (64, 4), 2 * 64 * 32 * 4, Sent()),
        # Each device sums over its part: 64 x 16 numbers go around, three quarters of them twice.
        (COLUMNS, ROWS, ((), ()), (64, 16), 2 * 64 * 8 * 16, Sent(0, 2 * 64 * 16 * 4 * 3 // 4)),
        # The weights of a fully sharded model are gathered, seven eighths of them from elsewhere.
        (BATCH, (("data",), ()), BATCH, (8, 16), 2 * 8 * 32 * 16, Sent(32 * 16 * 4, 32 * 16 * 4 * 7 // 8)),
    ],
)
def test_products(of_x: Axes, of_w: Axes, of_result: Axes, local: tuple[int, ...], flops: int, sent: Sent) -> None:
    graph = parse(PRODUCT)
    shards = spread(graph, of_x, of_w, result=of_result)
    (eqn,) = graph.equations
    assert shards.type(eqn.results[0]).shape == local
    assert (shards.flops(eqn), shards.sent(eqn)) == (flops, sent)


def test_what_nobody_knows_is_spread_as_what_it_is_computed_from() -> None:
    graph = parse(LOOP)
    shards = spread(graph, BATCH, ((), (), ()))
    last, stack = graph.equations[0].results
    (body,) = graph.equations[0].op.regions()
    assert shards.axes(last) == BATCH
    assert shards.axes(stack) == ((), ("data",), ())
    assert [shards.type(value).shape for eqn in body.equations for value in eqn.results] == [(8, 32)] * 2


PLACED = r"""
graph @main(%x: f32[64,32]) -> (f32[64,32]) {
  %0: f32[64,32] = placement %x {what="reshard", mesh="<[\"data\"=8, \"model\"=4]>", dimensions=["{?}","{\"model\"}"]}
  %1: f32[8,32] = full_to_shard %0 {spec=[["data"],[]], axes_of_mesh=["data","model"], sizes=[8,4], manual=["data"]}
  %2: f32[8,32] = tanh %1
  %3: f32[64,32] = shard_to_full %2 {spec=[["data"],[]], axes_of_mesh=["data","model"], sizes=[8,4], manual=["data"]}
  return %3
}
"""


def test_what_says_where_it_lies_is_spread_so() -> None:
    """Along what it leaves open as its operand; nobody else may know the mesh."""
    graph = parse(PLACED)
    shards = Shards({"data": 8}, {graph.params[0]: (("data",), ())})
    shards.follow(graph)
    found = [shards.axes(eqn.results[0]) for eqn in graph.equations]
    assert found == [(("data",), ("model",)), ((), ("model",)), ((), ("model",)), (("data",), ("model",))]
    assert [shards.type(eqn.results[0]).shape for eqn in graph.equations] == [(8, 8)] * 4
    laid_out = parse(
        'graph @main(%x: f32[64,32]) -> (f32[64,32]) { %0: f32[64,32] = placement %x {what="layout"} return %0 }'
    )
    shards = spread(laid_out, BATCH)
    assert shards.axes(laid_out.results[0]) == BATCH, "it has no text that says more"


def test_an_axis_spreads_one_dimension_of_a_value() -> None:
    graph = parse(PRODUCT)
    shards = spread(graph, BATCH, ((), ("data",)))
    assert shards.axes(graph.results[0]) == BATCH, "the larger factor's"


def test_a_part_is_rounded_up() -> None:
    graph = parse(PRODUCT.replace("64", "65"))
    assert spread(graph, BATCH, ((), ())).type(graph.params[0]).shape == (9, 32)


def test_time_and_memory_are_those_of_one_device() -> None:
    """A batch on eight devices is an eighth of it on one; what a product sends takes time besides."""
    graph, eighth = parse(LOOP), parse(LOOP.replace("64", "8"))
    one = simulate(translate(eighth, Machine(H100)).problem)
    several = simulate(translate(graph, Machine(H100, spread(graph, BATCH, ((), (), ())))).problem)
    assert (one.peak, one.time) == (several.peak, several.time)
    gathered = simulate(translate(graph, Machine(H100, spread(graph, BATCH, ((), ("data",), ())))).problem)
    assert gathered.time > several.time
    assert gathered.peak == several.peak + 32 * 32 * 4


def test_on_one_device_everything_is_whole() -> None:
    graph = parse(PRODUCT)
    (eqn,) = graph.equations
    assert WHOLE.is_whole
    assert (WHOLE.type(graph.params[0]), WHOLE.flops(eqn), WHOLE.sent(eqn)) == (graph.params[0].type, eqn.flops, Sent())


BEHIND = """
graph @main(%x: f32[64,32], %w: f32[32,16]) -> (f32[64,16]) {
  %0: f32[64,32], %1: f32[32,16] = optimization_barrier %x, %w
  %2: f32[64,16] = dot_general %0, %1 {contract=[[1],[0]], batch=[[],[]]}
  return %2
}
"""


def test_what_is_behind_a_barrier_is_spread_as_before_it() -> None:
    graph = parse(BEHIND)
    shards = spread(graph, BATCH, ((), ("model",)))
    assert shards.axes(graph.results[0]) == (("data",), ("model",))
