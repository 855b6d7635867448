"""Where values lie is kept: constraints, types and text in every entry. JAX beside it is the law.

Four devices of the host's have to be asked for before JAX starts, so one other process runs all of it.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.support.many_devices import said_by

PROGRAM = r"""
import json
import jax, jax.numpy as jnp, numpy as np, rematc, rematc.jax as rjax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from jax.experimental.layout import Layout, with_layout_constraint
from rematc.lowering.jax_export.exporting import jax_function, opaque_function
from rematc.ir.ops.placement import placements_of

mesh = jax.make_mesh((4,), ("d",), axis_types=(AxisType.Auto,))
rows, whole = NamedSharding(mesh, P("d", None)), NamedSharding(mesh, P())
w = np.random.default_rng(0).normal(0, 0.3, (32, 32)).astype(np.float32)
x = np.random.default_rng(1).normal(0, 1, (512, 32)).astype(np.float32)
W, X = jax.device_put(w, whole), jax.device_put(x, whole)
split = lambda y: jax.lax.with_sharding_constraint(y, rows)


def mlp(w, x):
    x = split(x)
    for _ in range(3):
        x = split(jnp.tanh(x @ w))
    return jnp.mean(x**2)

def unconstrained(w, x):
    for _ in range(3):
        x = jnp.tanh(x @ w)
    return jnp.mean(x**2)

def scanned(w, x):
    return jnp.mean(jax.lax.scan(lambda y, _: (split(jnp.tanh(y @ w)), None), x, None, length=3)[0] ** 2)

def chosen(w, x):
    return jnp.mean(jax.lax.cond(w[0, 0] > -9, lambda y: split(jnp.sin(y @ w)), lambda y: y, x) ** 2)

def checkpointed(w, x):
    return jnp.mean(jax.checkpoint(lambda y: split(jnp.tanh(jnp.sin(y @ w))))(x) ** 2)

def batched(w, x):
    of_half = lambda y: jax.lax.with_sharding_constraint(jnp.tanh(y @ w), rows)
    return jnp.mean(jax.vmap(of_half)(x.reshape(2, 256, 32)) ** 2)

def called(w, x):
    return jnp.mean(jax.jit(lambda y: jnp.tanh(y @ w), in_shardings=(rows,), out_shardings=rows)(x) ** 2)

def compiled(function):
    return jax.jit(function).lower(W, X).compile()

def described(one, results):
    return {
        "temporary": one.memory_analysis().temp_size_in_bytes,
        "shardings": [str((*array.sharding.spec, *[None] * array.ndim)[: array.ndim]) for array in results],
        "values": [float(jnp.sum(jnp.abs(array))) for array in results],
    }

def of(function):
    one = compiled(function)
    return described(one, one(W, X))

def twice(gradient):
    return jax.grad(lambda w, x: sum(jnp.sum(jnp.sin(one)) for one in gradient(w, x)), (0, 1))

def refusal(function, *args):
    try:
        function(*args)
    except rematc.CompileError as error:
        return str(error)

def count(function, name="sharding_constraint"):
    return str(jax.make_jaxpr(function)(w, x)).count(f" {name}[")

def entries(function):
    return {
        "jax": jax.grad(function, (0, 1)), "rematc": rjax.grad(function, (0, 1)),
        "checkpoint": jax.grad(rjax.checkpoint(function, segments=False), (0, 1)),
        "segments": jax.grad(rjax.checkpoint(function), (0, 1)),
        "jax checkpoint": jax.grad(jax.checkpoint(function), (0, 1)),
    }

said = {"constraints": {}}
functions = (mlp, scanned, chosen, checkpointed, batched, called)
for function in functions:
    name = function.__name__
    one = said["constraints"][name] = {entry: count(gradient) for entry, gradient in entries(function).items()}
    one.update({f"{entry} twice": count(twice(gradient)) for entry, gradient in entries(function).items()})
    ours = rematc.lower(rematc.grad(rematc.from_jax(function), (0, 1)), W, X)
    one["from_jax"] = ours.stablehlo().count("sdy.sharding_constraint")
    text = jax.jit(function).lower(W, X).as_text()
    one["text"] = text.count("sdy.sharding_constraint") + text.count("sdy.sharding =")
    read = rematc.from_stablehlo(text)
    one["from_stablehlo"] = sum(1 for _ in placements_of(read))

