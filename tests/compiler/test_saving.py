"""A compiled function survives the trip through a file, and refuses what it was not compiled for."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import rematc

PARAMS = {"w": np.full((4, 4), 0.25, np.float32), "b": [np.zeros(4, np.float32), None]}
X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
TABLE = np.arange(200, dtype=np.float32).reshape(50, 4)


def loss(params: dict[str, Any], x: Any, scaled: bool = True) -> Any:
    """A loss with a flag and a large closed-over array."""
    hidden = np.tanh(x @ params["w"] + params["b"][0])
    return np.mean(hidden @ TABLE.T) * 2 if scaled else np.mean(hidden)


def saved(path: Path) -> rematc.Compiled:
    compiled = rematc.compile(rematc.value_and_grad(loss), PARAMS, X, True)
    compiled.save(path)
    return compiled


def test_a_loaded_function_returns_what_the_saved_one_does(tmp_path: Path) -> None:
    compiled = saved(tmp_path / "loss.rematc")
    loaded = rematc.load(tmp_path / "loss.rematc")
    value, grads = cast(tuple[Any, Any], loaded(PARAMS, X, True))
    expected, expected_grads = cast(tuple[Any, Any], compiled(PARAMS, X, True))
    assert value == expected
    assert grads.keys() == expected_grads.keys()
    np.testing.assert_array_equal(grads["w"], expected_grads["w"])
    assert grads["b"][1] is None


def test_other_structures_and_types_are_refused_by_name(tmp_path: Path) -> None:
    saved(tmp_path / "loss.rematc")
    loaded = rematc.load(tmp_path / "loss.rematc")
    with pytest.raises(rematc.CompileError, match=r"compiled for arguments of the structure"):
        loaded(PARAMS, X)
    with pytest.raises(rematc.CompileError, match=r"compiled for f32\[3,4\] as args\[1\], got f64\[3,4\]"):
        loaded(PARAMS, X.astype(np.float64), True)


def test_a_damaged_file_is_an_error_of_the_user(tmp_path: Path) -> None:
    path = tmp_path / "loss.rematc"
    saved(path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(rematc.CompileError, match=r"damaged"):
        rematc.load(path)
