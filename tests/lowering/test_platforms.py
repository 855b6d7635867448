"""Options by which XLA:CPU schedules for memory, and where they are left out."""

from __future__ import annotations

import dataclasses

import jax
import pytest

from rematc.ir.builder import Builder
from rematc.ir.core import Value
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.ir.types import F32, TensorType
from rematc.lowering.platforms import barrier_options, program_options
from rematc.lowering.program import Program
from rematc.lowering.runtime import compile_program
from tests.support.programs import program

ROWS, WIDTH, BRANCHES = 512, 32, 8
X, SQUARE = TensorType(F32, (ROWS, WIDTH)), TensorType(F32, (WIDTH, ROWS))
#: One branch's intermediate value.
UNIT = ROWS * ROWS * 4
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
    assert OPTION in program_options(made(), "cpu")
    monkeypatch.setenv("XLA_FLAGS", f"--{OPTION}={chosen[OPTION]}")
    assert program_options(made(), "cpu") == {}


def test_barriers_and_other_platforms_keep_the_usual_scheduler() -> None:
    assert program_options(made(pinned=True), "cpu") == barrier_options("cpu")
    assert OPTION not in program_options(made(pinned=True), "cpu")
    assert program_options(made(), "cuda", {"a": True}) == {"a": True}
