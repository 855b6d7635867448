"""Options by which XLA:CPU schedules for memory, and where they are left out."""

from __future__ import annotations

import dataclasses

import jax
import pytest

from rematc.ir.builder import Builder
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.ir.types import F32, TensorType
from rematc.ir.values import Value
from rematc.lowering.program import Program
from rematc.lowering.runtime import compile_program
from rematc.lowering.target import Target, platform_of_kernel
from tests.support.programs import program

ROWS, WIDTH, BRANCHES = 512, 32, 8
X, SQUARE = TensorType(F32, (ROWS, WIDTH)), TensorType(F32, (WIDTH, ROWS))
#: One branch's intermediate value.
UNIT = ROWS * ROWS * 4
CPU, CUDA = Target.of("cpu"), Target.of("cuda")
OPTION = "xla_cpu_scheduler_type"


def branches(b: Builder, x: Value, w: Value, *, pinned: bool = False) -> list[Value]:
    """Products of [ROWS, ROWS] that do not depend on one another, of each of which little is kept."""
    total = None
    for index in range(BRANCHES):
        scaled = b.multiply(x, b.full(X, 1 + index))
        if pinned:
            scaled = b.emit1(OptimizationBarrier(), scaled)
        large = b.dot_general(scaled, w, ((1,), (0,)))
        small = b.dot_general(b.multiply(large, large), x, ((1,), (0,)))
        total = small if total is None else b.add(total, small)
    assert total is not None
    return [total]


def made(*, pinned: bool = False, is_depth_first: bool = True) -> Program:
    given = program([X, SQUARE], lambda b, x, w: branches(b, x, w, pinned=pinned), name="branches")
    return dataclasses.replace(given, is_depth_first=is_depth_first)


needs_cpu = pytest.mark.skipif(jax.default_backend() != "cpu", reason="an option of XLA on the CPU")


@needs_cpu
def test_depth_first_one_branch_runs_after_the_other() -> None:
    """The usual scheduler runs what is ready first: all branches' first products, then all others."""
    assert compile_program(made(is_depth_first=False)).memory().temp_bytes > (BRANCHES - 1) * UNIT
    assert compile_program(made()).memory().temp_bytes < 3 * UNIT


@needs_cpu
def test_what_the_user_chooses_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = {OPTION: "CPU_SCHEDULER_TYPE_CONCURRENCY_OPTIMIZED"}
    assert compile_program(made(), compiler_options=chosen).memory().temp_bytes > (BRANCHES - 1) * UNIT
    assert OPTION in made().compile_options(CPU)
    monkeypatch.setenv("XLA_FLAGS", f"--{OPTION}={chosen[OPTION]}")
    assert made().compile_options(CPU) == {}


def test_barriers_and_other_platforms_keep_the_usual_scheduler() -> None:
    assert made(pinned=True).compile_options(CPU) == CPU.compile_options(has_barriers=True)
    assert OPTION not in made(pinned=True).compile_options(CPU)
    assert made().compile_options(CUDA, {"a": True}) == {"a": True}


def test_barriers_hold_but_for_older_ones_on_the_cpu_without_options() -> None:
    older = Target("cpu", jaxlib=(0, 11, 1))
    assert (older.barriers_hold, older.barrier_strategy) == (False, "call")
    assert dataclasses.replace(older, has_options=True).barrier_strategy == "optimization_barrier"
    for other in (Target("cpu", jaxlib=(0, 12, 0)), Target("cuda", jaxlib=(0, 10, 2)), Target("tpu", jaxlib=(0, 10))):
        assert other.barriers_hold and other.barrier_strategy == "optimization_barrier"
        assert other.compile_options({"a": 1}, has_barriers=True) == {"a": 1}
    disabled = {"xla_disable_hlo_passes": "cse_barrier_expander,small-while-loop-hoisting"}
    assert older.compile_options(has_barriers=True) == disabled
    assert older.compile_options() == {}


def test_a_target_is_named_as_its_kernels_are() -> None:
    assert Target.of("gpu") == Target.of("cuda")
    kernels = {platform: Target.of(platform).kernels for platform in ("cpu", "cuda", "rocm", "tpu")}
    assert kernels == {"cpu": "lapack", "cuda": "cu", "rocm": "hip", "tpu": ""}
    assert [Target.of(platform).has_host_memory for platform in kernels] == [False, True, True, True]
    assert platform_of_kernel("lapack_sgetrf_ffi") == "cpu" and platform_of_kernel("cusolver_getrf_ffi") == "cuda"
