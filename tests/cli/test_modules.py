"""`remat-compile step.mlir`: a whole step that JAX wrote as StableHLO; XLA runs what comes out, nothing between."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import rematc
from tests.support.command import Command
from tests.support.xla import run_stablehlo

RANDOM = np.random.default_rng(0)
WEIGHTS = [RANDOM.normal(0, 0.1, (64, 64)).astype(np.float32) for _ in range(4)]
X = RANDOM.normal(0, 1, (512, 64)).astype(np.float32)
ARGS = (WEIGHTS, [np.zeros_like(w) for w in WEIGHTS], X)


def layer(x: Any, w: Any) -> Any:
    return x + jnp.tanh(jax.nn.gelu(x @ w, approximate=False) @ w)


def unrolled(weights: Any, x: Any) -> Any:
    for w in weights:
        x = layer(x, w)
    return jnp.mean(x * x)


def scanned(weights: Any, x: Any) -> Any:
    x, _ = jax.lax.scan(lambda x, w: (layer(x, w), None), x, jnp.stack(weights))
    return jnp.mean(x * x)


def train_step(weights: Any, moments: Any, x: Any, loss: Any = unrolled) -> Any:
    value, gradients = jax.value_and_grad(loss)(weights, x)
    moments = [0.9 * m + g for m, g in zip(moments, gradients, strict=True)]
    return [w - 0.1 * m for w, m in zip(weights, moments, strict=True)], moments, value


def written(how: str, loss: Any = unrolled) -> str:
    """The step as a module, by what JAX writes it."""
    step: Any = jax.jit(functools.partial(train_step, loss=loss), donate_argnums=(0, 1))
    return str(step.lower(*ARGS).as_text() if how == "lower" else export.export(step)(*ARGS).mlir_module())


@pytest.mark.parametrize("loss", [unrolled, scanned])
@pytest.mark.parametrize("how", ["lower", "export"])
def test_a_step_takes_less_memory_and_is_otherwise_the_same(
    command: Command, tmp_path: Path, how: str, loss: Any
) -> None:
    source, target = tmp_path / "step.mlir", tmp_path / "smaller.mlir"
    source.write_text(written(how, loss), encoding="utf-8")
    result = command(source, "--budget", "60%", "-q", "--json", "-o", target)
    assert result.exit_code == 0, result.output
    budget = json.loads(result.stdout)["budget"]
    assert budget["measured"] <= budget["budget"] and budget["extra_flops"] > 0
    text = target.read_text(encoding="utf-8")
    assert text.count("tf.aliasing_output") == source.read_text(encoding="utf-8").count("tf.aliasing_output") == 8
    found: list[Any] = run_stablehlo(text, [np.array(leaf) for leaf in jax.tree.leaves(ARGS)])
    expected = jax.tree.leaves(jax.jit(functools.partial(train_step, loss=loss))(*ARGS))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=2e-6 * np.abs(other).max())


def test_from_python(tmp_path: Path) -> None:
    graph = rematc.from_stablehlo(jax.jit(train_step).lower(*ARGS).as_text())
    types: list[Any] = jax.tree.leaves(ARGS)
    whole = rematc.compile(graph, *types).memory().temp_bytes
    planned = rematc.compile(graph, *types, budget="60%")
    assert planned.memory().temp_bytes <= 0.6 * whole
    found: list[Any] = run_stablehlo(planned.stablehlo(), types)
    np.testing.assert_allclose(found[-1], jax.jit(train_step)(*ARGS)[-1], rtol=1e-6)


def test_what_a_module_does_not_take_is_an_error(command: Command, tmp_path: Path) -> None:
    source = tmp_path / "step.mlir"
    source.write_text(written("lower"), encoding="utf-8")
    for options in (
        ("--policy", "dots"),
        ("--compare", "none,dots"),
        ("--run",),
        ("--emit", "backward"),
        ("--pareto",),
    ):
        result = command(source, *options)
        assert result.exit_code == 2
        assert re.search(r"step.mlir is a whole\s+step,\s+which\s+is\s+planned\s+as\s+it\s+is", result.output)
    source.write_text("module {", encoding="utf-8")
    assert command(source, "--budget", "50%").exit_code == 1
    source.write_bytes(b"ML\xefR\xff")
    assert "is no text" in command(source, "--budget", "50%").output
