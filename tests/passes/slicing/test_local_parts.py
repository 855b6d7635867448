"""What each device computes of its parts: together the same as all of it, and whole again the same program."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rematc
from rematc.compiler.api.text import parse
from rematc.ir.builder import Builder
from rematc.ir.core import Equation, Graph
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.gather_scatter import GatherDimensions
from rematc.ir.ops.indexing import Gather
from rematc.ir.ops.mapped import FullToShard, Manual, ShardToFull
from rematc.ir.ops.placement import Placement
from rematc.ir.types import F32, TensorType
from rematc.ir.values import Value
from rematc.ir.verifier import verify
from rematc.passes.dce import DeadCode
from rematc.passes.manager import PassManager, parse_pipeline
from rematc.passes.planning.shards import Axes, Shards
from rematc.passes.slicing.local_parts import LocalParts
from rematc.passes.slicing.stages import Stages
from rematc.passes.slicing.whole_again import whole_again
from tests.support.arrays import arguments_for, assert_near
from tests.support.lockstep import Mesh
from tests.support.random_graphs import graphs
from tests.support.samples import assert_close, families, graph_of, rows, tolerance_of, type_of

SIZES = {"d": 2, "t": 3}
WHERE = Manual(tuple(SIZES), tuple(SIZES.values()), tuple(SIZES), False, None)
MESH = Mesh(WHERE)
MESH_TEXT = '<["d"=2, "t"=3]>'
ROWS = rows()
STRUCT: Any = jax.ShapeDtypeStruct


def parts_of(graph: Graph, spread: dict[Value, Axes]) -> LocalParts:
    """Those of a graph of which so much is known; the rest is spread as what it is computed from."""
    shards = Shards(SIZES, spread)
    shards.follow(graph)
    return LocalParts(graph, shards, WHERE)


def borders(graph: Graph) -> Counter[str]:
    return Counter(eqn.op.name for eqn in graph.equations if isinstance(eqn.op, FullToShard | ShardToFull))


def at(value: Value, d: int | None, *axes: str) -> Axes:
    return tuple([axes if place == d else () for place in range(value.type.rank)])


# -- laws --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ROWS)
def test_parts_of_an_op_are_the_whole(key: str) -> None:
    """However its operands and results are spread over two devices: as one of its slicings says, or as any other."""
    family, index = ROWS[key]
    sample = families()[family][index]
    graph = graph_of(sample.op, sample.types)
    (eqn,) = graph.equations
    for slicing in sample.op.slicings(eqn.operand_types, eqn.result_types):
        named = [*zip(graph.params, slicing.operands, strict=True), *zip(eqn.results, slicing.results, strict=True)]
        parts = parts_of(graph, {value: at(value, d, "d") for value, d in named})
        verify(parts.graph)
        arrays = sample.arrays()
        found = MESH.evaluate(parts.graph, arrays)
        for one, expected in zip(found, evaluate(graph, arrays), strict=True):
            # Terms of a sum are sent as narrow as it is.
            is_rough = slicing.is_sum and type_of(one).dtype.is_float and one.dtype.itemsize < 4
            tolerance = tolerance_of(sample, np.asarray(expected))
            tolerance = replace(tolerance, relative=4 * tolerance.relative) if is_rough else tolerance
            assert_close(one, np.asarray(expected), tolerance)
        is_even = all(d is None or value.type.shape[d] % 2 == 0 for value, d in named)
        is_sent = not (slicing.is_sum and eqn.result_types[0].dtype.name == "bool")
        if is_even and is_sent and not slicing.into and len({value for value, _ in named}) == len(named):
            assert eqn not in parts.graph.equations, f"{slicing} was not taken"


def assert_same_equations(graph: Graph, expected: Graph) -> None:
    """The same equations of the same values, in whatever order, and so in regions."""
    verify(graph)
    assert graph.results == expected.results
    found = {eqn.results: eqn for eqn in graph.equations}
    assert found.keys() == {eqn.results for eqn in expected.equations}
    for eqn in expected.equations:
        own = found[eqn.results]
        assert (own.op.name, own.operands) == (eqn.op.name, eqn.operands)
        assert own.op.regions() or own.op == eqn.op
        for region, other in zip(own.op.regions(), eqn.op.regions(), strict=True):
            assert_same_equations(DeadCode().run(region), DeadCode().run(other))


@st.composite
def spread_graphs(draw: st.DrawFn) -> tuple[Graph, dict[Value, Axes]]:
    """Random programs, with parameters and some of their values spread at random, and some of them so constrained."""
    graph = PassManager(parse_pipeline("inline,simplify,cse,dce")).run(draw(graphs())).graph
    spread: dict[Value, Axes] = {}
    equations: list[Equation] = []
    env: dict[Value, Value] = {}
    for eqn in (None, *graph.equations):
        if eqn is not None:
            equations.append(replace(eqn, operands=tuple([env.get(value, value) for value in eqn.operands])))
        for value in graph.params if eqn is None else eqn.results:
            if not (draw(st.integers(0, 2)) and value.type.rank):
                continue
            order = draw(st.permutations(list(SIZES)))
            places = {axis: draw(st.integers(0, value.type.rank)) for axis in order}
            spread[value] = tuple(
                [tuple([axis for axis in order if places[axis] == d]) for d in range(value.type.rank)]
            )
            if draw(st.integers(0, 3)) == 0:
                env[value] = Value(value.type)
                spread[env[value]] = spread[value]
                texts = tuple(["{" + ", ".join([f'"{axis}"' for axis in row]) + "}" for row in spread[value]])
                equations.append(Equation(Placement("sharding_constraint", MESH_TEXT, texts), (value,), (env[value],)))
    results = tuple([env.get(value, value) for value in graph.results])
    return Graph(graph.name, graph.params, tuple(equations), results), spread


@settings(max_examples=150)
@given(spread_graphs())
def test_parts_of_a_program_are_the_whole(given: tuple[Graph, dict[Value, Axes]]) -> None:
    graph, spread = given
    parts = parts_of(graph, spread)
    verify(parts.graph)
    arrays = arguments_for(graph, special=0)
    with np.errstate(all="ignore"):
        assert_near(MESH.evaluate(parts.graph, arrays), evaluate(graph, arrays), 1e-4)


@settings(max_examples=100)
@given(spread_graphs())
def test_whole_again_a_program_is_what_it_was(given: tuple[Graph, dict[Value, Axes]]) -> None:
    graph, spread = given
    parts = parts_of(graph, spread)
    assert_same_equations(whole_again(parts.graph, parts), DeadCode().run(graph))


@settings(max_examples=150)
@given(spread_graphs(), st.integers(0, 2**32 - 1))
def test_what_is_not_known_any_more_stays_in_parts(given: tuple[Graph, dict[Value, Axes]], seed: int) -> None:
    """Whatever has become of the equations of parts, as where they were merged, the program means the same."""
    graph, spread = given
    parts = parts_of(graph, spread)
    random = np.random.default_rng(seed)
    parts.standing = {eqn: group for eqn, group in parts.standing.items() if random.integers(0, 2)}
    after = whole_again(parts.graph, parts)
    verify(after)
    arrays = arguments_for(graph, special=0)
    with np.errstate(all="ignore"):
        assert_near(MESH.evaluate(after, arrays), evaluate(graph, arrays), 1e-4)


@pytest.mark.parametrize("is_constrained", [False, True])
def test_constants_of_one_equation_are_no_part_of_another(is_constrained: bool) -> None:
    """A counter and a choice of it multiply the number of a device by one; each is whole again without the other."""
    b = Builder("main")
    x = b.iota(TensorType(F32, (3,)), 0)
    y = b.emit1(Placement("sharding_constraint", MESH_TEXT, ('{"t"}',)), x) if is_constrained else x
    chosen = Gather(GatherDimensions((), (0,), (0,), 1), (1,))
    graph = b.build(b.emit1(chosen, y, b.constant(np.zeros((1, 1), np.int32))))
    parts = parts_of(graph, {x: at(x, 0, "t"), y: at(y, 0, "t")})
    assert_same_equations(whole_again(parts.graph, parts), graph)


# -- single rules ------------------------------------------------------------------------------------------------------


def head() -> Graph:
    def function(x: Any, w: Any, labels: Any) -> Any:
        y = x @ w
        shifted = y - jnp.max(y, -1, keepdims=True)
        chosen = jnp.take_along_axis(y, labels, -1)
        return shifted.sum(-1), chosen, x.T @ shifted

    shapes = STRUCT((8, 4), "float32"), STRUCT((4, 12), "float32"), STRUCT((8, 1), "int32")
    graph = rematc.trace(rematc.from_jax(function), *shapes)
    return PassManager(parse_pipeline("inline,simplify,cse,dce")).run(graph).graph


def test_rows_and_columns_of_a_head() -> None:
    """Rows are along one axis, columns along the other: maxima and sums over columns are sent, gradients over rows."""
    graph = head()
    x, w, labels = graph.params
    logits = next(eqn for eqn in graph.equations if eqn.op.name == "dot_general").results[0]
    parts = parts_of(graph, {x: at(x, 0, "d"), w: at(w, 1, "t"), logits: (("d",), ("t",)), labels: at(labels, 0, "d")})
    names = Counter(eqn.op.name for eqn in parts.graph.equations)
    assert (names["device_extremum"], names["device_sum"]) == (1, 3)  # over columns two sums, over rows the gradient
    assert borders(parts.graph) == {"full_to_shard": 3, "shard_to_full": 3}
    assert not [value for value in parts.spread if value.type.shape == (8, 12)]
    random = np.random.default_rng(0)
    arrays = [random.normal(size=(8, 4)).astype(np.float32), random.normal(size=(4, 12)).astype(np.float32)]
    arrays.append(random.integers(-2, 14, (8, 1)).astype(np.int32))
    assert_near(MESH.evaluate(parts.graph, arrays), evaluate(graph, arrays), 1e-5)


def test_what_two_have_in_common_stays_where_one_is_whole_again() -> None:
    """Zeros of one choice are those of the other, too."""

    def function(x: Any, one: Any, other: Any) -> Any:
        return [jnp.take_along_axis(x, labels, -1, mode="clip") for labels in (one, other)]

    shapes = STRUCT((8, 12), "float32"), STRUCT((8, 1), "int32"), STRUCT((8, 1), "int32")
    graph = rematc.trace(rematc.from_jax(function), *shapes)
    graph = PassManager(parse_pipeline("inline,simplify,cse,dce")).run(graph).graph
    (x, *_) = graph.params
    for kept in (0, 1):
        parts = parts_of(graph, {x: at(x, 1, "t")})
        choices = [eqn for eqn in parts.standing if eqn.op.name == "gather"]
        parts.standing.pop(choices[kept])
        after = whole_again(parts.graph, parts)
        verify(after)
        arrays = arguments_for(graph, special=0)
        assert_near(MESH.evaluate(after, arrays), evaluate(graph, arrays), 1e-6)


def test_a_sum_that_is_spread_is_cut_as_it_is_sent() -> None:
    graph = parse("""