of_mlp = entries(mlp)
of_mlp["jax twice"], of_mlp["rematc twice"] = twice(of_mlp["jax"]), twice(of_mlp["rematc"])
of_mlp["checkpoint twice"] = twice(of_mlp["checkpoint"])
read = jax_function(rematc.from_stablehlo(jax.jit(mlp).lower(W, X).as_text()))
of_mlp["from_stablehlo"] = jax.grad(lambda w, x: read(w, x)[0], (0, 1))
of_mlp["unconstrained"] = jax.grad(unconstrained, (0, 1))
described_by = {name: of(gradient) for name, gradient in of_mlp.items()}
ours = rematc.compile(rematc.grad(rematc.from_jax(mlp), (0, 1)), W, X)
described_by["from_jax"] = described(ours.executable._compiled, ours(W, X))
said["mlp"] = described_by

alone = rematc.compile(rematc.from_jax(mlp), w, x)
said["on the mesh of its constraints"] = [alone.executable.target.devices, float(alone(w, x)), float(mlp(w, x))]

ours = rematc.vmap(rematc.from_jax(split))
said["batched by us"] = str(rematc.compile(ours, jax.device_put(np.ones((3, 8, 4), np.float32), whole)).stablehlo())

def laid(w, x):
    return jnp.sum(w) + jnp.sum(jnp.sin(with_layout_constraint(x, Layout((0, 1)))) ** 2)

def moved(w, x):
    return jnp.sum(w) + jnp.sum(jax.device_put(jnp.sin(x), rows) ** 2)

def to_device(w, x):
    return jnp.sum(w) + jnp.sum(jax.device_put(jnp.sin(x), jax.devices()[1]) ** 2)

def to_host(w, x):
    return jnp.sum(w) + jnp.sum(jax.device_put(jnp.sin(x), jax.memory.Space.Host) ** 2)

def to_own_memory(w, x):
    return jnp.sum(w) + jnp.sum(jax.device_put(jnp.sin(x), jax.memory.Space.Device) ** 2)

said["moved by us"] = {}
for function in (moved, to_device, to_own_memory):
    ours, theirs = rematc.compile(rematc.from_jax(function), w, x), jax.jit(function)(w, x)
    derivative = jax.grad(function, argnums=1)
    step, expected = rematc.jax.jit(derivative, budget="1MiB"), jax.jit(derivative)(w, x)
    said["moved by us"][function.__name__] = [
        [ours.executable.target.devices, len(step(w, x).sharding.device_set), float(ours(w, x))],
        [len(theirs.sharding.device_set), len(expected.sharding.device_set), float(theirs)],
        float(jnp.max(jnp.abs(step(w, x) - expected))),
    ]

def abstract(x):
    return jnp.sum(jax.lax.with_sharding_constraint(x, NamedSharding(mesh.abstract_mesh, P("d"))))

said["kept"] = {
    name: {entry: count(gradient, name) for entry, gradient in entries(function).items()}
    for function, name in ((laid, "layout_constraint"), (moved, "device_put"))
}
text = jax.jit(mlp).lower(W, X).as_text()
opaque = opaque_function(rematc.from_stablehlo(text, file="mlp.mlir"))
said["refused"] = {
    "layout": refusal(lambda: rematc.compile(rematc.from_jax(laid), w, x)),
    "device_put": refusal(lambda: rematc.compile(rematc.from_jax(to_host), w, x)),
    "other devices": refusal(lambda: rematc.compile(rematc.from_jax(abstract), x)),
    "text on other devices": refusal(lambda: jax.jit(opaque)(w, x)),
    "spmd_axis_name": refusal(jax.vmap(lambda x: opaque(W, x), spmd_axis_name="d"), np.ones((4, 512, 32), np.float32)),
    "file": refusal(lambda: alone.save("/nowhere")),
}
jax.config.update("jax_use_shardy_partitioner", False)
said["refused"]["GSPMD"] = refusal(lambda: rematc.compile(rematc.from_jax(mlp), W, X))
said["refused"]["GSPMD in text"] = refusal(lambda: rematc.from_stablehlo(jax.jit(mlp).lower(w, x).as_text()))
jax.config.update("jax_use_shardy_partitioner", True)

