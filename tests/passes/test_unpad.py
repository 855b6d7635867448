"""Products of what is padded with zeros, without these."""

from __future__ import annotations

import random
from typing import Any

import jax
import jax.numpy as jnp
import jaxlib.version
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rematc
import rematc.jax
from rematc.ir.builder import Builder
from rematc.ir.core import Graph
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.shape import Pad
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.ir.traversal import all_equations
from rematc.ir.types import F32, F64, I32, DType, TensorType
from rematc.ir.values import Array, Value
from rematc.ir.verifier import verify
from rematc.passes.unpad import Unpad
from tests.support.random_graphs import arguments_for, graphs, same_bits
from tests.support.samples import Tolerance, assert_close


class Drawn:
    """One product or two of what is padded along one dimension, which may be converted and go through a barrier."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.builder = Builder("f")

    def graph(self) -> Graph:
        b, draw = self.builder, self.draw
        dtype = draw.choice((F32, F32, I32))
        inner = tuple(draw.randint(1, 4) for _ in range(draw.randint(1, 3)))
        along, low = draw.randrange(len(inner)), draw.randint(0, 2)
        high = draw.randint(0 if low else 1, 3)
        sizes = [[size if d == along else 0 for d in range(len(inner))] for size in (low, high)]
        padded = b.pad(b.parameter(TensorType(dtype, inner)), b.zeros(TensorType(dtype, ())), *sizes)
        if dtype is F32 and draw.random() < 0.3:
            padded = b.convert(padded, F64)
        if draw.random() < 0.3:
            padded, _ = b.emit(OptimizationBarrier(), padded, b.parameter(TensorType(I32, ())))
        results = [self.product(padded) for _ in range(draw.randint(1, 2))]
        if draw.random() < 0.3:
            results.append(b.reduce_sum(padded, (along,)))
        if draw.random() < 0.1:
            results.append(b.sine(padded) if padded.type.dtype.is_float else padded)
        return b.build(*results)

    def product(self, x: Value) -> Value:
        """Of it and another factor, on one side or the other, in batches or not."""
        draw = self.draw
        order = draw.sample(range(x.type.rank), x.type.rank)
        cuts = sorted(draw.randint(0, x.type.rank) for _ in range(2))
        contract, batch = order[: cuts[0]], order[cuts[0] : cuts[1]]
        paired = [*contract, *batch]
        sizes = [x.type.shape[d] for d in paired] + [draw.randint(1, 2) for _ in range(draw.randint(0, 2))]
        places = draw.sample(range(len(sizes)), len(sizes))
        shape = [sizes[places.index(d)] for d in range(len(sizes))]
        y = self.builder.parameter(TensorType(x.type.dtype, tuple(shape)))
        mine = (tuple(contract), tuple(batch))
        other = (tuple(places[: len(contract)]), tuple(places[len(contract) : len(paired)]))
        first, second = ((x, mine), (y, other)) if draw.random() < 0.5 else ((y, other), (x, mine))
        return self.builder.dot_general(first[0], second[0], (first[1][0], second[1][0]), (first[1][1], second[1][1]))


def whole_numbers(type: TensorType, seed: int) -> Array:
    """Small ones, whose sums no order rounds, and now and then what is not finite."""
    generator = np.random.default_rng(seed)
    found = generator.integers(-3, 4, type.shape).astype(type.dtype.numpy)
    if type.dtype.is_float:
        rare = generator.choice(np.array([0, np.inf, -np.inf, np.nan]), type.shape, p=[0.9, 0.03, 0.03, 0.04])
        found = found + rare.astype(type.dtype.numpy)
    return np.asarray(found)


@given(st.integers(0, 2**32))
def test_products_are_the_same_of_what_is_not_finite_too(seed: int) -> None:
    graph = Drawn(seed).graph()
    without = Unpad().run(graph)
    verify(without)
    arguments = [whole_numbers(value.type, seed + place) for place, value in enumerate(graph.params)]
    with np.errstate(all="ignore"):
        for found, wanted in zip(evaluate(without, arguments), evaluate(graph, arguments), strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_many_of_the_drawn_graphs_change() -> None:
    drawn = [Drawn(seed).graph() for seed in range(300)]
    changed = [graph for graph in drawn if Unpad().run(graph) is not graph]
    assert len(changed) > 40
    kinds = {(eqn.op.name, eqn.operands[0].type.dtype) for graph in changed for eqn in graph.equations if eqn.operands}
    assert {("dot_general", F32), ("dot_general", F64), ("dot_general", I32), ("optimization_barrier", F32)} <= kinds


@given(graphs(regions=2))
def test_any_graph_keeps_its_meaning(graph: Graph) -> None:
    arguments = arguments_for(graph, special=0.0)
    without = Unpad().run(graph)
    verify(without)
    if without is not graph:
        for found, wanted in zip(evaluate(without, arguments), evaluate(graph, arguments), strict=True):
            assert_close(found, wanted, Tolerance(1e-2, 0, "other sums"))
    else:
        assert same_bits(evaluate(without, arguments), evaluate(graph, arguments))


def product_of(low: int, size: int, reader: str = "", dtype: DType = F32) -> Graph:
    b = Builder("f")
    x, y = b.parameter(TensorType(dtype, (8, 6))), b.parameter(TensorType(dtype, (6, size)))
    padded = b.pad(
        x, b.zeros(TensorType(dtype, ())) if reader != "one" else b.full(TensorType(dtype, ()), 1), (low, 0), (1, 0)
    )
    results = [b.dot_general(padded, y, ((1,), (0,)))]
    if reader == "sine":
        results.append(b.sine(padded))
    if reader == "result":
        results.append(padded)
    return b.build(*results)


@pytest.mark.parametrize(
    ("low", "size", "reader"),
    [(0, 2, "sine"), (0, 2, "result"), (-1, 2, ""), (0, 200, ""), (0, 2, "one")],
    ids=["read otherwise", "a result", "cut off", "a larger factor", "padded with ones"],
)
def test_what_has_to_be_padded_stays(low: int, size: int, reader: str) -> None:
    assert Unpad().run(product_of(0, 2)) is not product_of(0, 2)
    graph = product_of(low, size, reader)
    assert Unpad().run(graph) is graph


VOCABULARY, ROWS, LENGTH, WIDTH = 2048, 4, 64, 32


def loss_of(head: str) -> Any:
    """A language model of one layer, of whose logits the last token's are not read."""

    def loss(w: Any, e: Any, tokens: Any) -> Any:
        hidden = jnp.tanh(e[tokens] @ w)
        logits = hidden @ e.T if head != "half" else (hidden @ e.T).astype(jnp.float16)
        logits = logits[:, :-1].astype(jnp.float32)
        labels = jnp.take_along_axis(logits, tokens[:, 1:, None], -1)[..., 0]
        return jnp.mean(jax.nn.logsumexp(logits, -1) - labels)

    return loss


