"""Slices of programs on several devices: of what each has, with JAX beside it.

Eight devices of the host's have to be asked for before JAX starts, so one other process runs all of it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.support.many_devices import ROOT, said_by

PROGRAM = r"""
import json, sys
import jax, jax.numpy as jnp, numpy as np, rematc, rematc.jax as rjax
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
sys.path.insert(0, "ROOT")
from benchmarks.meshes import collectives

mesh = jax.make_mesh((2, 4), ("d", "t"), axis_types=(AxisType.Auto,) * 2)
random = np.random.default_rng(0)
WIDTH, VOCABULARY, TOKENS, BATCH = 16, 1024, 32, 16
head = random.normal(0, 0.3, (WIDTH, VOCABULARY)).astype(np.float32)
table = random.normal(0, 1, (VOCABULARY, WIDTH)).astype(np.float32)
layers = random.normal(0, 0.3, (3, WIDTH, WIDTH)).astype(np.float32)
x = random.normal(0, 1, (BATCH, TOKENS, WIDTH)).astype(np.float32)
labels = random.integers(0, VOCABULARY, (BATCH, TOKENS))

def entropy(logits, labels):
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1))

def plain(params, x, labels):
    return entropy(x @ params["head"], labels)

def constrained(params, x, labels):
    logits = lax.with_sharding_constraint(x @ params["head"], NamedSharding(mesh, P("d", None, "t")))
    return entropy(logits, labels)

def embedded(params, x, labels):
    return entropy((x + params["table"][labels]) @ params["head"], labels)

def narrow(params, x, labels):
    logits = x.astype(jnp.bfloat16) @ params["head"].astype(jnp.bfloat16)
    return entropy(logits.astype(jnp.float32), labels)

def flat(params, x, labels):
    return entropy(x.reshape(-1, WIDTH) @ params["head"], labels.reshape(-1))

def dropped(params, x, labels):
    logits = x @ params["head"]
    mask = jax.random.bernoulli(jax.random.key(3), 0.9, logits.shape)
    return entropy(jnp.where(mask, logits, 0), labels)

def normalized(params, x, labels):
    logits = x @ params["head"]
    mean = logits.mean((0, 1))
    return entropy((logits - mean) * lax.rsqrt(((logits - mean) ** 2).mean((0, 1)) + 1e-5), labels)

def attend(x, w):
    scores = jax.nn.softmax(jnp.einsum("bth,bsh->bts", x @ w, x))
    return x + jnp.tanh(scores @ x), None

def scanned(params, x, labels):
    return entropy(lax.scan(attend, x, params["layers"])[0] @ params["head"], labels)

def unrolled(params, x, labels):
    for w in params["layers"]:
        x, _ = attend(x, w)
    return entropy(x @ params["head"], labels)

ALL = P(("d", "t"))

def beside(params, x, labels):
    def ring(x, w):
        return x + lax.ppermute(jnp.tanh(x @ w), "t", [(i, (i + 1) % 4) for i in range(4)])
    mapped = jax.checkpoint(jax.shard_map(ring, mesh=mesh, in_specs=(ALL, P()), out_specs=ALL))
    for w in params["layers"]:
        x = mapped(x, w)
    return entropy(x @ params["head"], labels)

whole = {"head": P(), "table": P(), "layers": P()}
# By name: (loss, how its weights are spread, how its rows are).
CASES = {
    "data": (plain, whole, ALL),
    "sharded": (plain, {**whole, "head": P(("d", "t"))}, ALL),
    "tensor": (plain, {**whole, "head": P(None, "t")}, P("d")),
    "rows of a table": (embedded, {**whole, "table": P("t"), "head": P(None, "t")}, P("d")),
    "contracted": (plain, {**whole, "head": P("t")}, P("d", None, "t")),
    "constrained": (constrained, whole, P("d")),
    "narrow": (narrow, {**whole, "head": P("t")}, P("d")),
    "flat": (flat, whole, ALL),
    "dropped": (dropped, whole, P("d")),
    "normalized": (normalized, whole, P("d")),
    "scanned": (scanned, {**whole, "layers": P(None, "t")}, P("d")),
    "unrolled": (unrolled, {**whole, "layers": P(None, "t")}, P("d")),
    "beside": (beside, whole, ALL),
}

def put(value, spec):
    return jax.device_put(value, NamedSharding(mesh, spec))

def held(arrays):
    return sum(one.addressable_shards[0].data.nbytes for one in jax.tree.leaves(arrays))

def compared(found, expected):
    rows = zip(jax.tree.leaves(found), jax.tree.leaves(expected))
    return max(float(jnp.max(jnp.abs(a - b)) / (jnp.max(jnp.abs(b)) + 1e-9)) for a, b in rows)

said = {}
for name, (loss, specs, rows) in CASES.items():
    params = {key: put(value, specs[key]) for key, value in (("head", head), ("table", table), ("layers", layers))}
    given = params, put(x, rows), put(labels, P(rows[0]))
    expected = jax.jit(jax.value_and_grad(loss))(*given)
    row = {}
    for slices in ("off", 4):
        compiled = rematc.compile(rematc.value_and_grad(rematc.from_jax(loss), slices=slices), *given)
        times, sent = collectives(compiled.hlo_optimized())
        found = compiled(*given)
        row[slices] = {
            "memory": compiled.memory().temp_bytes, "times": times, "sent": sent,
            "off": compared(found, expected), "held": held(found) / held(expected),
        }
    said[name] = row

