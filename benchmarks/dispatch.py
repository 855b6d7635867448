"""What a call of a compiled function costs beside the same call of `jax.jit`: ratios, ours / JAX.

    python benchmarks/dispatch.py [--rounds N]

Each row is one kind of arguments. Both functions compute the same sum; they are called in turns in the same process,
a batch each, and the ratio of the two batches is taken round by round. 1.0 is as dear as `jax.jit`. A row that is
compiled ahead of time has `rematc.compile` beside `jax.jit(...).lower(...).compile()`. The last row is what no function
of Python's around `jax.jit` can do without: a frame, and the thread's flag for 64-bit types turned on and back.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import click
import jax
import jax.numpy as jnp
import numpy as np

import rematc

COUNT, BATCH = 20, 20


@dataclass(frozen=True, slots=True)
class Case:
    """Arguments, and the function as it is written for NumPy and for JAX."""

    name: str
    args: tuple[Any, ...]
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    x64: bool = False
    ahead: bool = False
    is_floor: bool = False

    def functions(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """Ours and JAX's."""
        if self.is_floor:
            return _in_double(jax.jit(self.ours)), jax.jit(self.theirs)
        if not self.ahead:
            return rematc.jit(self.ours), jax.jit(self.theirs)
        return rematc.compile(self.ours, *self.args), jax.jit(self.theirs).lower(*self.args).compile()


def cases() -> list[Case]:
    """The kinds of arguments that are measured."""
    small = [np.full(4, index, np.float32) for index in range(COUNT)]
    large = np.linspace(0, 1, 1_000_000, dtype=np.float32)
    on_device = jnp.asarray(large)
    devices = tuple(jnp.asarray(array) for array in small)
    return [
        Case("20 jax arrays, float32", devices, lambda *xs: sum(xs), lambda *xs: sum(xs)),
        Case("20 numpy arrays, float32", tuple(small), lambda *xs: sum(xs), lambda *xs: sum(xs)),
        Case(
            "a dict of 20 jax arrays",
            ({f"layer{index}": array for index, array in enumerate(devices)},),
            lambda tree: sum(tree.values()),
            lambda tree: sum(tree.values()),
        ),
        Case(
            "20 numpy arrays, float64",
            tuple(array.astype(np.float64) for array in small),
            lambda *xs: sum(xs),
            lambda *xs: sum(xs),
            x64=True,
        ),
        Case(
            "20 jax arrays and a closed-over array of 4 MB",
            devices,
            lambda *xs: sum(xs) + large[:4],
            lambda *xs: sum(xs) + on_device[:4],
        ),
        Case(
            "a tree of 200 jax arrays, compiled ahead of time",
            ({f"layer{index}": {"w": devices[0], "b": devices[1]} for index in range(100)},),
            lambda tree: sum(layer["w"] * layer["b"] for layer in tree.values()),
            lambda tree: sum(layer["w"] * layer["b"] for layer in tree.values()),
            ahead=True,
        ),
        Case(
            "the floor: a frame and a flag around jax.jit",
            devices,
            lambda *xs: sum(xs),
            lambda *xs: sum(xs),
            is_floor=True,
        ),
    ]


def _in_double(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with 64-bit types on, and nothing else."""

    def call(*args: Any, **kwargs: Any) -> Any:
        previous = jax.enable_x64.swap_local(True)
        try:
            return function(*args, **kwargs)
        finally:
            jax.enable_x64.set_local(previous)

    return call


def batch_seconds(function: Callable[..., Any], args: Sequence[Any]) -> float:
    """Seconds for one batch of calls, the computations themselves waited for outside."""
    start = time.perf_counter()
    for _ in range(BATCH):
        result = function(*args)
    seconds = time.perf_counter() - start
    result.block_until_ready()
    return seconds


def ratios(case: Case, rounds: int) -> list[float]:
    """Ours / JAX's, round by round."""
    ours, theirs = case.functions()
    with jax.enable_x64(True) if case.x64 else nullcontext():
        np.testing.assert_allclose(ours(*case.args), theirs(*case.args))
        found = []
        for index in range(rounds):
            if index % 2:
                seconds, other = batch_seconds(ours, case.args), batch_seconds(theirs, case.args)
            else:
                other, seconds = batch_seconds(theirs, case.args), batch_seconds(ours, case.args)
            found.append(seconds / other)
    return found


@click.command()
@click.option("--rounds", default=500, show_default=True, help="Rounds, each of 20 calls of both.")
def main(rounds: int) -> None:
    """Print one line for each kind of arguments: the median ratio, and the quartiles."""
    for case in cases():
        lower, median, upper = statistics.quantiles(ratios(case, rounds), n=4)
        click.echo(f"{case.name:<48} {median:5.3f}   ({lower:.3f} to {upper:.3f})")


if __name__ == "__main__":
    main()
