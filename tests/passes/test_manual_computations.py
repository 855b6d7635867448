"""What devices compute by themselves: borders in graphs, and the regions that are made of them."""

from __future__ import annotations

import pytest

from rematc.ir.builder import Builder
from rematc.ir.core import Equation, Graph
from rematc.ir.errors import CompileError, TypeMismatchError
from rematc.ir.ops.arithmetic import Add
from rematc.ir.ops.devices import DeviceSum, DeviceVary
from rematc.ir.ops.mapped import FullToShard, Manual, ManualComputation, ShardToFull
from rematc.ir.ops.regions import Call
from rematc.ir.ops.scan.op import Scan
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.ir.parser import parse_graph
from rematc.ir.printer import print_graph
from rematc.ir.types import F32, TensorType
from rematc.ir.values import Value
from rematc.lowering.module import stablehlo_text
from rematc.passes.linearize import vjp
from rematc.passes.manual_computations import with_manual_computations
from rematc.passes.partial_eval import partial_eval
from rematc.passes.simplify import Simplify
from rematc.passes.transpose import transpose
from rematc.passes.vmap import vmap

CHECKED = Manual(("d", "t"), (2, 4), ("d", "t"), True, None)
UNCHECKED = Manual(("d", "t"), (2, 4), ("d", "t"), False, None)
ROWS = (("d",), ())
ALL = ((), ())
WHOLE, PART = TensorType(F32, (8, 16)), TensorType(F32, (4, 16))


def names(graph: Graph) -> list[str]:
    return [eqn.op.name for eqn in graph.equations]


def layer(b: Builder, x: Value, place: Manual = CHECKED) -> Value:
    """The sine of each device's rows, put together."""
    part = b.emit1(FullToShard.at(place, ROWS), x)
    return b.emit1(ShardToFull.at(place, ROWS), b.sine(part))


def test_types_are_those_of_a_part_and_of_the_whole() -> None:
    cut = FullToShard.at(CHECKED, (("d",), ("t",)))
    assert cut.infer([WHOLE]) == (TensorType(F32, (4, 4)),)
    assert ShardToFull.at(CHECKED, (("d", "t"), ())).infer([PART]) == (TensorType(F32, (32, 16)),)
    with pytest.raises(TypeMismatchError, match=r"cannot cut f32\[6,16\] into \[8, 1\] parts"):
        FullToShard.at(CHECKED, (("d", "t"), ())).infer([TensorType(F32, (6, 16))])
    with pytest.raises(TypeMismatchError, match="cuts 1 dimensions"):
        FullToShard.at(CHECKED, (("d",),)).infer([WHOLE])


def test_text_can_be_read_back() -> None:
    b = Builder("main")
    graph = with_manual_computations(b.build(layer(b, b.parameter(WHOLE))))
    assert print_graph(parse_graph(print_graph(graph))) == print_graph(graph)
    assert 'manual_axes={"d", "t"}' in stablehlo_text(graph)


def test_functions_one_after_another_are_one_region() -> None:
    b = Builder("main")
    x = b.parameter(WHOLE)
    graph = Simplify().run(b.build(layer(b, layer(b, x))))
    assert names(graph) == ["full_to_shard", "sine", "shard_to_full", "sine", "shard_to_full"]
    (eqn,) = with_manual_computations(graph).equations
    assert isinstance(eqn.op, ManualComputation)
    assert names(eqn.op.body)[:2] == ["sine", "sine"]


def test_a_region_ends_where_its_result_is_needed_whole() -> None:
    b = Builder("main")
    x = b.parameter(WHOLE)
    found = with_manual_computations(b.build(layer(b, b.reverse(layer(b, x), (0,)))))
    assert names(found) == ["manual_computation", "reverse", "manual_computation"]


def test_what_another_region_reads_crosses_in_parts() -> None:
    """A scalar as a row of one element for each device."""
    b = Builder("main")
    x = b.parameter(WHOLE)
    part = b.emit1(FullToShard.at(CHECKED, ROWS), x)
    total = b.reduce_sum(part, (0, 1))
    whole = b.emit1(ShardToFull.at(CHECKED, ROWS), b.sine(part))
    again = b.emit1(FullToShard.at(CHECKED, ROWS), b.reverse(whole, (0,)))
    scaled = b.multiply(b.multiply(again, part), b.broadcast_in_dim(total, PART.shape, ()))
    found = with_manual_computations(b.build(b.emit1(ShardToFull.at(CHECKED, ROWS), scaled)))
    first, _, second = found.equations
    assert isinstance(first.op, ManualComputation)
    assert sorted(str(value.type) for value in first.results) == ["f32[32,16]", "f32[8,16]", "f32[8]"]
    assert set(first.results) & set(second.operands) == set(first.results) - {whole}


