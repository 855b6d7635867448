"""Running a compiled training step: its loss, its gradient's norms, how long it takes."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import jax
import numpy as np

from rematc.compiler.driver.lowered import Compiled
from rematc.compiler.tracing.arguments import CallArguments, leaf_type
from rematc.ir.types import TensorType

MIN_RUNS = 3
MAX_RUNS = 30
#: No more runs are started once each function has had this long.
SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class GradientNorm:
    """One leaf of the gradient: its name in the user's terms, its type, its 2-norm."""

    name: str
    type: TensorType
    norm: float


@dataclass(frozen=True, slots=True)
class Run:
    """What running a training step gave.

    Attributes:
        loss: the entry's value.
        gradients: the leaves of the gradient.
        median_seconds: run time of one step, without compilation.
        count: how many runs the median is of.
    """

    loss: float
    gradients: tuple[GradientNorm, ...]
    median_seconds: float
    count: int

    @property
    def gradient_norm(self) -> float:
        """The 2-norm of all leaves together."""
        return math.hypot(*(leaf.norm for leaf in self.gradients))

    def as_dict(self) -> dict[str, object]:
        """The run as JSON-able data."""
        return {
            "loss": self.loss,
            "gradient_norm": self.gradient_norm,
            "gradient_norms": {leaf.name: leaf.norm for leaf in self.gradients},
            "median_seconds": self.median_seconds,
            "runs": self.count,
        }


def runner(compiled: Compiled, args: Sequence[object]) -> Callable[[], object]:
    """A function that runs the compiled step once and waits for it; its arguments lie on the device already."""
    leaves = CallArguments.of(lambda *_: None, args, {}).arrays
    with jax.enable_x64(True):
        device = jax.devices(compiled.executable.target.platform)[0]
        placed = [jax.device_put(np.asarray(leaf), device) for leaf in leaves]
    return lambda: jax.block_until_ready(compiled.executable(*placed))  # type: ignore[no-untyped-call]  # jax's


def run_step(
    compiled: Compiled, function: Callable[..., object], args: Sequence[object], argnums: Sequence[int]
) -> Run:
    """Run the compiled value and gradient of `function` with respect to the positional arguments `argnums`."""
    value, gradients = cast(tuple[Any, Any], compiled(*args))  # what value_and_grad returns
    loss = value[0] if isinstance(value, tuple) else value  # (value, aux) with has_aux
    positions = [index % len(args) for index in argnums]
    norms = norms_of(function, positions, gradients if len(positions) > 1 else (gradients,))
    (median,), count = median_times([runner(compiled, args)])
    return Run(float(loss), tuple(norms), median, count)


def norms_of(
    function: Callable[..., object], argnums: Sequence[int], gradients: Sequence[object]
) -> list[GradientNorm]:
    """The norm of each leaf of the gradients with respect to the positional arguments `argnums` of `function`."""
    positional: list[object] = [None] * (max(argnums) + 1)
    for index, gradient in zip(argnums, gradients, strict=True):
        positional[index] = gradient
    leaves = CallArguments.of(function, positional, {})
    return [
        GradientNorm(name, leaf_type(array)[0], _norm(array))
        for name, array in zip(leaves.names, leaves.arrays, strict=True)
    ]


def _norm(array: object) -> float:
    # In float64, and scaled: the squares of large float32 elements would overflow.
    flat = np.abs(np.asarray(array)).astype(np.float64).reshape(-1)
    largest = float(np.max(flat, initial=0.0))
    if largest == 0.0 or not math.isfinite(largest):
        return largest
    return largest * float(np.linalg.norm(flat / largest))


def median_times(functions: Sequence[Callable[[], object]]) -> tuple[list[float], int]:
    """The median time of each function in seconds, and how many runs each had.

    The functions take turns, so that whatever else the machine does meets all of them. One run of each goes before.
    """
    for function in functions:
        function()
    times: list[list[float]] = [[] for _ in functions]
    deadline = time.perf_counter() + SECONDS * len(functions)
    for turn in range(MAX_RUNS):
        if turn >= MIN_RUNS and time.perf_counter() > deadline:
            break
        for function, taken in zip(functions, times, strict=True):
            start = time.perf_counter()
            function()
            taken.append(time.perf_counter() - start)
    return [statistics.median(taken) for taken in times], len(times[0]) if times else 0
