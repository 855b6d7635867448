"""`shard_map` inside of what is differentiated, in every entry. JAX beside it is the law.

Eight devices of the host's have to be asked for before JAX starts, so one other process runs all of it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from rematc.ir.builder import Builder
from rematc.ir.errors import CompileError
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.mapped import DeviceMap
from rematc.ir.parser import parse_graph
from rematc.ir.printer import print_graph
from rematc.ir.types import F32, TensorType
from rematc.lowering.jax_export.exporting import jax_function
from rematc.lowering.module import stablehlo_text
from tests.support.many_devices import said_by

PROGRAM = r"""
import json, re
import jax, jax.numpy as jnp, numpy as np, rematc, rematc.jax as rjax
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from rematc.ir.printer import print_graph

mesh = jax.make_mesh((2, 4), ("d", "t"), axis_types=(AxisType.Auto,) * 2)
random = np.random.default_rng(0)
w = random.normal(0, 0.3, (3, 16, 16)).astype(np.float32)
x = random.normal(0, 1, (64, 16)).astype(np.float32)
over = lambda body, *specs, **more: jax.shard_map(body, mesh=mesh, in_specs=specs[:-1], out_specs=specs[-1], **more)


def layer_of(checked):
    def gathered(w, x):
        return x + jnp.tanh(x @ lax.all_gather(w, "t", tiled=True))
    return over(gathered, P("t"), P(("d", "t")), P(("d", "t")), check_vma=checked)

def unrolled(checked):
    layer = layer_of(checked)
    return lambda w, x: jnp.mean(layer(w[2], layer(w[1], layer(w[0], x))) ** 2)

def scanned(checked):
    layer = layer_of(checked)
    return lambda w, x: jnp.mean(lax.scan(lambda x, one: (layer(one, x), None), x, w)[0] ** 2)

def wrapped(checked):
    layer = layer_of(checked)
    return lambda w, x: jnp.mean(jax.checkpoint(lambda w, x: jnp.sin(layer(w, x)))(w[0], x) ** 2)

def batched(checked):
    layer = layer_of(checked)
    return lambda w, x: jnp.mean(jax.vmap(lambda x: layer(w[0], x))(x.reshape(2, 32, 16)) ** 2)

def columns(checked):
    def body(w, x):
        for one in w:
            x = x + jnp.tanh(lax.psum(jnp.tanh(x @ one) @ one.T, "t"))
        return lax.pmean(jnp.mean(x**2), "d")
    return over(body, P(None, None, "t"), P("d"), P(), check_vma=checked)

def every(checked):
    # All collectives.
    def body(w, x):
        for one in w:
            y = jnp.tanh(x @ lax.all_gather(one, "t", tiled=True))
            parts = lax.psum_scatter(y, "t", scatter_dimension=1, tiled=True)
            parts += lax.all_to_all(y, "t", 1, 0, tiled=True).reshape(4, 8, 4).sum(0)
            x = x + jnp.tile(parts, 4) * lax.axis_index("t") / 4
            x = x + lax.ppermute(y, "d", [(0, 1), (1, 0)]) + lax.all_gather(y, "t")[1]
        largest = lax.pmax(lax.stop_gradient(jnp.max(x)), ("d", "t"))
        return lax.pmean(jnp.mean(x**2) / largest, ("d", "t"))
    return over(body, P(None, "t"), P(("d", "t")), P(), check_vma=checked)

def partial(checked):
    body = lambda w, x: x + jnp.tanh(x @ lax.all_gather(w, "t", tiled=True)) * (1 + lax.axis_index("t"))
    layer = over(body, P("t"), P("t"), P("t"), check_vma=checked, axis_names={"t"})
    rows = NamedSharding(mesh, P("d"))
    return lambda w, x: jnp.mean(layer(w[0], lax.with_sharding_constraint(x, rows)) ** 2)

def collectives(text):
    names = re.findall(r"= .*? (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)\(", text)
    return {name: names.count(name) for name in sorted(set(names))}

