"""On a mesh with axes of type Explicit all types say where values lie; placed are those that do not follow from others.

A mesh of one device has such types, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import AxisType, NamedSharding

import rematc
from rematc.ir.core import Graph
from rematc.ir.ops.placement import Placement
from rematc.ir.traversal import all_equations

# JAX leaves these without annotations.
P: Any = jax.sharding.PartitionSpec
RESHARD: Any = jax.reshard
STRUCT: Any = jax.ShapeDtypeStruct
ROWS, COLUMNS = ('{"d"}', "{}"), ("{}", '{"d"}')


def mesh() -> Any:
    return jax.make_mesh((1,), ("d",), axis_types=(AxisType.Explicit,))


def imported(function: Callable[..., Any], *specs: Any, shape: tuple[int, ...] = (8, 8)) -> Graph:
    with jax.set_mesh(mesh()):
        given = [STRUCT(shape, jnp.float32, sharding=NamedSharding(mesh(), spec)) for spec in specs]
        return rematc.trace(rematc.from_jax(function), *given)


def placed(graph: Graph) -> list[tuple[str, tuple[str, ...]]]:
    """What said it and how, of each placement but those of parameters."""
    given = set(graph.params)
    ops = [eqn.op for eqn in all_equations(graph) if given.isdisjoint(eqn.operands)]
    return [(op.what, op.dimensions) for op in ops if isinstance(op, Placement)]


def test_inputs_are_placed_and_so_are_their_gradients() -> None:
    def function(x: Any) -> Any:
        return jnp.sum(jnp.sin(x))

    graph, own = imported(jax.grad(function), P("d")), imported(function, P("d"))
    assert [eqn.op.dimensions for eqn in own.equations if isinstance(eqn.op, Placement)] == [ROWS]
    step = rematc.grad(rematc.from_jax(function))
    with jax.set_mesh(mesh()):
        struct = STRUCT((8, 8), jnp.float32, sharding=NamedSharding(mesh(), P("d")))
        ours = rematc.trace(step, struct)
    for one in (graph, ours):
        assert isinstance(one.equations[-1].op, Placement)
        assert one.equations[-1].op.dimensions == ROWS


def test_what_follows_is_not_placed_beside_axes_that_types_never_name() -> None:
    own = jax.make_mesh((1, 1), ("d", "t"), axis_types=(AxisType.Explicit, AxisType.Auto))
    with jax.set_mesh(own):
        struct = STRUCT((8, 8), jnp.float32, sharding=NamedSharding(own, P("d")))

        def function(x: Any) -> Any:
            return jnp.sum(jax.nn.softmax(jnp.tanh(x)))

        graph = rematc.trace(rematc.from_jax(function), struct)
    assert placed(graph) == []


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jnp.sum(jax.nn.softmax(x) * 2),
        lambda x: jnp.sum(jnp.tanh(jnp.tanh(x)) @ jnp.ones((8, 4))),
        lambda x: jnp.sum(x.reshape(8, 2, 4) ** 2),
        lambda x: jnp.sum(jnp.where(x > 0, x, -1)),
        lambda x: jnp.sum(jax.nn.relu(x - x.mean(-1, keepdims=True))),
        lambda x: jnp.sum(jnp.sin(x[:, 2:6]) ** 2),
        lambda x: jnp.sum(jnp.sin(jnp.pad(jnp.sin(x), ((0, 0), (1, 2)))) ** 2),
        lambda x: jnp.sum(jnp.sin(jnp.concatenate([jnp.sin(x), x], axis=1)) ** 2),
        lambda x: jnp.sum(jnp.sin(jnp.flip(jnp.sin(x), 1)) * x),
    ],
    ids=["softmax", "product", "reshape", "where", "relu", "slice", "pad", "concatenate", "reverse"],
)
def test_what_follows_from_operands_is_not_placed(function: Callable[..., Any]) -> None:
    """A scalar has no dimensions to be spread."""
    assert placed(imported(function, P("d"))) == []


@pytest.mark.parametrize(
    "function",
    [
        lambda x: lax.slice(jnp.sin(x), (0, 0), (4, 8)),
        lambda x: lax.pad(jnp.sin(x), 0.0, ((4, 4, 0), (0, 0, 0))),
        lambda x: lax.pad(jnp.sin(x), 0.0, ((2, -2, 0), (0, 0, 0))),
        lambda x: jnp.concatenate([jnp.sin(x), x]),
        lambda x: lax.rev(jnp.sin(x), (0,)),
    ],
    ids=["slice", "pad", "shift", "concatenate", "reverse"],
)
def test_what_changes_along_a_spread_dimension_is_placed(function: Callable[..., Any]) -> None:
    """Elements go from device to device: where the result lies does not follow from where they did."""
    assert placed(imported(lambda x: jnp.sum(jnp.sin(function(x))), P("d"))) == [("the type's sharding", ROWS)]


def test_what_somebody_asked_for_stays() -> None:
    def function(x: Any) -> Any:
        turned = RESHARD(x, P(None, "d"))
        ones = lax.broadcast(1.0, (8, 8), out_sharding=P("d"))
        return jnp.sum(turned), jnp.sum(jnp.sin(ones))

    found = placed(imported(lambda x: function(jnp.sin(x)), P("d")))
    assert ("reshard", COLUMNS) in found
    assert ("broadcast_in_dim", ROWS) in found
    assert len(found) == 3, "and what is placed anew lies first where its type says"


def test_a_product_that_sums_over_devices_stays() -> None:
    """Where its result lies does not follow."""

    def function(x: Any, w: Any) -> Any:
        return jnp.sum(jnp.einsum("ij,jk->ik", jnp.sin(x), w, out_sharding=P("d")))

    assert placed(imported(function, P(None, "d"), P("d"))) == [("dot_general", ROWS)]


def test_what_loops_take_and_give_stays() -> None:
    """What they give is placed inside of them."""

    def function(x: Any) -> Any:
        carry, _ = lax.scan(lambda x, _: (jnp.sin(x) * 2, None), jnp.cos(x), None, length=3)
        return jnp.sum(carry)

    assert [dimensions for _, dimensions in placed(imported(function, P("d")))] == [ROWS] * 2


def test_results_stay() -> None:
    assert placed(imported(lambda x: jnp.sin(x) * 2, P("d"))) == [("the type's sharding", ROWS)]