def test_a_whole_value_that_each_device_gives_is_captured() -> None:
    """A loop's body that runs again gives what is made of an array that all devices have: nothing inside is cut."""
    b = Builder("main")
    x, captured = b.parameter(WHOLE), b.parameter(PART)
    first = layer(b, x)
    given = b.emit1(ShardToFull.at(CHECKED, ROWS), b.emit1(DeviceVary(("d",), (2,)), b.sine(captured)))
    found = with_manual_computations(b.build(first, given))
    made = set(found.params)
    for eqn in found.equations:
        assert made.issuperset(eqn.operands)
        made.update(eqn.results)
        if isinstance(eqn.op, ManualComputation):
            inside = {*eqn.op.body.params, *[value for one in eqn.op.body.equations for value in one.results]}
            assert inside.issuperset(eqn.op.body.results)
    assert made.issuperset(found.results)


def test_what_follows_from_constants_is_computed_on_each_side() -> None:
    b = Builder("main")
    x = b.parameter(WHOLE)
    two = b.full(PART, 2.0)
    part = b.multiply(b.emit1(FullToShard.at(CHECKED, ROWS), x), two)
    found = with_manual_computations(b.build(b.emit1(ShardToFull.at(CHECKED, ROWS), part), two))
    assert "manual_computation" in names(found)
    region = next(eqn for eqn in found.equations if isinstance(eqn.op, ManualComputation))
    assert names(region.op.body) == ["constant", "broadcast_in_dim", "multiply"]  # type: ignore[attr-defined]
    assert region.operands == (x,)


def test_a_barrier_over_both_sides_holds_parts() -> None:
    b = Builder("main")
    w, x = b.parameter(WHOLE), b.parameter(WHOLE)
    part = b.emit1(FullToShard.at(CHECKED, ROWS), x)
    held_w, held = b.emit(OptimizationBarrier(), w, part)
    product = b.multiply(b.emit1(FullToShard.at(CHECKED, ROWS), held_w), held)
    found = with_manual_computations(b.build(b.emit1(ShardToFull.at(CHECKED, ROWS), product)))
    (eqn,) = found.equations
    assert isinstance(eqn.op, ManualComputation)
    assert names(eqn.op.body) == ["optimization_barrier", "multiply"]
    (barrier, _) = eqn.op.body.equations
    assert barrier.operand_types == (PART, PART)


@pytest.mark.parametrize("is_scalar", [False, True])
def test_a_barrier_with_what_nothing_cuts_holds_whole_values(is_scalar: bool) -> None:
    """Each waits for the other: a product of whole values is no more computed before the parts are there."""
    b = Builder("main")
    w, x = b.parameter(WHOLE), b.parameter(WHOLE)
    part = b.emit1(FullToShard.at(CHECKED, ROWS), x)
    part = b.reduce_sum(part, (0, 1)) if is_scalar else part
    held_w, held = b.emit(OptimizationBarrier(), w, part)
    both = b.multiply(
        b.emit1(FullToShard.at(CHECKED, ROWS), b.sine(held_w)),
        b.broadcast_in_dim(held, (4, 16), ()) if is_scalar else held,
    )
    found = with_manual_computations(b.build(b.emit1(ShardToFull.at(CHECKED, ROWS), both)))
    (barrier,) = [eqn for eqn in found.equations if isinstance(eqn.op, OptimizationBarrier)]
    first, second = [eqn for eqn in found.equations if isinstance(eqn.op, ManualComputation)]
    assert barrier.operands == (w, *first.results)
    (sine,) = [eqn for eqn in found.equations if eqn.op.name == "sine"]
    assert sine.operands == barrier.results[:1]
    assert set(second.operands) == {*sine.results, *barrier.results[1:]}
    assert "optimization_barrier" not in names(second.op.body)  # type: ignore[attr-defined]


def test_a_function_gets_its_borders_outside() -> None:
    inside = Builder("stage")
    w, y = inside.parameter(WHOLE), inside.parameter(PART)
    cut = inside.emit1(FullToShard.at(CHECKED, ROWS), w)
    stage = inside.build(inside.sine(inside.multiply(cut, y)))
    b = Builder("main")
    w, x = b.parameter(WHOLE), b.parameter(WHOLE)
    part = b.emit1(FullToShard.at(CHECKED, ROWS), x)
    (out,) = b.emit(Call(stage, (True, True)), w, part)
    found = with_manual_computations(b.build(b.emit1(ShardToFull.at(CHECKED, ROWS), out)))
    (eqn,) = found.equations
    assert isinstance(eqn.op, ManualComputation)
    (call,) = eqn.op.body.equations
    assert isinstance(call.op, Call)
    assert call.operand_types == (PART, PART)