def described(compiled, results):
    value, gradient = results
    spec = (*gradient.sharding.spec, *[None] * gradient.ndim)[:gradient.ndim]
    return {
        "value": float(value), "gradient": np.asarray(gradient).tolist(), "sharding": str(spec),
        "temporary": compiled.memory_analysis().temp_size_in_bytes, "collectives": collectives(compiled.as_text()),
    }

def of_jax(step, *args):
    compiled = jax.jit(step).lower(*args).compile()
    return described(compiled, compiled(*args))

def of_ours(step, *args):
    compiled = rematc.compile(step, *args)
    return described(compiled.executable._compiled, compiled(*args))

def twice(gradient):
    return lambda w, x: (jnp.float32(0), jax.grad(lambda w: jnp.sum(jnp.sin(gradient(w, x))))(w))

args = jax.device_put(w, NamedSharding(mesh, P(None, "t"))), jax.device_put(x, NamedSharding(mesh, P(("d", "t"))))
said = {}
for make in (unrolled, scanned, wrapped, batched, columns, every, partial):
    for checked in (True, False):
        if make is partial and checked:
            continue
        loss, name = make(checked), f"{make.__name__} {checked}"
        own = rematc.from_jax(loss)
        said[name] = {
            "jax": of_jax(jax.value_and_grad(loss), *args),
            "rematc": of_jax(rjax.value_and_grad(loss), *args),
            "rematc nothing": of_jax(rjax.value_and_grad(loss, policy="nothing"), *args),
            "from_jax": of_ours(rematc.value_and_grad(own), *args),
            "from_jax nothing": of_ours(rematc.value_and_grad(own, policy="nothing"), *args),
        }
loss = unrolled(False)
said["twice"] = {
    "jax": of_jax(twice(jax.grad(loss)), *args), "rematc": of_jax(twice(rjax.grad(loss)), *args),
}
Explicit, Auto = AxisType.Explicit, AxisType.Auto
for name, kinds in {"explicit": (Explicit, Explicit), "mixed": (Explicit, Auto)}.items():
    typed = jax.make_mesh((2, 4), ("d", "t"), axis_types=kinds)
    with jax.set_mesh(typed):
        if name == "explicit":
            body = lambda w, x: x + jnp.tanh(x @ lax.all_gather(w, "t", tiled=True))
            layer = jax.shard_map(body, in_specs=(P("t"), P("d")), out_specs=P("d"), check_vma=False)
            parts = P("t")
        else:
            layer = lambda w, x: jnp.tanh(lax.with_sharding_constraint(jnp.tanh(x @ w), P(None, "t")) @ w.T)
            parts = P(None, "t")
        loss = lambda w, x: jnp.mean(layer(w, layer(w, x)) ** 2)
        given = jax.device_put(w[0], NamedSharding(typed, parts)), jax.device_put(x, NamedSharding(typed, P("d")))
        said[name] = {
            "jax": of_jax(jax.value_and_grad(loss), *given),
            "rematc": of_jax(rjax.value_and_grad(loss), *given),
            "rematc nothing": of_jax(rjax.value_and_grad(loss, policy="nothing"), *given),
            "twice": of_jax(jax.value_and_grad(lambda w, x: rjax.value_and_grad(loss)(w, x)[0]), *given),
            "from_jax": of_ours(rematc.value_and_grad(rematc.from_jax(loss)), *given),
            "from_jax nothing": of_ours(rematc.value_and_grad(rematc.from_jax(loss), policy="nothing"), *given),
        }
        said[f"{name} text"] = print_graph(rematc.trace(rematc.from_jax(loss), *given))
def deep(wrap, over=over):
    # Layers that are all in one function over devices.
    def block(x, one):
        return x + jnp.tanh(jnp.tanh(x @ lax.all_gather(one, "t", axis=1, tiled=True)) @ one) @ one.T
    def body(w, x):
        layer = wrap(block)
        for one in w:
            x = layer(x, one)
        return lax.pmean(jnp.mean(x**2), ("d", "t"))
    return over(body, P(None, None, "t"), P(("d", "t")), P())

