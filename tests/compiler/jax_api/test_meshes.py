"""Programs on a mesh of devices, with rematc inside of `shard_map`: JAX beside it is the law.

Eight devices of the host's have to be asked for before JAX starts, so one other process runs all of it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from rematc.ir.builder import Builder
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.ir.ops.devices import (
    DeviceCollective,
    DeviceExchange,
    DeviceExtremum,
    DeviceGather,
    DevicePermute,
    DeviceScatter,
    DeviceSum,
    DeviceVary,
)
from rematc.ir.parser import parse_graph
from rematc.ir.printer import print_graph
from rematc.ir.types import F32, TensorType
from rematc.passes.linearize import vjp
from rematc.passes.vmap import vmap
from tests.support.many_devices import said_by

PROGRAM = r"""
import json, re
import jax, jax.numpy as jnp, numpy as np, rematc, rematc.jax as rjax
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((2, 4), ("d", "t"), axis_types=(AxisType.Auto,) * 2)
random = np.random.default_rng(0)
w = [random.normal(0, 0.3, (16, 16)).astype(np.float32) for _ in range(2)]
x = random.normal(0, 1, (32, 16)).astype(np.float32)


def layers(w, x):
    for one in w:
        x = x + jnp.tanh(x @ one)
    return x

def parallel(w, x):
    return lax.pmean(jnp.mean(layers(w, x) ** 2), ("d", "t"))

def gathered(w, x):
    whole = [lax.all_gather(one, "t", tiled=True) for one in w]
    return lax.pmean(jnp.mean(layers(whole, x) ** 2), ("d", "t"))

def columns(w, x):
    for one in w:
        x = x + jnp.tanh(lax.psum(jnp.tanh(x @ one) @ one.T, "t"))
    return lax.pmean(jnp.mean(x**2), "d")

def scanned(w, x):
    def layer(x, one):
        return lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, jnp.tanh(lax.pmean(x, "d") @ one)) + x, None
    return lax.pmean(jnp.mean(lax.scan(layer, x, jnp.stack(w))[0] ** 2), ("d", "t"))

def sent(w, x):
    ring = [(i, (i + 1) % 4) for i in range(4)]
    for one in w:
        x = x + lax.ppermute(jnp.tanh(x @ one), "t", ring)
    return lax.pmean(jnp.mean(x**2), ("d", "t"))

def scattered(w, x):
    for one in w:
        x = x + jnp.tile(lax.psum_scatter(jnp.tanh(x @ one), "t", scatter_dimension=1, tiled=True), (1, 4))
    return lax.pmean(jnp.mean(x**2), ("d", "t"))

def exchanged(w, x):
    for one in w:
        x = x + jnp.tile(lax.all_to_all(jnp.tanh(x @ one), "t", 1, 0, tiled=True), (1, 4))[: x.shape[0]]
        x = x + lax.all_to_all(x.reshape(4, -1), "t", 0, 0).reshape(x.shape)
    return lax.pmean(jnp.mean(x**2), ("d", "t"))

def shifted(w, x):
    found = layers(w, x * (1 + lax.axis_index("t")))
    highest = lax.pmax(lax.stop_gradient(jnp.max(found)), ("d", "t"))
    rows = jnp.mean(lax.all_gather(jnp.exp(found - highest), "t"), 0)
    return lax.pmean(jnp.mean(rows), ("d", "t"))

def ruled(w, x):
    @jax.custom_vjp
    def doubled(y):
        return lax.psum(2 * y, "t")
    doubled.defvjp(lambda y: (lax.psum(2 * y, "t"), None), lambda _, ct: (3 * varied(ct, "t"),))
    return lax.pmean(jnp.mean(doubled(layers(w, x)) ** 2), ("d",) if checked else ("d", "t"))

def varied(value, axes):
    return lax.pcast(value, axes, to="varying") if checked else value

ALL = (("d", "t"), None)
# By name: (loss, parts of the weights, parts of the rows).
LOSSES = {
    "parallel": (parallel, P(), P(ALL[0])), "gathered": (gathered, P("t"), P("d")),
    "columns": (columns, P(None, "t"), P("d")),
    **{one.__name__: (one, P(), P(ALL[0])) for one in (scanned, sent, scattered, exchanged, shifted, ruled)},
}
def ways(loss):
    def pulled(w, x):
        value, back = rjax.vjp(lambda w: loss(w, x), w)
        return value, back(value * 0 + 1)[0]
    return {
        "jax": jax.value_and_grad(loss), "rematc": rjax.value_and_grad(loss), "vjp": pulled,
        "checkpoint": jax.value_and_grad(rjax.checkpoint(loss, policy="dots", segments=False)),
        "rematc nothing": rjax.value_and_grad(loss, policy="nothing"),
    }

def collectives(compiled):
    names = re.findall(r"= .*? (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)\(", compiled)
    return {name: names.count(name) for name in sorted(set(names))}

def described(function, *args):
    compiled = jax.jit(function).lower(*args).compile()
    value, gradient = compiled(*args)
    return {
        "value": float(value), "gradient": [np.asarray(one).tolist() for one in jax.tree.leaves(gradient)],
        "shardings": [str(one.sharding) for one in jax.tree.leaves(gradient)],
        "temporary": compiled.memory_analysis().temp_size_in_bytes, "collectives": collectives(compiled.as_text()),
    }