graph @main(%x: f32[8,4], %y: f32[8,6]) -> (f32[4,6]) {
  %0: f32[4,6] = dot_general %x, %y {contract=[[0],[0]], batch=[[],[]]}
  return %0
}
""")
    x, y = graph.params
    parts = parts_of(graph, {x: at(x, 0, "d"), y: at(y, 0, "d"), graph.results[0]: at(graph.results[0], 1, "d")})
    assert [eqn.op.name for eqn in parts.graph.equations if "device" in eqn.op.name] == ["device_scatter"]
    arrays = arguments_for(graph, special=0)
    assert_near(MESH.evaluate(parts.graph, arrays), evaluate(graph, arrays), 1e-5)


@pytest.mark.parametrize("row", [("d", "t"), ("t", "d")])
def test_parts_of_a_sum_lie_in_the_order_of_the_axes(row: tuple[str, str]) -> None:
    """Rows are each device's along one axis, and sent along the other, which is the minor one then."""
    graph = parse("""
graph @main(%x: f32[4,6], %y: f32[4,5]) -> (f32[6,5]) {
  %0: f32[6,5] = dot_general %x, %y {contract=[[0],[0]], batch=[[],[]]}
  return %0
}
""")
    x, y = graph.params
    parts = parts_of(graph, {x: (("d",), ("t",)), y: at(y, 0, "d"), graph.results[0]: at(graph.results[0], 0, *row)})
    assert ("device_scatter" in {eqn.op.name for eqn in parts.graph.equations}) == (row == ("t", "d"))
    arrays = arguments_for(graph, special=0)
    assert_near(MESH.evaluate(parts.graph, arrays), evaluate(graph, arrays), 1e-5)


