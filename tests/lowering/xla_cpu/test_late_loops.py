"""Loops that begin with zeros of one shape write them when they run, and XLA holds no copies until then."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rematc
from rematc.compiler.api.text import parse
from rematc.ir.core import Graph
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.ir.verifier import verify
from rematc.lowering.pipeline import make_program, run_passes
from rematc.lowering.runtime import compile_program
from rematc.lowering.target import Target
from rematc.lowering.targeting import targeting
from rematc.lowering.xla_cpu.late_loops import LateLoops, with_late_loops
from tests.support.arrays import arguments_for, same_bits

Shape: Any = jax.ShapeDtypeStruct
pytestmark = pytest.mark.skipif(jax.default_backend() != "cpu", reason="it is what XLA:CPU copies early")


def summed(weights: Any, x: Any, wrapped: Any = rematc.jax.checkpoint) -> Any:
    """Layers that add up in loops, each what the one before it gave: they begin with zeros of one shape."""

    def layer(w: Any, x: Any) -> Any:
        def step(total: Any, scale: Any) -> Any:
            return total + jnp.sin(x * scale), None

        total, _ = jax.lax.scan(step, jnp.zeros_like(x), jnp.arange(3, dtype=x.dtype))
        return jnp.tanh(total) @ w

    for w in weights:
        x = wrapped(layer)(w, x)
    return jnp.sum(x**2)


def plain(weights: Any, x: Any) -> Any:
    """The same of which nothing is computed again."""
    return summed(weights, x, lambda layer: layer)


def graph_of(layers: int, loss: Any = summed) -> Graph:
    args = [Shape((64, 64), np.float32)] * layers, Shape((1024, 64), np.float32)
    lowered = rematc.lower(rematc.value_and_grad(rematc.from_jax(loss)), *args)
    return run_passes(lowered.traced.graph).graph


def taken(graph: Graph) -> int:
    return int(compile_program(make_program(graph, ())).memory().temp_bytes)


def test_no_copies_are_held_until_the_last_loop() -> None:
    few, many = graph_of(4), graph_of(8)
    # One array a layer is what the policy keeps; another one is held for each loop otherwise.
    one = 1024 * 64 * 4
    assert taken(many) - taken(few) > 2.5 * 4 * one
    assert taken(with_late_loops(many)) - taken(with_late_loops(few)) < 2.5 * 4 * one
    assert taken(with_late_loops(many)) < 0.75 * taken(many)


def test_the_same_is_computed() -> None:
    graph = graph_of(4)
    late = with_late_loops(graph)
    assert late is not graph
    verify(late)
    arrays = arguments_for(graph, special=0)
    assert same_bits(evaluate(late, arrays), evaluate(graph, arrays))


def test_it_is_done_where_programs_run_breadth_first() -> None:
    """On one CPU, where something is computed again."""

    def is_done(graph: Graph, target: Target) -> bool:
        with targeting(target):
            return LateLoops().run(graph) is not graph

    recomputing, usual = graph_of(4), graph_of(4, plain)
    assert with_late_loops(usual) is not usual
    found = [is_done(graph, Target.of(name)) for graph in (recomputing, usual) for name in ("cpu", "cuda")]
    assert found == [True, False, False, False]
    assert "late_loops" in [record.text for record in run_passes(recomputing, target=Target.of("cpu")).records]


LOOP = """scan {first}, {x} {{body=graph @step(%c: {type}, %x: f32[]) -> ({type}) {{
    %0: {type} = broadcast_in_dim %x {{shape={shape}, dimensions=[]}}
    %1: {type} = add %c, %0
    return %1
  }}, consts=0, carry=1, length=3}}"""


def loops(first: tuple[str, str], second: tuple[str, str], shapes: tuple[str, str] = ("[64]", "[64]")) -> Graph:
    """Two loops, which begin with something and read something."""
    one, two = [
        LOOP.format(first=begin, x=x, type=f"f32{shape}", shape=shape)
        for (begin, x), shape in zip((first, second), shapes, strict=True)
    ]
    return parse(
        f"graph @main(%p: f32[64], %xs: f32[3], %ys: f32[3]) -> (f32{shapes[0]}, f32{shapes[1]}) {{\n"
        "  %0: f32[] = constant {type=f32[], data=0.0}\n"
        f"  %1: f32{shapes[0]} = broadcast_in_dim %0 {{shape={shapes[0]}, dimensions=[]}}\n"
        f"  %2: f32{shapes[1]} = broadcast_in_dim %0 {{shape={shapes[1]}, dimensions=[]}}\n"
        "  %3: f32[3] = sine %xs\n  %4: f32[3] = sine %ys\n"
        f"  %5: f32{shapes[0]} = {one}\n  %6: f32{shapes[1]} = {two}\n  return %5, %6\n}}\n"
    )


@pytest.mark.parametrize(
    ("graph", "waiting"),
    [
        (loops(("%1", "%3"), ("%1", "%4")), [5, 6]),
        (loops(("%1", "%3"), ("%2", "%4")), [5, 6]),
        (loops(("%1", "%3"), ("%2", "%ys")), [5]),
        (loops(("%1", "%3"), ("%2", "%4"), ("[64]", "[32]")), []),
        (loops(("%p", "%3"), ("%1", "%4")), []),
    ],
    ids=["one array", "equal arrays", "what is there at once", "not equal", "a parameter"],
)
def test_loops_wait_that_would_share_what_they_begin_with(graph: Graph, waiting: list[int]) -> None:
    late = with_late_loops(graph)
    verify(late)
    made = {value: eqn for eqn in late.equations for value in eqn.results}
    for place, result in enumerate(graph.results):
        read = made[result].operands[-1]
        assert (read in made and isinstance(made[read].op, OptimizationBarrier)) == (5 + place in waiting)
    assert (late is graph) == (not waiting)
    arrays = arguments_for(graph, special=0)
    assert same_bits(evaluate(late, arrays), evaluate(graph, arrays))
