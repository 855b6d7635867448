"""How values are spread over devices is what Shardy says, in loops and branches, too; budgets count what one holds."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.many_devices import said_by

PROGRAM = """
import json
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import rematc
from rematc.lowering.pipeline import BEFORE_PLAN, run_passes
from rematc.lowering.propagation import shards_of
from rematc.ir.traversal import all_equations

mesh = Mesh(np.reshape(jax.devices(), (4, 2)), ("data", "model"))

def struct(*sizes, at=None):
    return jax.ShapeDtypeStruct(sizes, "float32", sharding=None if at is None else NamedSharding(mesh, at))

def shapes_of(function, *args):
    '''For each op the types that it gives, and what one device holds of them.'''
    lowered = rematc.lower(rematc.from_jax(function), *args)
    graph = run_passes(lowered.traced.graph, BEFORE_PLAN).graph
    shards = shards_of(graph, lowered.target, lowered.shardings)
    shards.follow(graph)
    found = {}
    for eqn in all_equations(graph):
        for value in eqn.results:
            found.setdefault(eqn.op.name, []).append([str(value.type), str(shards.type(value))])
    return found

def block(x, up, down):
    return jnp.tanh(x @ up) @ down

def layers(x, ups, downs):
    def step(carry, weights):
        value = jax.lax.cond(carry[0, 0] > 0, lambda y: jnp.exp(y), lambda y: jnp.sin(y), block(carry, *weights))
        return value, None
    return jax.lax.scan(step, x, (ups, downs))[0]

def counted(x):
    def step(state, row):
        return state + row[:, None] * jnp.ones(32), None
    return jax.lax.scan(step, jnp.zeros((64, 32)), x.T)[0]

def masked(x):
    above = jnp.arange(64)[:, None] > jnp.arange(32)  # as the rows of x, where the loop reads it
    both = jnp.arange(32)[:, None] > jnp.arange(32)
    below = jnp.arange(64)[:, None] < jnp.arange(32)
    alone = jnp.arange(64)[:, None] != jnp.arange(32)
    x = x + below.sum()
    def step(x, _):
        scores = jnp.where(both, x[:, :, None] * x[:, None], 0)
        return jnp.where(above, scores.sum(1), jnp.where(below & alone, x, 1)), None
    return jax.lax.scan(step, x, None, 3)[0] + above.sum()

def constrained(x, up, down):
    x = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P("data")))
    return block(x, up, down)

def loss(weights, x):
    for up, down in weights:
        x = x + block(x, up, down)
    return jnp.sum(x * x)

def time_of(rows, budget, at):
    weights = [(struct(128, 512, at=at and P()), struct(512, 128, at=at and P()))] * 6
    found = rematc.compile(rematc.value_and_grad(rematc.from_jax(loss)), weights, struct(rows, 128, at=at),
                           budget=budget)
    report = found.lowered.budget
    return [report.plan.time, report.plan.peak, found.memory().temp_bytes <= report.budget]

print(json.dumps({
    "block": shapes_of(block, struct(64, 32, at=P("data")), struct(32, 128, at=P(None, "model")),
                       struct(128, 32, at=P("model"))),
    "layers": shapes_of(layers, struct(64, 32, at=P("data")), struct(3, 32, 128, at=P(None, None, "model")),
                        struct(3, 128, 32, at=P(None, "model"))),
    "counted": shapes_of(counted, struct(64, 8, at=P("data"))),
    "masked": shapes_of(masked, struct(64, 32, at=P("data"))),
    "constrained": shapes_of(constrained, struct(64, 32), struct(32, 128), struct(128, 32)),
    "complex": shapes_of(lambda x, y: jnp.sin(x) * y, jax.ShapeDtypeStruct(
        (64, 32), "complex64", sharding=NamedSharding(mesh, P("data"))), struct(64, 32, at=P(None, "model"))),
    "odd": shapes_of(jnp.tanh, struct(64, 32, at=P(("data", "model"), None))),
    "plans": [[time_of(8192, budget, P(("data", "model"))), time_of(1024, budget, None)] for budget in ("40%", "70%")],
}))
"""


@pytest.fixture(scope="module")
def said() -> dict[str, Any]:
    return said_by(PROGRAM, 8)


def test_rows_and_columns(said: dict[str, Any]) -> None:
    assert said["block"]["tanh"] == [["f32[64,128]", "f32[16,64]"]]
    assert said["block"]["dot_general"] == [["f32[64,128]", "f32[16,64]"], ["f32[64,32]", "f32[16,32]"]]


def test_in_loops_and_branches(said: dict[str, Any]) -> None:
    assert said["layers"]["tanh"] == [["f32[64,128]", "f32[16,64]"]]
    assert said["layers"]["exponential"] == said["layers"]["sine"] == [["f32[64,32]", "f32[16,32]"]]


def test_what_a_loop_begins_with_is_spread_as_what_it_ends_with(said: dict[str, Any]) -> None:
    assert ["f32[64,32]", "f32[16,32]"] in said["counted"]["scan"]
    assert ["f32[64,32]", "f32[16,32]"] in said["counted"]["broadcast_in_dim"]


def test_masks_are_spread_as_what_reads_them(said: dict[str, Any]) -> None:
    """They depend on no argument, so that no partitioner says it: it makes them where they are read."""
    made = said["masked"]
    assert [local for type, local in made["broadcast_in_dim"] if type == "bool[64,32,32]"] == ["bool[16,32,32]"]
    found = sorted([local for type, local in made["compare"] if type == "bool[64,32]"])
    assert found == ["bool[16,32]", "bool[64,32]", "bool[64,32]"], "two are read by sums of all of them, too"


def test_a_constraint_spreads_what_arguments_do_not(said: dict[str, Any]) -> None:
    assert said["constrained"]["tanh"] == [["f32[64,128]", "f32[16,128]"]]


def test_complex_arguments(said: dict[str, Any]) -> None:
    assert said["complex"]["sine"] == [["c64[64,32]", "c64[16,16]"]]


def test_along_two_axes(said: dict[str, Any]) -> None:
    assert said["odd"]["tanh"] == [["f32[64,32]", "f32[8,32]"]]


def test_a_plan_for_eight_devices_is_that_for_one_with_an_eighth_of_the_rows(said: dict[str, Any]) -> None:
    for (time, peak, is_within), (of_one, peak_of_one, _) in said["plans"]:
        assert is_within
        assert time <= 1.25 * of_one, "whole arrays gave the smallest plan, at twice the time; weights' sums are sent"
        assert abs(peak - peak_of_one) <= 0.25 * peak_of_one