stack = jax.device_put(np.repeat(w[:1], 12, 0), NamedSharding(mesh, P(None, None, "t")))
rows = jax.device_put(random.normal(0, 1, (8 * 512, 16)).astype(np.float32), NamedSharding(mesh, P(("d", "t"))))
own, by_hand = rematc.from_jax(deep(lambda block: block)), deep(jax.checkpoint)
said["deep"] = {
    "jax": of_jax(jax.value_and_grad(by_hand), stack, rows),
    "none": of_ours(rematc.value_and_grad(own), stack, rows),
    "nothing": of_ours(rematc.value_and_grad(own, policy="nothing"), stack, rows),
    "budget": of_ours(rematc.value_and_grad(own, budget="50%"), stack, rows),
}
typed = jax.make_mesh((2, 4), ("d", "t"))
with jax.set_mesh(typed):
    over_typed = lambda body, *specs: jax.shard_map(body, in_specs=specs[:-1], out_specs=specs[-1])
    given = jax.tree.map(lambda one: jax.device_put(one, NamedSharding(typed, one.sharding.spec)), (stack, rows))
    loss = deep(lambda block: block, over_typed)
    own = rematc.from_jax(loss)
    said["deep explicit"] = {
        "jax": of_jax(jax.value_and_grad(deep(jax.checkpoint, over_typed)), *given),
        "none": of_ours(rematc.value_and_grad(own), *given),
        "nothing": of_ours(rematc.value_and_grad(own, policy="nothing"), *given),
        "in jit": of_jax(rjax.value_and_grad(loss, policy="nothing"), *given),
        "budget": of_ours(rematc.value_and_grad(own, budget="50%"), *given),
    }
def around(wrap):
    # Layers whose products are of whole arrays, around a function over devices.
    mixed = over(lambda y: jnp.tanh(lax.all_gather(y, ("d", "t"), tiled=True)[:512] + y), P(("d", "t")), P(("d", "t")))
    layer = wrap(lambda x, one: x + jnp.tanh(mixed(jnp.tanh(x @ one)) @ one.T))
    def loss(w, x):
        for one in w:
            x = layer(x, one)
        return jnp.mean(x**2)
    return loss

own = rematc.from_jax(around(lambda layer: layer))
said["deep around"] = {
    "jax": of_jax(jax.value_and_grad(around(jax.checkpoint)), stack, rows),
    "none": of_ours(rematc.value_and_grad(own), stack, rows),
    "nothing": of_ours(rematc.value_and_grad(own, policy="nothing"), stack, rows),
    "in jit": of_jax(rjax.value_and_grad(around(lambda layer: layer), policy="nothing"), stack, rows),
    "budget": of_ours(rematc.value_and_grad(own, budget="50%"), stack, rows),
}
loss = unrolled(False)
batch = np.stack([x, 2 * x])
own = rematc.vmap(rematc.grad(rematc.from_jax(loss)), (None, 0))(w, batch)
said["batched by us"] = [np.asarray(one).tolist() for one in (own, jax.vmap(jax.grad(loss), (None, 0))(w, batch))]
def twice_whole(checked):
    # Weights that all devices have: in the second derivative each is a residual of the first one.
    body = lambda w, x: lax.pmean(jnp.sum(jnp.tanh(jnp.tanh(x @ w[0]) @ w[1]) ** 2), ("d", "t"))
    return over(body, P(), P(("d", "t")), P(), check_vma=checked)

def twice_parallel(checked):
    # Activations that all devices have: each computes all of their cotangents.
    def body(w, x):
        for one in w:
            x = x + lax.psum(jnp.tanh(x @ one) @ one.T, "t")
        return jnp.mean(x**2)
    return over(body, P(None, None, "t"), P(), P(), check_vma=checked)

squares = lambda gradient: lambda w, x: (gradient(w, x) ** 2).sum()
for make in (twice_whole, twice_parallel):
    for checked in (True, False):
        both = make(checked)
        ours = rematc.grad(squares(rematc.grad(rematc.from_jax(both))))(w, x)
        own = ours, jax.grad(squares(jax.grad(both)))(w, x)
        said[f"{make.__name__} {checked}"] = [np.asarray(one).tolist() for one in own]