def test_a_loop_that_takes_a_part_beside_whole_values_is_refused() -> None:
    inside = Builder("body")
    carry, whole = inside.parameter(PART), inside.parameter(WHOLE)
    body = inside.build(inside.add(carry, inside.emit1(FullToShard.at(CHECKED, ROWS), whole)))
    b = Builder("main")
    x, xs = b.parameter(WHOLE), b.parameter(TensorType(F32, (3, 8, 16)))
    part = b.emit1(FullToShard.at(CHECKED, ROWS), x)
    (out,) = b.emit(Scan(body, 3, 0, 1), part, xs)
    with pytest.raises(CompileError, match="'scan' takes what is of one device beside what is whole"):
        with_manual_computations(b.build(b.emit1(ShardToFull.at(CHECKED, ROWS), out)))


def test_two_meshes_are_refused() -> None:
    other = Manual(("d",), (8,), ("d",), True, None)
    b = Builder("main")
    graph = b.build(layer(b, layer(b, b.parameter(WHOLE)), other))
    with pytest.raises(CompileError, match="over two meshes"):
        with_manual_computations(graph)


def test_residuals_cross_as_parts_of_whole_arrays() -> None:
    """Graphs take and give whole values: so do steps of loops, whose residuals are stacked."""
    b = Builder("main")
    x, t = b.parameter(WHOLE), b.parameter(WHOLE)
    part = b.emit1(FullToShard.at(CHECKED, ROWS), x)
    scale = b.reduce_sum(part, (0, 1))
    moved = b.multiply(b.emit1(FullToShard.at(CHECKED, ROWS), t), b.broadcast_in_dim(scale, PART.shape, ()))
    found = partial_eval(b.build(b.emit1(ShardToFull.at(CHECKED, ROWS), moved)), [False, True], None)
    (residual,) = found.known.results
    assert residual.type == TensorType(F32, (8,))
    assert names(found.staged)[:2] == ["full_to_shard", "reshape"]
    with_manual_computations(found.known)
    with_manual_computations(found.staged)


@pytest.mark.parametrize("place", [CHECKED, UNCHECKED])
def test_adjoints(place: Manual) -> None:
    """With checks nothing is added up that was not summed; without, the sum over devices that have the same."""
    b = Builder("main")
    graph = b.build(b.emit1(FullToShard.at(place, ALL), b.parameter(WHOLE)))
    assert names(transpose(graph, [True]).graph) == [*["device_sum"] * (not place.is_checked), "shard_to_full"]
    b = Builder("main")
    graph = b.build(b.emit1(ShardToFull.at(place, ALL), b.parameter(WHOLE)))
    assert ("divide" in names(transpose(graph, [True]).graph)) != place.is_checked


def test_the_gradient_of_what_each_device_reads_whole_is_a_sum() -> None:
    b = Builder("main")
    w, x = b.parameter(TensorType(F32, (16,))), b.parameter(WHOLE)
    own = b.emit1(DeviceVary(("d",), (2,)), b.emit1(FullToShard.at(CHECKED, ((),)), w))
    part = b.emit1(FullToShard.at(CHECKED, ROWS), x)
    total = b.reduce_sum(b.emit1(Add(), part, b.broadcast_in_dim(own, PART.shape, (1,))), (0, 1))
    loss = b.emit1(ShardToFull.at(CHECKED, ()), b.emit1(DeviceSum(("d",), (2,)), total))
    pullback = vjp(b.build(loss), (True, False), (True,))
    assert "device_sum" in names(pullback.backward)


def test_a_batch_stands_in_front() -> None:
    b = Builder("main")
    graph = vmap(b.build(layer(b, b.parameter(WHOLE))), [True], 3).graph
    cut = next(eqn.op for eqn in graph.equations if isinstance(eqn.op, FullToShard))
    assert cut.spec == ((), *ROWS)


def test_equations_keep_their_places() -> None:
    """What needs nothing of a region goes before it, and the region's own equations stay in order."""
    b = Builder("main")
    x, y = b.parameter(WHOLE), b.parameter(WHOLE)
    part = b.sine(b.emit1(FullToShard.at(CHECKED, ROWS), x))
    other = b.cosine(y)
    second = b.multiply(part, b.emit1(FullToShard.at(CHECKED, ROWS), other))
    found = with_manual_computations(b.build(b.emit1(ShardToFull.at(CHECKED, ROWS), second)))
    assert names(found) == ["cosine", "manual_computation"]
    assert isinstance(found.equations[1], Equation)
