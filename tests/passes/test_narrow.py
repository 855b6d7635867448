"""Narrowing on random graphs; `cases/narrow.ir` shows what becomes of text."""

from __future__ import annotations

import random
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rematc
from rematc.ir.builder import Builder
from rematc.ir.core import Graph
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.shape import Pad
from rematc.ir.types import F32, TensorType
from rematc.ir.values import Value
from rematc.ir.verifier import verify
from rematc.passes.accounting import flat_equations, total_work
from rematc.passes.narrow import Narrow
from tests.support.random_graphs import arguments_for, graphs, same_bits


class _Drawn:
    """A graph that joins arrays, computes with them, and takes them apart: some of it is read otherwise, too."""

    def __init__(self, source: random.Random) -> None:
        self._draw = source
        self.builder = Builder("f")

    def graph(self) -> Graph:
        shape = tuple(self._draw.randint(1, 6) for _ in range(self._draw.randint(1, 3)))
        array = self.array(shape, self._draw.randint(1, 6))
        results = self.slices(array)
        if self._draw.random() < 0.2:
            results.append(self.builder.sine(array))
        return self.builder.build(*results)

    def slices(self, x: Value) -> list[Value]:
        """Slices side by side, of which some are missing; now and then two that overlap."""
        dimension = self._draw.randrange(x.type.rank)
        size = x.type.shape[dimension]
        inner = self._draw.sample(range(1, size), self._draw.randint(0, min(3, size - 1)))
        borders = [0, *sorted(inner), size]
        ranges = [each for each in pairwise(borders) if self._draw.random() < 0.8]
        if self._draw.random() < 0.1:
            ranges.append((0, self._draw.randint(1, size)))
        found = []
        for begin, end in ranges:
            start, limit = [0] * x.type.rank, list(x.type.shape)
            start[dimension], limit[dimension] = begin, end
            found.append(self.builder.slice(x, start, limit))
        return found

    def array(self, shape: tuple[int, ...], depth: int) -> Value:
        if depth == 0:
            return self.builder.parameter(TensorType(F32, shape))
        match self._draw.choice(("one", "two", "choose", "repeat", "join", "join", "pad", "pad")):
            case "one":
                return self.builder.sine(self.array(shape, depth - 1))
            case "two":
                x = self.array(shape, depth - 1)
                return self.builder.multiply(x, x if self._draw.random() < 0.3 else self.array(shape, depth - 1))
            case "choose":
                x, y = self.array(shape, depth - 1), self.array(shape, 0)
                return self.builder.select(self.builder.compare(x, y, "GT"), x, y)
            case "repeat":
                kept = sorted(self._draw.sample(range(len(shape)), self._draw.randint(0, len(shape))))
                sizes = tuple(shape[d] if self._draw.random() < 0.7 else 1 for d in kept)
                return self.builder.broadcast_in_dim(self.array(sizes, depth - 1), shape, kept)
            case "join":
                return self._joined(shape, depth)
            case _:
                return self._padded(shape, depth)

    def _joined(self, shape: tuple[int, ...], depth: int) -> Value:
        dimension = self._draw.randrange(len(shape)) if shape else None
        if dimension is None or shape[dimension] < 2:
            return self.array(shape, depth - 1)
        first = self._draw.randint(1, shape[dimension] - 1)
        sizes = (first, shape[dimension] - first)
        parts = [self.array((*shape[:dimension], size, *shape[dimension + 1 :]), depth - 1) for size in sizes]
        return self.builder.concatenate(parts, dimension)

    def _padded(self, shape: tuple[int, ...], depth: int) -> Value:
        low = [self._draw.randint(-1, size - 1) for size in shape]
        high = [self._draw.randint(-1, size - 1 - max(before, 0)) for size, before in zip(shape, low, strict=True)]
        inner = tuple(size - before - after for size, before, after in zip(shape, low, high, strict=True))
        return self.builder.pad(self.array(inner, depth - 1), self.builder.zeros(TensorType(F32, ())), low, high)


@given(st.integers(0, 2**32))
def test_meaning_is_preserved_and_nothing_is_computed_twice(seed: int) -> None:
    graph = _Drawn(random.Random(seed)).graph()
    narrowed = Narrow().run(graph)
    verify(narrowed)
    arguments = arguments_for(graph)
    assert same_bits(evaluate(narrowed, arguments), evaluate(graph, arguments))
    assert total_work(flat_equations(narrowed)).flops <= total_work(flat_equations(graph)).flops


def test_most_of_the_drawn_graphs_change() -> None:
    """The test above is not one of graphs that stay as they are."""
    drawn = [_Drawn(random.Random(seed)).graph() for seed in range(200)]
    changed = sum(Narrow().run(graph) is not graph for graph in drawn)
    assert changed > 60


@given(graphs(regions=2))
def test_meaning_of_any_graph_is_preserved(graph: Graph) -> None:
    narrowed = Narrow().run(graph)
    verify(narrowed)
    arguments = arguments_for(graph)
    assert same_bits(evaluate(narrowed, arguments), evaluate(graph, arguments))


@pytest.mark.parametrize("policy", [None, "nothing"])
def test_the_derivative_of_a_stack_that_is_taken_apart_pads_no_stack(policy: str | None) -> None:
    """Points between which a curve is interpolated, as flows of splines do it."""

    def loss(x, y, weights):  # type: ignore[no-untyped-def]
        points = jnp.stack([jnp.sin(x), jnp.cos(y)], -1)
        steps = weights * (points[1:] - points[:-1])
        return jnp.sum(steps[:, 0] * jnp.exp(steps[:, 1]))

    arguments = (np.linspace(0, 1, 65, dtype=np.float32), np.linspace(1, 2, 65, dtype=np.float32), np.float32(0.5))
    function = rematc.value_and_grad(rematc.from_jax(loss), argnums=(0, 1), policy=policy)
    with_it, without = (
        rematc.lower(function, *arguments, passes=passes) for passes in (None, "barriers,simplify,cse,dce")
    )
    pairs = [
        [eqn.op for eqn in lowered.graph.equations if isinstance(eqn.op, Pad) and eqn.results[0].type.shape[-1] == 2]
        for lowered in (with_it, without)
    ]
    assert not pairs[0] and len(pairs[1]) == 2
    wanted = jax.value_and_grad(loss, (0, 1))(*arguments)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), with_it.compile()(*arguments), wanted)
