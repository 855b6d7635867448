"""Loops whose steps repeat a number: the same bits, no array of it in memory. `cases/simplify.ir` shows the text."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rematc
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.scan.op import Scan
from rematc.ir.verifier import verify
from rematc.lowering.pipeline import BEFORE_PLAN, run_passes
from rematc.passes.simplify import Simplify

STEPS, ROWS, WIDTH = 4, 128, 8
RANDOM = np.random.default_rng(0)
W = RANDOM.normal(size=(STEPS, WIDTH, WIDTH)).astype(np.float32)
X = RANDOM.normal(size=(ROWS, WIDTH)).astype(np.float32)


def attention(w: Any, x: Any) -> Any:
    """Layers of causal attention: JAX takes what is the same in all steps out of the differentiated loop."""

    def layer(x: Any, w: Any) -> Any:
        scores = x @ w @ x.T
        earlier = jnp.tril(jnp.ones(scores.shape, bool))
        return x + jax.nn.softmax(jnp.where(earlier, scores, -1e9)) @ x, None

    return jnp.sum(jax.lax.scan(layer, x, w)[0] ** 2)


def shared(w: Any, x: Any) -> Any:
    """An array of one number, read by a loop and by what is around it, and in a loop that ends by itself."""
    ones = jnp.full((ROWS, WIDTH), 0.5, jnp.float32)
    last: Any = jax.lax.scan(lambda x, w: (jnp.tanh(x @ w) * ones, x * ones), x, w)
    found: Any = jax.lax.while_loop(lambda x: jnp.sum(x * ones) < 50, lambda x: x + ones, jnp.abs(last[0]))
    return found * ones, last[1]


def consts(graph: Any) -> int:
    """Bytes of the largest array that a loop is given for all of its steps."""
    loops = [eqn for eqn in graph.equations if isinstance(eqn.op, Scan)]
    return max([value.type.bytes for eqn in loops for value in eqn.operands[: eqn.op.consts]], default=0)


@pytest.mark.parametrize("function", [jax.value_and_grad(attention), shared], ids=["attention", "shared"])
def test_the_same_bits_are_computed(function: Any) -> None:
    graph = run_passes(rematc.trace(rematc.from_jax(function), W, X), "inline").graph
    instead = Simplify().run(graph)
    verify(instead)
    for found, expected in zip(evaluate(instead, [W, X]), evaluate(graph, [W, X]), strict=True):
        assert np.asarray(found).tobytes() == np.asarray(expected).tobytes()


def test_plans_hold_no_array_of_one_number_for_a_loop() -> None:
    graph = rematc.trace(rematc.from_jax(jax.value_and_grad(attention)), W, X)
    assert consts(run_passes(graph, "inline").graph) == 4 * ROWS * ROWS, "what hides the later rows"
    planned = run_passes(graph, BEFORE_PLAN).graph
    assert consts(planned) <= ROWS * ROWS, "the rows that are hidden, a byte each"


def test_what_xla_takes_is_predicted() -> None:
    step = rematc.from_jax(jax.value_and_grad(attention))
    x = np.zeros((1024, WIDTH), np.float32)
    lowered = rematc.lower(step, W, x)
    assert lowered.predicted_peak() == pytest.approx(lowered.compile().memory().temp_bytes, rel=0.05)