def stepped(w, x):
    # A loop of collectives, of which a policy of the user's is asked.
    body = lambda x, one: (x + jnp.tanh(lax.psum(jnp.tanh(x @ one) @ one.T, "t")), None)
    return lax.pmean(jnp.mean(lax.scan(body, x, w)[0] ** 2), "d")

asked = set()
def sums(primitive, *_, **__):
    asked.add(primitive.name)
    return primitive.name in ("psum", "psum_invariant")

by_steps = over(stepped, P(None, None, "t"), P("d"), P())
said["own policy"] = {
    "jax": of_jax(jax.value_and_grad(by_steps), *args),
    "rematc": of_jax(rjax.value_and_grad(by_steps, policy=sums), *args),
    "from_jax": of_ours(rematc.value_and_grad(rematc.from_jax(by_steps), policy=sums), *args),
}
said["asked"] = sorted(asked)
# Along one axis devices compute by themselves; along the other one constraints, or types, say inside how values lie.
for kind in ("Auto", "Explicit"):
    own = jax.make_mesh((2, 4), ("d", "t"), axis_types=(AxisType[kind],) * 2)
    with jax.set_mesh(own):
        def body(w, x):
            for one in w:
                if kind == "Auto":
                    x = x + lax.with_sharding_constraint(jnp.tanh(x @ one), P(None, "t")) @ one.T
                else:
                    x = x + jnp.matmul(jax.reshard(jnp.tanh(x @ one), P(None, "t")), one.T, out_sharding=P())
            return lax.pmean(jnp.mean(x**2), "d")
        along = jax.shard_map(body, mesh=own, in_specs=(P(), P("d")), out_specs=P(), axis_names={"d"})
        placed = [jax.device_put(one, NamedSharding(own, P(None, "t"))) for one in w]
        given = placed, jax.device_put(x, NamedSharding(own, P("d")))
        many = lambda gradient: lambda w, x: sum((one ** 2).sum() for one in gradient(w, x))
        jitted = lambda step: np.asarray(jax.tree.leaves(jax.jit(step)(*given))).tolist()
        by_us = rematc.grad(many(rematc.grad(rematc.from_jax(along), policy="nothing")))
        said[f"twice {kind}"] = {
            "jax": jitted(jax.grad(many(jax.grad(along)))),
            "of its own": np.asarray(by_us(*given)).tolist(),
            "twice": jitted(rjax.grad(many(rjax.grad(along, policy="nothing")))),
            "reverse": jitted(jax.grad(many(rjax.grad(along)))),
            "pulled": np.asarray(jax.tree.leaves(rjax.vjp(along, *given)[1](jnp.float32(1)))[0]).tolist(),
            "once": np.asarray(jitted(jax.grad(along))[0]).tolist(),
            "text": print_graph(rematc.trace(rematc.from_jax(along), *given)),
        }
