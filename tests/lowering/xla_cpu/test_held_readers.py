"""What reads late is held before what takes memory next where the predicted peak is lower, and XLA's is with it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import rematc
from rematc.ir.core import Graph
from rematc.lowering.pipeline import make_program, run_passes
from rematc.lowering.runtime import compile_program
from rematc.lowering.target import Target
from rematc.lowering.xla_cpu.held_readers import with_readers_held
from rematc.lowering.xla_cpu.prediction import predict

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


@pytest.mark.parametrize("target", [Target.of("tpu"), replace(Target.of("cpu"), devices=8)])
def test_only_what_is_predicted_is_held(target: Target) -> None:
    graph = without_held()
    assert with_readers_held(graph, target) is graph


def test_without_recomputation_nothing_is_held() -> None:
    graph = rematc.lower(rematc.value_and_grad(rematc.from_jax(backbone)), *shapes()).graph
    assert with_readers_held(graph, Target.of("cpu")) is graph
