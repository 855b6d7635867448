"""Large arrays that a function closes over: one copy on the way to the program, none in its text or in a buffer."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import rematc

SIZE = 1 << 24  # bytes; to measure more would show the same
X = np.float32(2)


def peak_copies(run: Callable[[], object]) -> float:
    """The most memory of NumPy and Python while this runs, beyond what there is, in arrays of SIZE."""
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1] / SIZE
    finally:
        tracemalloc.stop()


def random_table() -> np.ndarray:
    return np.random.default_rng(0).standard_normal(SIZE // 4, np.float32)


def nearly_constant_table() -> np.ndarray:
    table = np.zeros(SIZE // 4, np.float32)
    table[-1] = 1
    return table


@pytest.mark.parametrize("make", [random_table, nearly_constant_table])
def test_lowering_takes_one_copy(make: Callable[[], np.ndarray]) -> None:
    table = make()
    step = rematc.value_and_grad(lambda scale: np.sum(table * scale))
    rematc.lower(step, X)  # what the first call takes besides
    assert peak_copies(lambda: rematc.lower(step, X).stablehlo()) < 1.4
    assert len(rematc.lower(step, X).stablehlo()) < 5_000


def test_saving_takes_no_copy_and_loading_one(tmp_path: Path) -> None:
    table = random_table()
    compiled = rematc.compile(rematc.value_and_grad(lambda scale: np.sum(table * scale)), X)
    file = tmp_path / "program"
    assert peak_copies(lambda: compiled.save(file)) < 0.2
    assert peak_copies(lambda: rematc.load(file)) < 1.4
    np.testing.assert_array_equal(rematc.load(file)(X), compiled(X))
