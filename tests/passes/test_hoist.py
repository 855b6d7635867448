"""What is the same in all steps of a loop is computed before it, or held in each step where less memory is wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rematc
import rematc.jax
from rematc.ir.core import Graph
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.scan.op import Scan
from rematc.ir.ops.while_.op import While
from rematc.ir.parser import parse_graph
from rematc.ir.traversal import all_equations
from rematc.ir.verifier import verify
from rematc.lowering.pipeline import BEFORE_PLAN, run_passes
from rematc.lowering.xla_cpu.prediction import predict
from rematc.passes.hoist import Hoist, held_in_steps

W = np.linspace(-1, 1, 9, dtype=np.float32).reshape(3, 3)
X = np.linspace(0, 2, 6, dtype=np.float32).reshape(2, 3)


def scanned(w: Any, x: Any) -> Any:
    def step(c: Any, row: Any) -> Any:
        gate = jnp.tanh(w) * 2 + jnp.arange(3.0)
        return c @ gate + row, jnp.sum(c) + jnp.sum(gate)

    c, ys = jax.lax.scan(step, x, jnp.stack([x, 2 * x, x - 1]))
    return c, ys


def nested(w: Any, x: Any) -> Any:
    """What an inner loop can do without comes out of both; what only the outer one changes comes out of one."""

    def outer(c: Any, _: Any) -> Any:
        def inner(d: Any, _: Any) -> Any:
            return jnp.sin(d @ jnp.exp(w)) + jnp.cos(c), None

        return jax.lax.scan(inner, c, None, 4)[0] + jnp.log(2 + w[:2]), None

    return jax.lax.scan(outer, x, None, 3)[0]


def until(w: Any, x: Any) -> Any:
    def step(state: Any) -> Any:
        c, kept, count = state
        return jnp.tanh(c @ jnp.exp(kept)) + jnp.sin(w)[:2], kept, count + 1

    return jax.lax.while_loop(lambda state: jnp.sum(state[0]) * 0 + state[2] < 3 + w[0, 0] * 0, step, (x, w, 0.0))[:2]


def branching(w: Any, x: Any) -> Any:
    """A branch that has a loop, in a loop."""

    def step(c: Any, flag: Any) -> Any:
        loop = lambda c: jax.lax.fori_loop(0, 3, lambda _, d: d @ jnp.tanh(w), c)  # noqa: E731
        return jax.lax.cond(flag, loop, lambda c: c * jnp.exp(w[:2]), c), None

    return jax.lax.scan(step, x, jnp.array([True, False, True]))[0]


PROGRAMS = [scanned, nested, until, branching]


def graph_of(function: Callable[..., Any]) -> Graph:
    return run_passes(rematc.trace(rematc.from_jax(function), W, X), BEFORE_PLAN).graph


def in_loops(graph: Graph) -> list[str]:
    """The ops in bodies of loops."""
    loops = [eqn.op for eqn in all_equations(graph) if isinstance(eqn.op, Scan | While)]
    return [inner.op.name for loop in loops for inner in all_equations(loop.body)]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("change", [Hoist().run, held_in_steps])
def test_values_are_the_same_to_the_bit(program: Callable[..., Any], change: Callable[[Graph], Graph]) -> None:
    graph = graph_of(program)
    changed = change(graph)
    assert changed is not graph
    verify(changed)
    for found, expected in zip(evaluate(changed, [W, X]), evaluate(graph, [W, X]), strict=True):
        assert found.tobytes() == expected.tobytes()
    compiled = rematc.compile(changed, W, X)(W, X)
    for found, expected in zip(jax.tree.leaves(compiled), jax.tree.leaves(program(W, X)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("program", "moved", "left"),
    [(scanned, {"tanh"}, {"dot_general"}), (nested, {"exponential", "log"}, {"sine"}), (until, {"sine"}, {"tanh"})],
)
def test_what_is_the_same_in_all_steps_leaves_the_loops(
    program: Callable[..., Any], moved: set[str], left: set[str]
) -> None:
    graph = graph_of(program)
    before, after = in_loops(graph), in_loops(Hoist().run(graph))
    assert moved <= {*before} and moved.isdisjoint(after)
    assert left <= {*after}


def test_what_the_inner_loop_alone_can_do_without_stays_in_the_outer_one() -> None:
    moved = Hoist().run(graph_of(nested))
    assert in_loops(moved).count("cosine") == 1
    (outer,) = [eqn.op for eqn in moved.equations if isinstance(eqn.op, Scan)]
    assert [eqn.op.name for eqn in outer.body.equations].count("cosine") == 1


def test_a_carry_that_no_step_changes_is_the_same_in_all() -> None:
    assert "exponential" not in in_loops(Hoist().run(graph_of(until)))


def test_nothing_to_move_changes_nothing() -> None:
    graph = graph_of(lambda w, x: jax.lax.fori_loop(0, 3, lambda _, c: jnp.sin(c @ w), x))
    assert Hoist().run(graph) is graph and held_in_steps(graph) is graph


def test_what_only_repeats_an_array_stays() -> None:
    graph = graph_of(lambda w, x: jax.lax.fori_loop(0, 3, lambda _, c: c @ w.T + w[0], x))
    assert Hoist().run(graph) is graph


def test_effects_stay() -> None:
    def loss(w: Any, x: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            jax.debug.callback(lambda _: None, jnp.sum(w))
            return c @ jnp.tanh(w), None

        return jax.lax.scan(step, x, None, 3)[0]

    moved = in_loops(Hoist().run(graph_of(loss)))
    assert "debug_callback" in moved and "tanh" not in moved


def test_a_loop_whose_body_two_loops_share_is_moved_for_each() -> None:
    text = """