def test_what_is_made_of_less_is_made_on_each_device() -> None:
    """A mask that counts along both spread dimensions is no array that somebody cuts."""
    graph = parse("""
graph @main(%x: f32[8,6]) -> (f32[8,6]) {
  %0: i32[8,6] = iota {type=i32[8,6], dimension=0}
  %1: i32[8,6] = iota {type=i32[8,6], dimension=1}
  %2: bool[8,6] = compare %0, %1 {direction="GE"}
  %3: f32[] = constant {type=f32[], data=0.0}
  %4: f32[8,6] = broadcast_in_dim %3 {shape=[8,6], dimensions=[]}
  %5: f32[8,6] = select %2, %x, %4
  return %5
}
""")
    (x,) = graph.params
    parts = parts_of(graph, {x: (("d",), ("t",))})
    assert borders(parts.graph) == {"full_to_shard": 1, "shard_to_full": 1}
    arrays = arguments_for(graph, special=0)
    assert_near(MESH.evaluate(parts.graph, arrays), evaluate(graph, arrays), 0)


def test_functions_of_the_host_are_called_once_with_what_is_whole() -> None:
    def function(x: Any) -> Any:
        total = jnp.sum(jnp.exp(x))
        return x * jax.pure_callback(lambda y: y, STRUCT((), "float32"), total)

    graph = rematc.trace(rematc.from_jax(function), STRUCT((8, 4), "float32"))
    graph = PassManager(parse_pipeline("inline,simplify,cse,dce")).run(graph).graph
    (x,) = graph.params
    parts = parts_of(graph, {x: at(x, 0, "d")})
    (call,) = [eqn for eqn in parts.graph.equations if eqn.op.name == "pure_callback"]
    assert call in graph.equations
    assert "device_sum" in {eqn.op.name for eqn in parts.graph.equations}


