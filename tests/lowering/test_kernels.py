"""Programs that call jaxlib's kernels: they find them, and say so where there are none."""

from __future__ import annotations

import subprocess
import sys

import jaxlib.lapack
import pytest

from rematc.ir.errors import CompileError
from rematc.ir.types import F64, I32, TensorType
from rematc.lowering.program import Program
from rematc.lowering.runtime import compile_program
from rematc.lowering.target import Target
from rematc.lowering.targeting import current_target
from tests.support.programs import read_module

MATRIX = TensorType(F64, (2, 2))
TEXT = """module @lu {
  func.func public @main(%a: tensor<2x2xf64>) -> (tensor<2x2xf64>, tensor<2xi32>) {
    %0:3 = stablehlo.custom_call @lapack_dgetrf_ffi(%a) {api_version = 4 : i32, backend_config = {},
      operand_layouts = [dense<[0, 1]> : tensor<2xindex>],
      result_layouts = [dense<[0, 1]> : tensor<2xindex>, dense<0> : tensor<1xindex>, dense<> : tensor<0xindex>]}
      : (tensor<2x2xf64>) -> (tensor<2x2xf64>, tensor<2xi32>, tensor<i32>)
    func.return %0#0, %0#1 : tensor<2x2xf64>, tensor<2xi32>
  }
}
"""
RUN = """
import numpy as np
from tests.lowering.test_kernels import *
print(compile_program(lu(TEXT))(np.array([[1.0, 2.0], [4.0, 4.0]]))[1])
"""


def lu(text: str) -> Program:
    return Program(read_module(text), (MATRIX,), (MATRIX, TensorType(I32, (2,))), "lu")


def test_a_program_runs_where_nothing_else_loaded_the_kernels() -> None:
    """In a process of its own: a kernel without its LAPACK ends the process."""
    command = [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{RUN}"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "[2 2]\n"), ran.stderr


@pytest.mark.parametrize(
    ("target", "platform"),
    [
        ("lapack_dgetrf_ffi", "cpu"),
        ("cusolver_getrf_ffi", "cuda"),
        ("cu_lu_pivots_to_permutation", "cuda"),
        ("hipsolver_getrf_ffi", "rocm"),
        ("hip_lu_pivots_to_permutation", "rocm"),
        ("Sharding", None),
    ],
)
def test_a_program_knows_the_platform_of_its_kernels(target: str, platform: str | None) -> None:
    assert lu(TEXT.replace("lapack_dgetrf_ffi", target)).module.kernel_platform == platform


def test_a_program_for_another_platform_is_refused() -> None:
    program = lu(TEXT.replace("lapack_dgetrf_ffi", "cusolver_getrf_ffi"))
    with pytest.raises(CompileError, match="kernels of platform 'cuda' and cannot run on 'cpu'; compile it for 'cpu'"):
        compile_program(program, Target.of("cpu"))


def test_kernels_are_registered_under_the_names_that_we_call() -> None:
    names = {name for name, _, api_version in jaxlib.lapack.registrations()["cpu"] if api_version == 1}
    routines = ("getrf", "geqrf", "gesdd", "geev")
    assert {f"lapack_{kind}{routine}_ffi" for kind in "sdcz" for routine in routines} <= names
    real, unitary = ("orgqr", "syevd"), ("ungqr", "heevd")
    assert {f"lapack_{kind}{routine}_ffi" for kind in "sd" for routine in real} <= names
    assert {f"lapack_{kind}{routine}_ffi" for kind in "cz" for routine in unitary} <= names


def test_the_default_platform_has_the_name_that_kernels_go_by() -> None:
    assert current_target().platform in ("cpu", "cuda", "rocm", "tpu")