W = np.random.default_rng(0).normal(size=(WIDTH, WIDTH)).astype(np.float32) / 8
E = np.random.default_rng(1).normal(size=(VOCABULARY, WIDTH)).astype(np.float32) / 8
TOKENS = np.random.default_rng(2).integers(0, VOCABULARY, (ROWS, LENGTH)).astype(np.int32)
LOGITS = ROWS * (LENGTH - 1) * VOCABULARY * 4


@pytest.mark.parametrize("head", ["float", "half"])
@pytest.mark.parametrize("policy", [None, "nothing", "dots"])
def test_logits_of_all_tokens_but_the_last_are_all_there_is(head: str, policy: str | None) -> None:
    loss = loss_of(head)
    lowered = rematc.lower(rematc.value_and_grad(rematc.from_jax(loss), (0, 1), policy=policy), W, E, TOKENS)
    whole = (ROWS, LENGTH, VOCABULARY)
    assert not [eqn for eqn in all_equations(lowered.graph) if whole in [value.type.shape for value in eqn.results]]
    assert not any(isinstance(eqn.op, Pad) for eqn in lowered.graph.equations)
    ours, wanted = lowered.compile()(W, E, TOKENS), jax.jit(jax.value_and_grad(loss, (0, 1)))(W, E, TOKENS)
    scale = 1e-5 if head == "float" else 1e-3
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=scale, atol=scale), ours, wanted)


def test_a_step_takes_its_logits_once() -> None:
    def step(w: Any, e: Any, tokens: Any) -> Any:
        value, (dw, de) = jax.value_and_grad(loss_of("float"), (0, 1))(w, e, tokens)
        return value, w - dw, e - de

    arrays = 1.6 if jaxlib.version.__version_info__ >= (0, 12) else 2.2  # JAX's takes three of them
    jitted: Any = rematc.jax.jit(step, budget=int(arrays * LOGITS), donate_argnums=(0, 1))
    planned = jitted.report(W, E, TOKENS).budget
    assert LOGITS <= planned.measured <= arrays * LOGITS
    wanted = jax.jit(step)(W, E, TOKENS)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), jitted(W, E, TOKENS), wanted)


def test_what_is_not_finite_where_nothing_is_read_is_found_in_gradients() -> None:
    """As in JAX: the last token's hidden state is multiplied by zero."""
    loss = loss_of("float")
    e = E.copy()
    e[TOKENS[0, -1]] = np.inf
    ours: Any = rematc.grad(rematc.from_jax(loss), (0, 1))(W, e, TOKENS)
    wanted: Any = jax.jit(jax.grad(loss, (0, 1)))(W, e, TOKENS)
    assert np.isnan(wanted[1]).any()
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(np.isnan(a), np.isnan(b)), ours, wanted)
