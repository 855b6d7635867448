"""What reads late is held before what takes memory next where the predicted peak is lower, and XLA's is with it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import rematc
from rematc.ir.core import Graph
from rematc.ir.interpreter import evaluate
from rematc.lowering.pipeline import BEFORE_PLAN, make_program, run_passes
from rematc.lowering.runtime import compile_program
from rematc.lowering.target import Target
from rematc.lowering.xla_cpu.held_readers import with_readers_held
from rematc.lowering.xla_cpu.prediction import predict
from rematc.passes.planning.device import CPU
from rematc.passes.planning.planner import Planner
from rematc.passes.planning.shards import Machine

Shape: Any = jax.ShapeDtypeStruct
IMAGES = Shape((2, 128, 128, 3), np.float32)
LAYERS = 4


def convolve(x: Any, kernel: Any) -> Any:
    return lax.conv_general_dilated(x, kernel, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def backbone(weights: Any, images: Any) -> Any:
    """Convolutions of which each has a quarter of the memory of the one before, under small layers."""
    x, (kernels, layers) = images, weights
    for kernel in kernels:
        x = jax.nn.relu(convolve(x, kernel))
    x = x.reshape(x.shape[0], -1, x.shape[-1])
    for w in layers:
        x = x + jnp.tanh(x @ w) @ w
    return jnp.sum(x**2)


def shapes() -> tuple[Any, Any]:
    channels = (3, 64, 64, 64, 64)
    pairs = itertools.pairwise(channels)
    kernels = [Shape((3, 3, *pair), np.float32) for pair in pairs]
    return (kernels, [Shape((64, 64), np.float32)] * LAYERS), IMAGES


def without_held() -> Graph:
    lowered = rematc.lower(rematc.value_and_grad(rematc.from_jax(backbone), policy="nothing"), *shapes())
    return run_passes(lowered.traced.graph).graph


def taken(graph: Graph) -> int:
    return int(compile_program(make_program(graph, ())).memory().temp_bytes)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="it is XLA:CPU's order")
def test_the_gradient_of_a_kernel_comes_before_the_next_ones_copies() -> None:
    graph = without_held()
    held = with_readers_held(graph, Target.of("cpu"))
    assert predict(held).peak < 0.95 * predict(graph).peak
    assert taken(held) < 0.95 * taken(graph)


def test_what_is_held_computes_the_same() -> None:
    weights, images = jax.tree.map(lambda s: np.cos(np.arange(s.size, dtype=s.dtype)).reshape(s.shape) / 8, shapes())
    found = rematc.value_and_grad(rematc.from_jax(backbone), policy="nothing")(weights, images)
    expected = jax.value_and_grad(backbone)(weights, images)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-5, atol=1e-4), found, expected)


ROWS, WIDTH, PARTS, NETWORKS = 1024, 16, 3, 5


def network(weights: Any, x: Any) -> Any:
    return np.sum(np.tanh(np.tanh(x @ weights[0]) @ weights[1]) ** 2)


def descended(weights: Any, x: Any) -> Any:
    """A step of each of several networks: their gradients need nothing of each other."""
    gradient: Callable[..., Any] = rematc.grad(network)
    return tuple(w - 0.01 * gradient(w, x) for w in weights)


def in_loop(weights: Any, parts: Any) -> Any:
    return rematc.scan(lambda weights, x: (descended(weights, x), None), weights, parts)[0]


def in_inner_loop(weights: Any, parts: Any) -> Any:
    return rematc.scan(lambda weights, _: (in_loop(weights, parts), None), weights, None, 2)[0]


def in_branch(weights: Any, parts: Any) -> Any:
    return rematc.cond(np.sum(parts) > 0, descended, lambda weights, x: weights, weights, parts[0])


REGIONS = [in_loop, in_inner_loop, in_branch]


def arguments() -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    weights = random.normal(size=(NETWORKS, 2, WIDTH, WIDTH)).astype(np.float32) / 6
    return tuple(weights), random.normal(size=(PARTS, ROWS, WIDTH)).astype(np.float32)


def planned(function: Callable[..., Any]) -> tuple[Graph, int]:
    """The smallest plan's graph, with nothing held, and what it takes step by step."""
    planner = Planner(run_passes(rematc.trace(function, *arguments()), BEFORE_PLAN).graph, Machine(CPU))
    plan = planner.plan(0)
    graph = run_passes(planner.applied(plan), target=Target.of("cpu"), holds_readers=False).graph
    return graph, plan.peak


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="it is XLA:CPU's order")
@pytest.mark.parametrize("function", REGIONS)
def test_in_steps_and_branches_one_gradient_comes_after_the_other(function: Callable[..., Any]) -> None:
    """XLA begins with all of them, and holds what each reads; a plan takes one after the other."""
    graph, peak = planned(function)
    held = with_readers_held(graph, Target.of("cpu"))
    assert predict(graph).peak > 1.3 * peak
    assert predict(held).peak < 0.85 * predict(graph).peak
    assert taken(held) < 0.85 * taken(graph)
    given = jax.tree.leaves(arguments())
    for one, other in zip(evaluate(graph, given), evaluate(held, given), strict=True):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


def test_regions_that_take_no_more_beside_them_are_left() -> None:
    """The peak is outside of the loop: what is late in its step changes nothing."""
    graph, _ = planned(lambda weights, parts: (in_loop(weights, parts), np.sum(np.sort(np.tile(parts, (8, 1, 1))))))
    assert with_readers_held(graph, Target.of("cpu")) is graph


@pytest.mark.parametrize("target", [Target.of("tpu"), replace(Target.of("cpu"), devices=8)])
def test_only_what_is_predicted_is_held(target: Target) -> None:
    graph = without_held()
    assert with_readers_held(graph, target) is graph


def test_without_recomputation_nothing_is_held() -> None:
    graph = rematc.lower(rematc.value_and_grad(rematc.from_jax(backbone)), *shapes()).graph
    assert with_readers_held(graph, Target.of("cpu")) is graph
