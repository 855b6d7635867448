"""Groups of the batch as groups of features, on the CPU."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

import rematc
from rematc.ir.builder import Builder
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.convolution import Convolution
from rematc.ir.types import F64, TensorType
from rematc.ir.verifier import verify
from rematc.passes.legalize.batch_groups import with_groups_of_features
from tests.support.geometries import geometries


@given(geometries())
def test_they_are_the_same_convolution(geometry: tuple[Convolution, tuple[int, ...], tuple[int, ...]]) -> None:
    op, *shapes = geometry
    b = Builder("f")
    operands = [b.parameter(TensorType(F64, shape), name) for shape, name in zip(shapes, "xk", strict=True)]
    graph = b.build(b.emit1(op, *operands))
    changed = with_groups_of_features(graph)
    verify(changed)
    assert (changed is graph) is (op.batch_group_count == 1)
    assert all(getattr(eqn.op, "batch_group_count", 1) == 1 for eqn in changed.equations)
    random = np.random.default_rng(0)
    arguments = [random.integers(-4, 5, shape).astype(np.float64) for shape in shapes]
    for old, new in zip(evaluate(graph, arguments), evaluate(changed, arguments), strict=True):
        np.testing.assert_array_equal(old, new)


def depthwise(kernels: Any, x: Any) -> Any:
    for kernel in kernels:
        layout = ("NHWC", "HWIO", "NHWC")
        x = x + jax.lax.conv_general_dilated(
            jnp.tanh(x), kernel, (1, 1), "SAME", dimension_numbers=layout, feature_group_count=x.shape[-1]
        )
    return jnp.mean(x * x)


@pytest.mark.parametrize("policy", [None, "nothing", "dots"])
def test_the_gradient_of_a_depthwise_kernel_takes_no_array_of_all_pairs_of_channels(policy: str | None) -> None:
    """That array of 9 MiB was made twice, and predicted by nobody."""
    arguments = np.full((2, 3, 3, 1, 512), 0.1, np.float32), np.ones((4, 8, 8, 512), np.float32)
    step = rematc.value_and_grad(rematc.from_jax(depthwise), policy=policy)
    lowered = rematc.lower(step, *arguments)
    taken = lowered.compile().memory().temp_bytes
    assert taken < 5 * 2**20
    assert lowered.predicted_peak() == pytest.approx(taken, rel=0.1)
    value, gradient = jax.value_and_grad(depthwise)(*map(jnp.asarray, arguments))
    ours: Any = step(*arguments)
    np.testing.assert_allclose(ours[0], value, rtol=1e-5)
    np.testing.assert_allclose(ours[1], gradient, rtol=1e-4, atol=1e-7)


def test_inside_of_a_function_that_jax_compiles_there_is_none_either() -> None:
    arguments = np.full((2, 3, 3, 1, 512), 0.1, np.float32), np.ones((4, 8, 8, 512), np.float32)
    step = jax.jit(rematc.jax.value_and_grad(depthwise, policy="nothing"))
    taken: Any = step.lower(*arguments).compile().memory_analysis()
    assert taken.temp_size_in_bytes < 5 * 2**20
