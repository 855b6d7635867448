"""Loops over bfloat16 stacks read and write their bits as integers where XLA:CPU would have them in 32 bits."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rematc
from rematc.ir.core import Graph
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.conversion import BitcastConvert
from rematc.ir.ops.scan.op import Scan
from rematc.ir.traversal import all_equations
from rematc.ir.types import BF16, U16
from rematc.ir.verifier import verify
from rematc.lowering.module import stablehlo_text
from rematc.lowering.pipeline import run_passes
from rematc.lowering.target import Target
from rematc.passes.legalize.integer_stacks import IntegerStacks

STEPS, ROWS, WIDTH = 5, 6, 4
RANDOM = np.random.default_rng(0)
W = jnp.asarray(RANDOM.normal(size=(STEPS, WIDTH, WIDTH)), jnp.bfloat16)
X = jnp.asarray(RANDOM.normal(size=(ROWS, WIDTH)), jnp.bfloat16)


def layer(x: Any, w: Any) -> Any:
    return jnp.tanh(x @ w), None


def loss(w: Any, x: Any) -> Any:
    return jnp.sum(jax.lax.scan(layer, x, w)[0].astype(jnp.float32) ** 2)


def nested(w: Any, x: Any) -> Any:
    """A loop in each step, over stacks that the step is given and that it gives."""

    def outer(x: Any, w: Any) -> Any:
        rows = jnp.stack([w, w + 1])
        last, states = jax.lax.scan(lambda x, w: (jnp.sin(x @ w), x), x, rows)
        return last, states * 2

    last, states = jax.lax.scan(outer, x, w)
    return jnp.sum(last.astype(jnp.float32)) + jnp.sum(states.astype(jnp.float32) ** 2)


def returned(w: Any, x: Any) -> Any:
    """A stack that the program gives, one that it was given, and one that something else reads in between."""
    last, states = jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), x), x, w, reverse=True)
    again = jax.lax.scan(lambda x, row: (x + row[0] * 2, row[1]), x, (states, states[::-1]))
    return jnp.sum(last.astype(jnp.float32)), states, again


def graph_of(function: Any, policy: str | None) -> Graph:
    imported = rematc.from_jax(function)
    if function is not returned:
        imported = rematc.value_and_grad(imported, (0, 1), policy=policy)
    return run_passes(rematc.trace(imported, W, X)).graph


def rows_of(graph: Graph) -> set[Any]:
    """The element types of the rows of all stacks."""
    loops = [eqn.op for eqn in all_equations(graph) if isinstance(eqn.op, Scan)]
    return {
        type.dtype
        for op in loops
        for type in (*op.parts(op.body.param_types).xs, *op.body.result_types[op.carry :])
        if type.dtype.bits == BF16.bits
    }


@pytest.mark.parametrize("function", [loss, nested, returned])
@pytest.mark.parametrize("policy", [None, "nothing", "dots"])
def test_the_same_bits_are_computed_of_integers(function: Any, policy: str | None) -> None:
    graph = graph_of(function, policy)
    assert BF16 in rows_of(graph)
    stacks = IntegerStacks()
    instead = stacks.graph(graph)
    verify(instead)
    assert rows_of(instead) == {U16}
    assert (instead.param_types, instead.result_types) == (graph.param_types, graph.result_types)
    assert all(new.type.dtype is U16 and old.type.dtype is BF16 for new, old in stacks.origins.items())
    arguments = [np.asarray(W), np.asarray(X)]
    for found, expected in zip(evaluate(instead, arguments), evaluate(graph, arguments), strict=True):
        assert np.asarray(found).tobytes() == np.asarray(expected).tobytes()


def test_what_is_saved_for_the_backward_pass_is_nowhere_converted_back() -> None:
    """From the forward loop to the backward one, barriers in between, it is integers alone."""
    graph = IntegerStacks().graph(graph_of(loss, "dots"))
    backs = [eqn for eqn in graph.equations if isinstance(eqn.op, BitcastConvert) and eqn.op.dtype is BF16]
    assert {value for eqn in backs for value in eqn.results} <= {*graph.results}, "of gradients alone"
    assert any(value.type.dtype is U16 for eqn in graph.equations if eqn.op.name == "scan" for value in eqn.results)


def test_other_graphs_are_left() -> None:
    def function(w: Any, x: Any) -> Any:
        return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), x), x, w)

    args = W.astype(jnp.float32), X.astype(jnp.float32)
    graph = run_passes(rematc.trace(rematc.from_jax(function), *args)).graph
    assert IntegerStacks().graph(graph) is graph


@pytest.mark.parametrize(("platform", "jaxlib"), [("cpu", (0, 10, 2)), ("cpu", (0, 12, 0)), ("cuda", (0, 10, 2))])
def test_it_is_done_where_rows_would_be_converted(platform: str, jaxlib: tuple[int, ...]) -> None:
    target = Target(platform, jaxlib=jaxlib)
    text = stablehlo_text(graph_of(loss, "dots"), target)
    is_converted = platform == "cpu" and jaxlib < (0, 12)
    assert (f"tensor<{STEPS}x{ROWS}x{WIDTH}xui16>" in text) == is_converted


@pytest.mark.parametrize("policy", [None, "dots"])
def test_stacks_take_16_bits(policy: str | None) -> None:
    steps, rows, width = 8, 2048, 128
    shape: Any = jax.ShapeDtypeStruct
    w, x = shape((steps, width, width), jnp.bfloat16), shape((rows, width), jnp.bfloat16)
    compiled = rematc.compile(rematc.value_and_grad(rematc.from_jax(loss), policy=policy), w, x)
    states_and_outputs = 2 * steps * rows * width * 2
    assert compiled.memory().temp_bytes < 1.6 * states_and_outputs, (
        "with copies of them in 32 bits it takes thrice that"
    )
