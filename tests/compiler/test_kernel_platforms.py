"""Functions that decompose matrices, or convolve in loops, are printed for a platform."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
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
    assert rematc.lower(inverse, MATRIX).program.module.kernel_platform == "cpu"
    lowered = rematc.lower(inverse, MATRIX, target="cuda")
    assert lowered.program.module.kernel_platform == "cuda"
    assert "@cusolver_getrf_ffi" in lowered.stablehlo()
    assert "@lapack_dgetrf_ffi" in lowered.stablehlo("cpu")
    assert lowered.stablehlo("gpu") == lowered.stablehlo("cuda")
    np.testing.assert_allclose(lowered.compile("cpu")(MATRIX), np.linalg.inv(MATRIX))  # type: ignore[call-overload]  # an array


def test_a_function_without_decompositions_is_the_same_everywhere() -> None:
    lowered = rematc.lower(sine, MATRIX)
    assert lowered.program_for("cuda") is lowered.program
    assert rematc.lower(sine, MATRIX, target="tpu").stablehlo() == lowered.stablehlo()


@rematc.from_jax
def blurred(image: Any) -> Any:
    """Three times, the channels in front of the positions."""
    kernel = jax.numpy.full((1, 1, 3, 3), 1 / 9, np.float32)
    return jax.lax.fori_loop(0, 3, lambda _, x: jax.lax.conv(x, kernel, (1, 1), "SAME"), image)


def test_convolutions_in_loops_have_the_order_of_dimensions_that_the_cpu_is_fast_with() -> None:
    image = np.ones((1, 1, 8, 8), np.float32)
    lowered = rematc.lower(blurred, image)
    assert "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]" in lowered.stablehlo()
    assert lowered.program.platform == "cpu"
    for other in (lowered.stablehlo("cuda"), rematc.lower(blurred, image, target="cuda").stablehlo()):
        assert "[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]" in other and "[b, 0, 1, f]" not in other
    assert "[b, 0, 1, f]" in rematc.lower(blurred, image, target="cuda").stablehlo("cpu")
    np.testing.assert_allclose(rematc.jit(blurred)(image)[0, 0, 3:5, 3:5], 1, rtol=1e-6)  # far from the edges


def test_a_platform_without_kernels_is_the_users_error() -> None:
    with pytest.raises(CompileError, match="'lu' has no kernel on platform 'tpu'") as caught:
        rematc.lower(inverse, MATRIX, target="tpu")
    assert caught.value.loc is not None
    assert (caught.value.loc.file, caught.value.loc.line) == (__file__, inverse.__code__.co_firstlineno + 1)


def test_a_saved_function_runs_where_its_kernels_are(tmp_path: Path) -> None:
    rematc.compile(inverse, MATRIX).save(tmp_path / "inverse")
    loaded: Any = rematc.load(tmp_path / "inverse")
    np.testing.assert_array_equal(loaded(MATRIX), rematc.jit(inverse)(MATRIX))
    assert loaded.artifact.program.module.kernel_platform == "cpu"


def test_a_file_for_another_platform_is_refused(tmp_path: Path) -> None:
    lowered = rematc.lower(inverse, MATRIX, target="cuda")
    compiled = lowered.compile("cpu")
    foreign = type(compiled.artifact)(lowered.program, compiled.artifact.in_tree, compiled.artifact.out_tree)
    type(compiled)(foreign, compiled.executable, lowered).save(tmp_path / "inverse")
    with pytest.raises(CompileError, match="kernels of platform 'cuda' and cannot run on 'cpu'"):
        rematc.load(tmp_path / "inverse", target="cpu")
