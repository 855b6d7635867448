"""Functions that decompose matrices are printed for a platform, and carry that with them into files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rematc
from rematc.ir.errors import CompileError

MATRIX = np.array([[4.0, 1.0], [2.0, 3.0]])


def inverse(a: Any) -> Any:
    return np.linalg.inv(a)


def sine(a: Any) -> Any:
    return np.sin(a)


def test_a_function_is_lowered_for_where_jax_runs_or_for_where_it_is_told() -> None:
    assert rematc.lower(inverse, MATRIX).program.kernel_platform == "cpu"
    lowered = rematc.lower(inverse, MATRIX, platform="cuda")
    assert lowered.program.kernel_platform == "cuda"
    assert "@cusolver_getrf_ffi" in lowered.stablehlo()
    assert "@lapack_dgetrf_ffi" in lowered.stablehlo("cpu")
    assert lowered.stablehlo("gpu") == lowered.stablehlo("cuda")
    np.testing.assert_allclose(lowered.compile("cpu")(MATRIX), np.linalg.inv(MATRIX))  # type: ignore[call-overload]  # an array


def test_a_function_without_decompositions_is_the_same_everywhere() -> None:
    lowered = rematc.lower(sine, MATRIX)
    assert lowered.program_for("cuda") is lowered.program
    assert rematc.lower(sine, MATRIX, platform="tpu").stablehlo() == lowered.stablehlo()


def test_a_platform_without_kernels_is_the_users_error() -> None:
    with pytest.raises(CompileError, match="'lu' has no kernel on platform 'tpu'") as caught:
        rematc.lower(inverse, MATRIX, platform="tpu")
    assert caught.value.loc is not None
    assert (caught.value.loc.file, caught.value.loc.line) == (__file__, inverse.__code__.co_firstlineno + 1)


def test_a_saved_function_runs_where_its_kernels_are(tmp_path: Path) -> None:
    rematc.compile(inverse, MATRIX).save(tmp_path / "inverse")
    loaded: Any = rematc.load(tmp_path / "inverse")
    np.testing.assert_array_equal(loaded(MATRIX), rematc.jit(inverse)(MATRIX))
    assert loaded.artifact.program.kernel_platform == "cpu"


def test_a_file_for_another_platform_is_refused(tmp_path: Path) -> None:
    lowered = rematc.lower(inverse, MATRIX, platform="cuda")
    compiled = lowered.compile("cpu")
    foreign = type(compiled.artifact)(lowered.program, compiled.artifact.in_tree, compiled.artifact.out_tree)
    type(compiled)(foreign, compiled.executable, lowered).save(tmp_path / "inverse")
    with pytest.raises(CompileError, match="kernels of platform 'cuda' and cannot run on 'cpu'"):
        rematc.load(tmp_path / "inverse", platform="cpu")