typed = jax.make_mesh((4,), ("d",), axis_types=(AxisType.Explicit,))
weights = jax.device_put(w, NamedSharding(typed, P(None, None)))
stripes = jax.device_put(x, NamedSharding(typed, P("d", None)))

def of_types(w, x):
    hidden = jnp.tanh(x @ w)
    return jnp.mean(jax.reshard(hidden, P(None, "d")) ** 2)

said["types"] = {}
with jax.set_mesh(typed):
    for name, function in (
        ("jax", jax.jit(jax.grad(of_types, (0, 1)))), ("rematc", jax.jit(rjax.grad(of_types, (0, 1)))),
        ("checkpoint", jax.jit(jax.grad(rjax.checkpoint(of_types), (0, 1)))),
        ("vjp", jax.jit(lambda w, x: rjax.vjp(of_types, w, x)[1](jnp.float32(1)))),
    ):
        one = function.lower(weights, stripes).compile()
        said["types"][name] = described(one, one(weights, stripes))
    own = rematc.value_and_grad(rematc.from_jax(of_types), argnums=(0, 1))
    one = rematc.compile(own, weights, stripes)
    said["types"]["from_jax"] = described(one.executable._compiled, one(weights, stripes)[1])
    said["typed results"] = [str(jax.typeof(found)) for way in (one, own) for found in way(weights, stripes)[1]]
    of_tokens = lambda w, tokens: jnp.sum(jnp.sin(w.at[tokens].get(out_sharding=P("d", None, None))))
    tokens = jax.device_put(np.arange(64).reshape(8, 8) % 32, NamedSharding(typed, P("d", None)))
    for policy in (None, "nothing", "dots"):
        looked_up = jax.jit(jax.grad(rjax.checkpoint(of_tokens, policy=policy)))(weights, tokens)
        said["types"][f"looked up under {policy}"] = float(abs(looked_up - jax.grad(of_tokens)(weights, tokens)).max())
    other = jax.device_put(w, NamedSharding(typed, P("d", None)))
    said["types again"] = [str(jax.typeof(own(first, stripes)[1][0])) for first in (weights, other)]
    computed = lambda w, x: rematc.from_jax(of_types)(w * 2, x * 2)
    said["refused"]["types in from_jax"] = refusal(rematc.compile, computed, weights, stripes)
print(json.dumps(said))
"""


@cache
def said() -> dict[str, Any]:
    return said_by(PROGRAM, 4, "--xla_backend_optimization_level=0")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp", "scanned", "chosen", "checkpointed", "batched"])
def test_as_many_constraints_as_in_jax_are_left(name: str) -> None:
    """Of the value, the tangent and the cotangent, and of what is computed again; of derivatives of these, too."""
    found = said()["constraints"][name]
    assert found["jax"] == found["rematc"] == found["from_jax"] > 1
    assert found["checkpoint"] == found["jax checkpoint"] > found["jax"]
    assert found["segments"] >= found["jax"], "what is kept between segments is not computed again"
    assert found["rematc twice"] == found["jax twice"]
    assert found["checkpoint twice"] == found["jax checkpoint twice"]
    assert found["from_stablehlo"] == found["text"] > 0


def test_shardings_of_jit_are_constraints_where_it_is_called() -> None:
    """JAX writes them at its calls, which become their equations."""
    found = said()["constraints"]["called"]
    assert found["rematc"] == found["from_jax"] == 4, "of an argument and a result, of their cotangents"
    assert found["from_stablehlo"] == found["text"] > 0


def test_a_constrained_model_takes_what_it_takes_in_jax() -> None:
    found = said()["mlp"]
    assert found["jax"]["temporary"] < 0.4 * found["unconstrained"]["temporary"]
    for name in ("rematc", "checkpoint", "from_jax", "from_stablehlo"):
        assert found[name]["temporary"] <= 1.01 * found["jax"]["temporary"], name
    for name in ("rematc twice", "checkpoint twice"):
        assert found[name]["temporary"] <= found["jax twice"]["temporary"], name


def test_results_lie_where_jax_has_them() -> None:
    found = said()["mlp"]
    for name in ("rematc", "checkpoint", "from_jax"):
        assert found[name]["shardings"] == found["jax"]["shardings"], name
    for name in ("rematc twice", "checkpoint twice"):
        assert found[name]["shardings"] == found["jax twice"]["shardings"], name


def test_values_are_those_of_jax() -> None:
    found = said()["mlp"]
    for name, one in found.items():
        expected = found["jax twice" if "twice" in name else "jax"]["values"]
        np.testing.assert_allclose(one["values"], expected, rtol=1e-4, err_msg=name)


def test_a_program_runs_on_the_mesh_of_its_constraints() -> None:
    """Arrays of the host's say no devices: the constraints do, as in JAX."""
    devices, value, expected = said()["on the mesh of its constraints"]
    assert devices == 4
    assert abs(value - expected) < 1e-5