step = jax.value_and_grad(unrolled)
params = {key: put(value, P()) for key, value in (("head", head), ("table", table), ("layers", layers))}
given = params, put(x, ALL), put(labels, ALL)
by_jax = jax.jit(step).lower(*given).compile().memory_analysis().temp_size_in_bytes
for name, given_slices in (("budget", "needed"), ("budget off", "off")):
    planned = rjax.jit(step, budget=by_jax // 4, slices=given_slices)
    try:
        compiled = planned.lower(*given).compile()
        said[name] = {
            "memory": compiled.memory_analysis().temp_size_in_bytes / by_jax,
            "off": compared(compiled(*given), step(*given)),
        }
    except Exception as error:
        said[name] = str(error)

part = rjax.jit(step, budget=by_jax // 4, slices=4)
try:
    jax.jit(lambda *given: part(*given)).lower(*given)
except Exception as error:
    said["inside"] = str(error)

scanned_step = rematc.value_and_grad(rematc.from_jax(scanned))
options = {"measure": False, "points": 2, "policies": ("nothing",)}
curve = rematc.pareto(scanned_step, *given, slices=4, **options)
alone = rematc.pareto(scanned_step, *jax.tree.map(np.asarray, given), **options)
said["flops"] = [curve.flops / alone.flops, *[point.extra_flops / curve.flops for point in curve.points]]

def own(head, x, labels):
    return lax.pmean(plain({"head": head}, x, labels), ("d", "t"))
mapped = jax.shard_map(own, mesh=mesh, in_specs=(P(), ALL, ALL), out_specs=P())
given = put(head, P()), put(x, ALL), put(labels, ALL)
for slices in ("off", 4):
    compiled = rematc.compile(rematc.value_and_grad(rematc.from_jax(mapped), slices=slices), *given)
    said[f"mapped {slices}"] = {
        "memory": compiled.memory().temp_bytes,
        "times": collectives(compiled.hlo_optimized())[0],
        "off": compared(compiled(*given), jax.value_and_grad(mapped)(*given)),
    }

def rows_alone(head, x, labels):
    return lax.pmean(plain({"head": head}, x, labels), "d")
partly = jax.shard_map(rows_alone, mesh=mesh, in_specs=(P(), P("d"), P("d")), out_specs=P(), axis_names={"d"})
given = put(head, P(None, "t")), put(x, P("d")), put(labels, P("d"))
for slices in ("off", 4):
    compiled = rematc.compile(rematc.value_and_grad(rematc.from_jax(partly), slices=slices), *given)
    said[f"partly {slices}"] = {
        "memory": compiled.memory().temp_bytes,
        "off": compared(compiled(*given), jax.jit(jax.value_and_grad(partly))(*given)),
    }
json.dump(said, sys.stdout)
"""

NAMES = (
    *("data", "sharded", "tensor", "rows of a table", "contracted", "constrained", "narrow", "flat", "dropped"),
    *("normalized", "scanned", "unrolled", "beside"),
)


@cache
def said() -> dict[str, Any]:
    return said_by(PROGRAM.replace("ROOT", str(ROOT)), 8)


@pytest.mark.parametrize("name", NAMES)
def test_slices_are_of_what_each_device_has(name: str) -> None:
    """Values are JAX's, as spread as in it; of one device's memory slices leave less, and sums are sent once."""
    whole, cut = said()[name]["off"], said()[name]["4"]
    assert cut["off"] <= max(2 * whole["off"], 2e-6 if name != "narrow" else 1e-2)
    assert cut["held"] == whole["held"] == 1
    assert cut["memory"] < whole["memory"] * 0.8
    assert cut["sent"] <= whole["sent"] * 1.01 + 64 * 1024


def test_a_budget_takes_slices_of_what_each_device_has() -> None:
    assert said()["budget"]["memory"] <= 1 / 4
    assert said()["budget"]["off"] < 1e-5
    assert "a plan is predicted to fit: add that" in said()["budget off"]


def test_floating_point_operations_are_those_of_one_device() -> None:
    """In loops, too, and in slices, which are of what one has."""
    whole, *more = said()["flops"]
    assert 1 / 8 <= whole < 1.1 / 8
    assert len(more) > 2
    assert all(0 <= each < 1 for each in more)


def test_a_program_in_shard_map_is_cut_as_it_is() -> None:
    whole, cut = said()["mapped off"], said()["mapped 4"]
    assert cut["memory"] < whole["memory"] / 2
    assert (cut["times"], cut["off"] < 2e-6) == (whole["times"], True)


def test_a_program_in_shard_map_over_some_axes_is_cut_inside_alone() -> None:
    """Along the others XLA spreads what each device computes, and nobody says how."""
    whole, cut = said()["partly off"], said()["partly 4"]
    assert cut["memory"] < whole["memory"]
    assert cut["off"] < 2e-6


def test_where_nobody_knows_how_arrays_lie_there_are_no_slices() -> None:
    assert "runs in no slices" in said()["inside"]
