"""The steps of examples/jax with a framework's model and optimizer: within the budget, and those of `jax.jit`."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np
import pytest

import rematc.jax

#: What each needs.
NEEDED = {"equinox": ("equinox", "optax"), "keras": ("keras",), "nnx": ("flax", "optax")}


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example. Skips where what it needs is missing."""
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    for needed in NEEDED[name]:
        pytest.importorskip(needed, reason=f"the example is about {needed}")
    path = Path(__file__).parents[1] / "examples" / "jax" / f"{name}_step.py"
    spec = importlib.util.spec_from_file_location(f"example_{name}_step", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def arrays(tree: Any) -> list[Any]:
    """The leaves, keys as their words."""
    leaves = jax.tree.leaves(tree)
    is_key = [jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key) for leaf in leaves]
    return [jax.random.key_data(leaf) if one else leaf for leaf, one in zip(leaves, is_key, strict=True)]


@pytest.mark.parametrize("name", NEEDED)
def test_a_step_keeps_its_budget_and_its_values(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    train_step, state, batch = load(name, monkeypatch).build()
    reference: Any = jax.jit(train_step)
    whole = reference.lower(state, *batch).compile().memory_analysis().temp_size_in_bytes
    step: Any = rematc.jax.jit(train_step, budget=whole // 2, donate_argnums=0)
    expected, found = state, jax.tree.map(jax.numpy.array, state)
    values = []
    for _ in range(3):
        given = found
        (expected, value), (found, own) = reference(expected, *batch), step(found, *batch)
        assert all(leaf.is_deleted() for leaf in jax.tree.leaves(given))
        values.append(float(own))
        np.testing.assert_allclose(own, value, rtol=1e-5)
    assert values[0] > values[1] > values[2]
    assert step.report(state, *batch).budget.measured <= whole // 2
    for one, other in zip(arrays(found), arrays(expected), strict=True):
        # Roundings of three steps, of the largest.
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-4 * max(1e-3, np.abs(other).max()))