def test_a_batch_leaves_its_dimension_open() -> None:
    assert '<mesh<["d"=4]>, [{?}, {"d"}, {}]>' in said()["batched by us"]


@pytest.mark.parametrize("name", ["layout_constraint", "device_put"])
def test_layouts_and_moves_go_back_to_jax(name: str) -> None:
    found = said()["kept"][name]
    assert found["jax"] == found["rematc"] > 1
    assert found["checkpoint"] == found["jax checkpoint"] > 1


@pytest.mark.parametrize("name", ["moved", "to_device", "to_own_memory"])
def test_moves_to_devices_are_what_they_are_to_jax_in_a_program(name: str) -> None:
    """The function, and a step with its derivative."""
    found, expected, error = said()["moved by us"][name]
    devices = 4 if name == "moved" else 1
    assert found[:2] == expected[:2] == [devices, devices]
    np.testing.assert_allclose(found[2], expected[2], rtol=1e-5)
    assert error < 1e-6


def test_results_have_the_types_that_jax_gives_them() -> None:
    """A function's that is compiled ahead and one's that is called; each signature has its own."""
    assert said()["typed results"] == ["float32[32,32]", "float32[512@d,32]"] * 2
    assert said()["types again"] == ["float32[32,32]", "float32[32@d,32]"]


@pytest.mark.parametrize("name", ["rematc", "checkpoint", "from_jax", "vjp"])
def test_types_that_say_where_values_lie_are_kept(name: str) -> None:
    expected, found = said()["types"]["jax"], said()["types"][name]
    assert found["shardings"] == expected["shardings"]
    np.testing.assert_allclose(found["values"], expected["values"], rtol=1e-4)
    assert found["temporary"] <= expected["temporary"] + 4 * 32 * 32 * 4, "a few weights, and no activation, more"


@pytest.mark.parametrize("policy", [None, "nothing", "dots"])
def test_a_policy_decides_where_types_say_nothing_about_axes_that_they_say_it_of_around(policy: str | None) -> None:
    """JAX gathers where the axes of the mesh are of type Auto, inside of a function where they are Explicit."""
    assert said()["types"][f"looked up under {policy}"] < 1e-6


REFUSALS = {
    "layout": r"<string>:\d+:\d+: error: .*'layout_constraint' has no StableHLO text: rematc writes constraints",
    "device_put": r"<string>:\d+:\d+: error: .*'device_put' has no StableHLO text",
    "other devices": r"<string>:\d+:\d+: error: .*over a mesh of 4 devices, and is compiled for 1; pass arrays",
    "text on other devices": r"mlp.mlir:\d+:\d+: error: 'main' has sharding constraints over a mesh of 4 devices",
    "spmd_axis_name": r"jax.vmap with spmd_axis_name=\('d',\) cannot batch 'main', which has sharding constraints",
    "file": r"<string>:\d+:\d+: error: .*is compiled for 4 devices, and neither saved nor pickled",
    "GSPMD": r"<string>:\d+:\d+: error: .*has sharding constraints, which rematc writes for Shardy",
    "GSPMD in text": r"<stablehlo>:\d+:\d+: error: .*mhlo.sharding = .*, which is written for XLA's older partitioner",
    "types in from_jax": r"<string>:\d+:\d+: error: JAX's 'reshard' gives a type that says how its arrays lie",
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_cannot_be_kept_is_refused(name: str) -> None:
    message = said()["refused"][name]
    assert message is not None
    assert re.search(REFUSALS[name], message), message