said = {}
for checked in (True, False):
    for name, (loss, weights, rows) in LOSSES.items():
        if name == "scanned" and not checked:
            continue  # each device has its own value: without checks JAX's mean is all the same
        of_weights, of_rows = NamedSharding(mesh, weights), NamedSharding(mesh, rows)
        args = [jax.device_put(one, of_weights) for one in w], jax.device_put(x, of_rows)
        for way, function in ways(loss).items():
            mapped = jax.shard_map(
                function, mesh=mesh, in_specs=(weights, rows), out_specs=(P(), weights), check_vma=checked
            )
            said[f"{name} {way} {checked}"] = described(mapped, *args)
many = jax.device_put(np.tile(x, (64, 1)), NamedSharding(mesh, P(ALL[0])))
deep = lambda w, x: lax.pmean(jnp.mean(layers(w * 6, x) ** 2), ("d", "t"))
for checked in (True, False):
    for policy in (None, "nothing"):
        step = rjax.value_and_grad(deep, policy=policy)
        mapped = jax.shard_map(step, mesh=mesh, in_specs=(P(), P(ALL[0])), out_specs=P(), check_vma=checked)
        said[f"deep {policy} {checked}"] = described(mapped, w, many)
print(json.dumps(said))
"""


@cache
def said() -> dict[str, Any]:
    return said_by(PROGRAM, 8, "--xla_backend_optimization_level=0")


NAMES = ["parallel", "gathered", "columns", "scanned", "sent", "scattered", "exchanged", "shifted", "ruled"]
MODES = [(name, checked) for name in NAMES for checked in (True, False) if checked or name != "scanned"]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "checked"), MODES)
def test_gradients_inside_of_shard_map_are_those_of_jax(name: str, checked: bool) -> None:
    expected = said()[f"{name} jax {checked}"]
    for way in ("rematc", "vjp", "checkpoint", "rematc nothing"):
        found = said()[f"{name} {way} {checked}"]
        np.testing.assert_allclose(found["value"], expected["value"], rtol=1e-5, err_msg=way)
        for one, other in zip(found["gradient"], expected["gradient"], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6, err_msg=way)
        assert found["shardings"] == expected["shardings"], way


@pytest.mark.slow
@pytest.mark.parametrize(("name", "checked"), MODES)
def test_without_a_policy_devices_talk_as_often_as_in_jax(name: str, checked: bool) -> None:
    expected, found = said()[f"{name} jax {checked}"], said()[f"{name} rematc {checked}"]
    assert sum(found["collectives"].values()) <= sum(expected["collectives"].values())
    assert found["temporary"] <= 1.05 * expected["temporary"] + 1024


@pytest.mark.slow
@pytest.mark.parametrize("checked", [True, False])
def test_a_policy_of_a_body_saves_memory(checked: bool) -> None:
    """Of what each device holds."""
    assert said()[f"deep nothing {checked}"]["temporary"] < 0.6 * said()[f"deep None {checked}"]["temporary"]


# -- the ops ----------------------------------------------------------------------------------------------------------

MATRIX = TensorType(F32, (4, 6))
OVER = (("d",), (2,))
LINEAR: list[tuple[DeviceCollective | DeviceVary, DeviceCollective | DeviceVary, tuple[int, ...]]] = [
    (DeviceSum(*OVER), DeviceVary(*OVER), (4, 6)),
    (DeviceSum(*OVER, is_checked=False), DeviceSum(*OVER, is_checked=False), (4, 6)),
    (DeviceVary(*OVER), DeviceSum(*OVER), (4, 6)),
    (DeviceGather(*OVER, 1), DeviceScatter(*OVER, 1), (4, 2, 6)),
    (DeviceGather(*OVER, 1, True), DeviceScatter(*OVER, 1, True), (4, 12)),
    (DeviceScatter(*OVER, 0, True), DeviceGather(*OVER, 0, True), (2, 6)),
    (DeviceExchange(*OVER, 0, 1), DeviceExchange(*OVER, 1, 0), (2, 12)),
    (DevicePermute(*OVER, ((0, 1),)), DevicePermute(*OVER, ((1, 0),)), (4, 6)),
]


def of(op: DeviceCollective | DeviceVary) -> Graph:
    b = Builder("of")
    return b.build(b.emit1(op, b.parameter(MATRIX)))


@pytest.mark.parametrize(("op", "adjoint", "shape"), LINEAR)
def test_collectives_have_the_adjoints_of_jax(op: DeviceCollective, adjoint: DeviceCollective, shape: Any) -> None:
    graph = of(op)
    assert graph.result_types == (TensorType(F32, shape),)
    (eqn,) = vjp(graph, [True], [True]).backward.equations
    assert eqn.op == adjoint
    assert eqn.result_types == (MATRIX,)


@pytest.mark.parametrize("op", [*[row[0] for row in LINEAR], DeviceExtremum(*OVER, is_max=True)])
def test_collectives_of_a_batch_are_those_of_its_elements(op: DeviceCollective) -> None:
    graph = of(op)
    (found,) = vmap(graph, [True], 3).graph.result_types
    assert found.shape == (3, *graph.result_types[0].shape)
    assert print_graph(parse_graph(print_graph(graph))) == print_graph(graph)


def test_a_batch_cannot_stand_for_devices() -> None:
    with pytest.raises(CompileError, match="which here is the name of a batch dimension"):
        vmap(of(DeviceSum(*OVER)), [True], 3, "d")


def test_an_extremum_over_devices_has_no_derivative() -> None:
    with pytest.raises(CompileError, match="hide its operand with stop_gradient"):
        vjp(of(DeviceExtremum(*OVER, is_max=True)), [True], [True])