graph @twice(%w: f32[3,3], %v: f32[3,3], %x: f32[2,3]) -> (f32[2,3], f32[2,3]) {
  %0: f32[2,3] = scan %w, %x {body=graph @step(%w: f32[3,3], %c: f32[2,3]) -> (f32[2,3]) {
    %0: f32[3,3] = tanh %w
    %1: f32[2,3] = dot_general %c, %0 {contract=[[1],[0]], batch=[[],[]]}
    return %1
  }, length=3, consts=1, carry=1}
  %1: f32[2,3] = scan %v, %x {body=graph @step(%w: f32[3,3], %c: f32[2,3]) -> (f32[2,3]) {
    %0: f32[3,3] = tanh %w
    %1: f32[2,3] = dot_general %c, %0 {contract=[[1],[0]], batch=[[],[]]}
    return %1
  }, length=3, consts=1, carry=1}
  return %0, %1
}
"""
    graph = parse_graph(text)
    first, second = graph.equations
    assert isinstance(first.op, Scan) and isinstance(second.op, Scan)
    shared = Graph(
        graph.name, graph.params, (first, type(second)(first.op, second.operands, second.results)), graph.results
    )
    moved = Hoist().run(shared)
    verify(moved)
    arguments = [W, W.T.copy(), X]
    for found, expected in zip(evaluate(moved, arguments), evaluate(shared, arguments), strict=True):
        assert found.tobytes() == expected.tobytes()


# -- a Newton step: products with the Hessian in a loop, whose activations are the same in each ----------------------

ROWS, WIDTH = 512, 128
S: Any = jax.ShapeDtypeStruct
WEIGHTS = [S((32, WIDTH), np.float32), S((WIDTH, WIDTH), np.float32), S((WIDTH, 8), np.float32)]
DATA = S((ROWS, 32), np.float32)


def hessian_products(weights: Any, vector: Any, data: Any) -> Any:
    def loss(weights: Any) -> Any:
        first, second, last = weights
        return jnp.mean(jnp.exp(jnp.tanh(jnp.tanh(data @ first) @ second) @ last))

    def product(vector: Any) -> Any:
        return jax.jvp(jax.grad(loss), (weights,), (vector,))[1]

    return jax.lax.fori_loop(0, 5, lambda _, v: jax.tree.map(lambda a, b: a + 0.1 * b, v, product(v)), vector)


def temporary(step: Any) -> int:
    return int(step.lower(WEIGHTS, WEIGHTS, DATA).compile().memory_analysis().temp_size_in_bytes)


def test_what_xla_moves_out_of_loops_is_predicted() -> None:
    graph = run_passes(rematc.trace(rematc.from_jax(hessian_products), WEIGHTS, WEIGHTS, DATA), BEFORE_PLAN).graph
    whole = rematc.compile(graph, *WEIGHTS, *WEIGHTS, DATA).memory().temp_bytes
    held = held_in_steps(graph)
    in_steps = rematc.compile(held, *WEIGHTS, *WEIGHTS, DATA).memory().temp_bytes
    assert in_steps < 0.85 * whole, "behind the barrier nothing is moved"
    assert predict(graph).peak == pytest.approx(whole, rel=0.05)
    assert predict(held).peak == pytest.approx(in_steps, rel=0.05)


def test_a_budget_computes_in_each_step_what_there_is_no_memory_for() -> None:
    whole = temporary(jax.jit(hessian_products))
    reports: dict[float, Any] = {}
    for part in (1.05, 0.6):
        step: Any = rematc.jax.jit(hessian_products, budget=int(part * whole))
        assert temporary(step) <= part * whole
        reports[part] = step.report(WEIGHTS, WEIGHTS, DATA)
    assert "computes in each step of a loop what is the same in all" in str(reports[0.6])
    assert "computes in each step of a loop what is the same in all" not in str(reports[1.05])


def test_such_a_plan_is_saved_and_applied() -> None:
    arguments = WEIGHTS, WEIGHTS, DATA
    loss = rematc.from_jax(hessian_products)
    whole = rematc.compile(loss, *arguments).memory().temp_bytes
    lowered = rematc.lower(loss, *arguments, budget=int(0.6 * whole))
    assert lowered.plan is not None
    read = rematc.Plan.from_json(lowered.plan.to_json())
    assert read == lowered.plan and '"form": "in steps"' in lowered.plan.to_json()
    assert rematc.lower(loss, *arguments, plan=read).stablehlo() == lowered.stablehlo()
