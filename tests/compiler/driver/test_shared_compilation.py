"""A function that is called and compiled ahead of time is compiled once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.monitoring
import numpy as np
import pytest

import rematc

X = np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4)
W = {"w": np.linspace(1, 2, 16, dtype=np.float32).reshape(4, 4)}
SHAPES = jax.eval_shape(lambda *args: args, W, X)
LARGE = np.linspace(0, 1, 2**16, dtype=np.float32)


def loss(params: Any, x: Any) -> Any:
    for _ in range(3):
        x = np.tanh(x @ params["w"])
    return (x * x).sum()


def with_constant(params: Any, x: Any) -> Any:
    return loss(params, x) + LARGE.sum()


STEPS: dict[str, Callable[[], Any]] = {
    "jit": lambda: rematc.jit(loss, policy="nothing"),
    "value_and_grad": lambda: rematc.value_and_grad(loss, policy="nothing"),
    "grad": lambda: rematc.grad(loss),
    "closed-over array": lambda: rematc.jit(with_constant),
    "options of XLA": lambda: rematc.grad(loss, compiler_options={"xla_cpu_enable_fast_min_max": True}),
    "imported": lambda: rematc.from_jax(lambda params, x: jax.numpy.sum(jax.numpy.tanh(x @ params["w"]))),
}


@pytest.fixture
def compilations() -> Iterator[list[str]]:
    """One entry for each program that XLA compiles."""
    found: list[str] = []

    def listen(event: str, duration_secs: float, **_: Any) -> None:
        if event.endswith("backend_compile_duration"):
            found.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield found
    jax.monitoring.unregister_event_duration_listener(listen)


@pytest.mark.parametrize("step", STEPS)
def test_what_a_call_compiled_is_not_compiled_again(step: str, compilations: list[str]) -> None:
    function = STEPS[step]()
    expected = function(W, X)
    assert len(compilations) == 1
    compiled = rematc.compile(function, W, X)
    found: Any = compiled(W, X)
    assert len(compilations) == 1
    jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.mark.parametrize("step", STEPS)
def test_a_call_runs_what_was_compiled_ahead_of_time(step: str, compilations: list[str]) -> None:
    function = STEPS[step]()
    compiled = function.lower(*SHAPES).compile()
    assert len(compilations) == 1
    found = function(W, X)
    assert len(compilations) == 1
    jax.tree.map(np.testing.assert_array_equal, found, compiled(W, X))
    leaves = compiled.executable(*jax.tree.leaves((W, X)))
    jax.tree.map(np.testing.assert_array_equal, jax.tree.leaves(found), leaves)


@pytest.mark.parametrize("is_on", [False, True])
def test_a_block_of_64_bit_types_shares_what_it_compiles_and_stays_as_it_was(
    is_on: bool, compilations: list[str]
) -> None:
    function: Any = rematc.jit(loss)
    settings: Any = jax.config
    before = settings.jax_enable_x64
    with jax.enable_x64(is_on):
        function.lower(*SHAPES).compile()
        assert settings.jax_enable_x64 is is_on
        function(W, X)
        assert settings.jax_enable_x64 is is_on
    assert settings.jax_enable_x64 is before
    assert len(compilations) == 1


def test_other_options_are_another_program(compilations: list[str]) -> None:
    function: Any = rematc.jit(loss)
    function(W, X)
    compiled = function.lower(W, X).compile(compiler_options={"xla_cpu_enable_fast_min_max": True})
    assert len(compilations) == 2
    np.testing.assert_allclose(compiled(W, X), function(W, X), rtol=1e-6)
