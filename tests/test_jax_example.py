"""The training step of examples/jax: the same losses with less memory."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import jax
import numpy as np
import pytest

optax = pytest.importorskip("optax", reason="the example's optimizer is optax's")


@pytest.fixture(scope="module")
def training() -> ModuleType:
    """The example, smaller."""
    path = Path(__file__).parents[1] / "examples" / "jax" / "training.py"
    spec = importlib.util.spec_from_file_location("example_jax_training", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.LAYERS, module.LENGTH = 3, 33  # type: ignore[attr-defined]  # of the example
    return module


def trained(training: ModuleType, policy: str) -> tuple[int, list[float]]:
    """The temporary memory of the step, and the losses of three steps."""
    optimizer = optax.adamw(1e-3)
    params = training.initial_params(jax.random.key(0))
    state, tokens = optimizer.init(params), training.batch(jax.random.key(1))
    step = training.training_step(policy, optimizer).lower(params, state, tokens).compile()
    values = []
    for _ in range(3):
        params, state, value = step(params, state, tokens)
        values.append(float(value))
    return step.memory_analysis().temp_size_in_bytes, values


def test_a_policy_lowers_the_memory_of_the_step_and_leaves_the_losses(training: ModuleType) -> None:
    plain, expected = trained(training, "none")
    little, found = trained(training, "nothing")
    # Two optimizer steps on float32 roundings.
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert little < 0.7 * plain