def test_parts_stand_beside_those_of_the_program_itself() -> None:
    """As in `shard_map`: what it gives is read as it is cut, and what is beside it is made of less on each device."""
    mesh = 'axes_of_mesh=["d","t"], sizes=[2,3], manual=["d","t"], is_checked=false'
    graph = parse(f"""
graph @main(%x: f32[8,4], %w: f32[6]) -> (f32[8,4]) {{
  %0: f32[4,4] = full_to_shard %x {{spec=[["d"],[]], {mesh}}}
  %1: f32[4,4] = tanh %0
  %2: f32[8,4] = shard_to_full %1 {{spec=[["d"],[]], {mesh}}}
  %3: f32[] = reduce_max %w {{dimensions=[0]}}
  %4: f32[8,4] = broadcast_in_dim %3 {{shape=[8,4], dimensions=[]}}
  %5: f32[8,4] = multiply %2, %4
  return %5
}}
""")
    x = graph.params[0]
    parts = parts_of(graph, {x: at(x, 0, "d")})
    assert borders(parts.graph)["shard_to_full"] == 1
    cut = [eqn.operands[0].type.shape for eqn in parts.graph.equations if isinstance(eqn.op, FullToShard)]
    assert cut == [(8, 4), ()]
    arrays = arguments_for(graph, special=0)
    assert_near(MESH.evaluate(parts.graph, arrays), MESH.evaluate(graph, arrays), 1e-6)


def test_whole_values_beside_parts_are_not_cut() -> None:
    """XLA spreads them as it likes: a slice might lie on some of the devices. Constants are whole on each."""
    graph = parse("""
graph @main(%x: f32[8,4], %w: f32[8,4]) -> (f32[8,4], f32[8,4], f32[8,4]) {
  %0: f32[] = constant {type=f32[], data=2.0}
  %1: f32[8,4] = broadcast_in_dim %0 {shape=[8,4], dimensions=[]}
  %2: f32[8,4] = multiply %x, %1
  %3: f32[8,4] = tanh %w
  %4: f32[8,4] = reverse %2 {dimensions=[0]}
  %5: f32[8,4] = exponential %4
  return %2, %3, %5
}
""")
    (x, _) = graph.params
    stages = Stages(parts_of(graph, {x: at(x, 0, "d")}).graph)
    ways = {(eqn.op.name, eqn.results[0].type.shape): bool(stages.ways(eqn)) for eqn in stages.graph.equations}
    assert ways["multiply", (4, 4)]
    assert ways["broadcast_in_dim", (4, 4)]
    assert not ways["tanh", (8, 4)]
    assert not ways["exponential", (8, 4)], "it is made of what all devices put together"


def test_sizes_that_devices_do_not_divide_stay_whole() -> None:
    graph = parse("""
graph @main(%x: f32[5,4]) -> (f32[5,4]) {
  %0: f32[5,4] = exponential %x
  return %0
}
""")
    (x,) = graph.params
    assert not borders(parts_of(graph, {x: at(x, 0, "d")}).graph)