said["text"] = rematc.lower(rematc.from_jax(loss), *args).stablehlo()
print(json.dumps(said))
"""


@cache
def said() -> dict[str, Any]:
    return said_by(PROGRAM, 8, "--xla_backend_optimization_level=0")


NAMES = [
    f"{name} {on}" for name in ("unrolled", "scanned", "wrapped", "batched", "columns", "every") for on in (True, False)
]
CASES = [*NAMES, "partial False", "twice", "explicit", "mixed", "deep", "deep explicit", "deep around", "own policy"]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_values_and_shardings_are_those_of_jax(name: str) -> None:
    expected = said()[name]["jax"]
    for way, found in said()[name].items():
        np.testing.assert_allclose(found["value"], expected["value"], rtol=1e-5, err_msg=way)
        np.testing.assert_allclose(found["gradient"], expected["gradient"], rtol=1e-4, atol=1e-6, err_msg=way)
        assert found["sharding"] == expected["sharding"], way


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith(("wrapped", "deep", "own"))])
def test_each_device_takes_what_it_takes_in_jax(name: str) -> None:
    """But for what `jax.checkpoint` computes again: XLA of jax 0.10 merges it with the forward pass, on the CPU."""
    expected, found = said()[name]["jax"], said()[name]["rematc"]
    if name == "explicit":  # cotangents of the same weights are added up before they are sent
        assert sum(found["collectives"].values()) < sum(expected["collectives"].values())
    else:
        assert found["collectives"] == expected["collectives"]
    gradient = 1024 if name == "mixed" else 256  # which XLA may have beside the others for a while
    assert found["temporary"] <= 1.02 * expected["temporary"] + gradient


@pytest.mark.slow
def test_a_policy_decides_about_what_devices_computed() -> None:
    """What the backward pass needs of a layer is computed again, in a loop, too."""
    plain, kept = said()["scanned False"]["rematc"], said()["scanned False"]["rematc nothing"]
    assert kept["collectives"]["all-gather"] > plain["collectives"]["all-gather"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["deep", "deep explicit", "deep around"])
def test_layers_are_recomputed_one_by_one(name: str) -> None:
    """A policy and a budget see each of them; JAX has a `jax.checkpoint` around each."""
    taken = {way: found["temporary"] for way, found in said()[name].items()}
    assert taken["nothing"] <= 0.6 * taken["none"]
    assert max(taken["nothing"], taken.get("in jit", 0)) <= taken["jax"]
    assert taken["budget"] <= 0.5 * taken["none"]


@pytest.mark.slow
@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("name", ["twice_whole", "twice_parallel"])
def test_second_derivatives_through_what_all_devices_have(name: str, checked: bool) -> None:
    """What differs from it in its type alone is another value: cotangents of that are added up over devices."""
    found, expected = said()[f"{name} {checked}"]
    rounding = 1e-5 * np.abs(expected).max()  # of sums whose terms are as large, in an order that XLA does not fix
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=rounding)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Auto", "Explicit"])
def test_inside_constraints_and_types_say_how_values_lie_along_other_axes(kind: str) -> None:
    found = said()[f"twice {kind}"]
    for way in ("of its own", "twice", "reverse"):
        np.testing.assert_allclose(found[way], found["jax"], rtol=1e-4, atol=1e-6, err_msg=way)
    np.testing.assert_allclose(found["pulled"], found["once"], rtol=1e-4, atol=1e-6)
    assert "device_map" not in found["text"]
    assert found["text"].count(r'dimensions=["{}","{\"t\"}"]') >= 3


@pytest.mark.slow
def test_a_policy_of_jaxs_is_asked_of_collectives_by_their_names() -> None:
    """Those in loops and those that derivatives add, too; what leads into a `shard_map` is no equation of its own."""
    assert {"psum_invariant", "pvary", "dot_general", "tanh"} <= set(said()["asked"])


@pytest.mark.slow
def test_batches_of_ours_are_those_of_jax() -> None:
    found, expected = said()["batched by us"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_what_devices_compute_by_themselves_is_one_region() -> None:
    """Of three functions, one after another, whose results and operands are cut alike."""
    text = said()["text"]
    assert text.count("sdy.manual_computation(") == 1
    assert text.count('"stablehlo.all_gather"(') == text.count("stablehlo.tanh ") == 3
    assert 'manual_axes={"d", "t"}' in text


@pytest.mark.slow
def test_types_may_say_how_arrays_lie_that_devices_take_parts_of() -> None:
    """What no type says of the values inside is imported as on other meshes; else it is one op."""
    assert "shard_to_full" in said()["explicit text"]
    assert "device_map" not in said()["explicit text"]
    assert "placement" not in said()["explicit text"].partition("shard_to_full")[0], "the borders say where they lie"


# -- the op -----------------------------------------------------------------------------------------------------------


def test_what_was_read_from_text_cannot_run() -> None:
    b = Builder("read")
    x = b.parameter(TensorType(F32, (2,)))
    graph = b.build(*b.emit(DeviceMap("layer", (TensorType(F32, (4,)),), 2), x))
    assert print_graph(parse_graph(print_graph(graph))) == print_graph(graph)
    for use in (lambda: stablehlo_text(graph), lambda: jax_function(graph)(np.ones(2, np.float32))):
        with pytest.raises(CompileError, match="'layer' over devices was read from text"):
            use()
    with pytest.raises(CompileError, match="has a value only on the devices of its mesh"):
        evaluate(graph, [np.ones(2, np.float32)])
