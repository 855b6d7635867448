"""Memory of a recurrence of 1,000 steps: plain, with a checkpointed step, in nested levels, from snapshots; beside JAX.

    PYTHONPATH=src python benchmarks/scan.py

What is shown is XLA's temporary memory of the gradient, and the seconds to trace, lower and compile it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import rematc

STEPS, WIDTH = 1000, 512
ARGUMENTS = (
    np.full((WIDTH, WIDTH), 1 / WIDTH, np.float32),
    np.ones((32, WIDTH), np.float32),
)


def loss(lib: Any, scan: Any, wrap: Callable[[Any], Any], **options: Any) -> Any:
    """A recurrence with three values a step that the backward pass needs."""

    def run(w: Any, x: Any) -> Any:
        def step(c: Any, _: Any) -> tuple[Any, None]:
            return lib.sin(lib.tanh(c @ w) * c), None

        return scan(wrap(step), x, None, STEPS, **options)[0].sum()

    return run


def ours(wrap: Callable[[Any], Any], **options: Any) -> tuple[float, float]:
    """(MiB, seconds)."""
    start = time.perf_counter()
    function = rematc.value_and_grad(loss(np, rematc.scan, wrap, **options), (0, 1))
    compiled = rematc.compile(function, *ARGUMENTS)
    return compiled.memory().temp_bytes / 2**20, time.perf_counter() - start


def theirs(wrap: Callable[[Any], Any]) -> tuple[float, float]:
    """(MiB, seconds)."""
    start = time.perf_counter()
    compiled = jax.jit(jax.value_and_grad(loss(jnp, jax.lax.scan, wrap), (0, 1))).lower(*ARGUMENTS).compile()
    memory = compiled.memory_analysis()
    return memory.temp_size_in_bytes / 2**20, time.perf_counter() - start


def main() -> None:
    """Print the table."""
    rows = {
        "rematc, plain": ours(lambda f: f),
        "rematc, checkpointed step": ours(rematc.checkpoint),
        "rematc, levels=(10, 100)": ours(lambda f: f, levels=(10, 100)),
        "rematc, levels=(40, 25)": ours(lambda f: f, levels=(40, 25)),
        "rematc, levels=(10, 10, 10)": ours(lambda f: f, levels=(10, 10, 10)),
        "rematc, snapshots=10": ours(lambda f: f, snapshots=10),
        "rematc, snapshots=40": ours(lambda f: f, snapshots=40),
        "jax, plain": theirs(lambda f: f),
        "jax, checkpointed step": theirs(jax.checkpoint),
    }
    print(f"{STEPS} steps, one carry {ARGUMENTS[1].nbytes / 2**10:.0f} KiB")
    for name, (mebibytes, seconds) in rows.items():
        print(f"{name:30} {mebibytes:8.1f} MiB temporary {seconds:6.2f} s to compile")


if __name__ == "__main__":
    main()
