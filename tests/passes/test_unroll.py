"""Loops that take all of their steps at once, as these steps."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

import rematc
import rematc.jax
from rematc.compiler.api.text import parse
from rematc.ir.core import Graph
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.scan.op import Scan
from rematc.ir.traversal import all_equations
from rematc.ir.verifier import verify
from rematc.passes.unroll import Unroll
from tests.support.random_graphs import arguments_for, graphs, same_bits

LOOP = """graph @f(%w: f32[2], %c: f32[2], %xs: f32[3,2]) -> (f32[2], f32[3,2]) {{
  %0: f32[2], %1: f32[3,2] = scan %w, %c, %xs {{
      body=graph @step(%w: f32[2], %c: f32[2], %x: f32[2]) -> (f32[2], f32[2]) {{
        %0: f32[2] = multiply %w, %c
        %1: f32[2] = add %0, %x
        return %1, %0
      }},
      length=3, consts=1, carry=1, is_reversed={reverse}, unroll={unroll}, snapshots={snapshots}}}
  return %0, %1
}}"""


def loop(reverse: bool = False, unroll: int = 3, snapshots: int = 0) -> Graph:
    return parse(LOOP.format(reverse=str(reverse).lower(), unroll=unroll, snapshots=snapshots))


def count(graph: Graph, op: str) -> int:
    return sum(eqn.op.name == op for eqn in all_equations(graph))


@pytest.mark.parametrize("reverse", [False, True], ids=["forwards", "backwards"])
def test_steps_stand_in_the_place_of_a_loop_of_one_round(reverse: bool) -> None:
    before = loop(reverse)
    after = Unroll().run(before)
    verify(after)
    assert (count(after, "scan"), count(after, "multiply"), count(after, "concatenate")) == (0, 3, 1)
    arguments = arguments_for(before, special=0.0)
    assert same_bits(evaluate(before, arguments), evaluate(after, arguments))


@pytest.mark.parametrize("graph", [loop(unroll=1), loop(unroll=3, snapshots=2)], ids=["a loop", "snapshots"])
def test_other_loops_stay(graph: Graph) -> None:
    assert Unroll().run(graph) is graph


@given(graphs(regions=3))
def test_meaning_is_preserved(graph: Graph) -> None:
    after = Unroll().run(graph)
    verify(after)
    loops = [eqn.op for eqn in all_equations(after) if isinstance(eqn.op, Scan)]
    assert all(op.snapshots for op in loops if op.is_unrolled)
    arguments = arguments_for(graph)
    assert same_bits(evaluate(after, arguments), evaluate(graph, arguments))


def temporary_bytes(step: Any) -> int:
    """Of a jitted function, as XLA says."""
    return int(step.lower(*ARGUMENTS).compile().memory_analysis().temp_size_in_bytes)


def layers(weights: Any, x: Any, unroll: int | bool) -> Any:
    last, _ = jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, weights, unroll=unroll)
    return jnp.sum(last**2)


ARGUMENTS = (jnp.ones((6, 64, 64)) / 32, jnp.ones((512, 64)))


@pytest.mark.parametrize("policy", ["nothing", "dots"])
def test_a_policy_cuts_an_unrolled_loop_into_segments_as_layers_in_a_row(policy: str) -> None:
    def in_a_row(weights: Any, x: Any) -> Any:
        for w in weights:
            x = jnp.tanh(x @ w)
        return jnp.sum(x**2)

    taken = []
    for loss in (lambda w, x: layers(w, x, True), in_a_row):
        gradient = rematc.value_and_grad(rematc.from_jax(loss), policy=policy)
        taken.append(rematc.compile(gradient, *ARGUMENTS).memory().temp_bytes)
    assert taken[0] <= 1.02 * taken[1]


def test_a_plan_sees_into_an_unrolled_loop() -> None:
    def step(weights: Any, x: Any) -> Any:
        value, gradient = jax.value_and_grad(layers)(weights, x, True)
        return weights - 0.1 * gradient, value

    budget = int(0.7 * temporary_bytes(jax.jit(step)))
    planned = rematc.jax.jit(step, budget=budget)
    assert temporary_bytes(planned) <= budget
    for one, other in zip(planned(*ARGUMENTS), step(*ARGUMENTS), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
