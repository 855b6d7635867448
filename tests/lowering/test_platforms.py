"""Options by which XLA:CPU schedules for memory, and where they are left out."""

from __future__ import annotations

import jax
import pytest

from rematc.ir.builder import Builder
from rematc.ir.core import Value
from rematc.ir.ops.regions import Call
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.ir.types import F32, TensorType
from rematc.lowering.platforms import barrier_options, program_options, usual_options
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


def made(*, pinned: bool = False) -> Program:
    return program([X, SQUARE], lambda b, x, w: branches(b, x, w, pinned=pinned), name="branches")


needs_cpu = pytest.mark.skipif(jax.default_backend() != "cpu", reason="an option of XLA on the CPU")


@needs_cpu
def test_a_program_without_barriers_runs_one_branch_after_the_other() -> None:
    """The usual scheduler runs what is ready first: all branches' first products, then all others."""
    usual = compile_program(made(), compiler_options=usual_options("cpu")).memory().temp_bytes
    assert usual > (BRANCHES - 1) * UNIT
    assert compile_program(made()).memory().temp_bytes < 3 * UNIT


@needs_cpu
def test_what_the_environment_chooses_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    assert OPTION in program_options(made(), "cpu")
    monkeypatch.setenv("XLA_FLAGS", f"--{OPTION}=CPU_SCHEDULER_TYPE_CONCURRENCY_OPTIMIZED")
    assert program_options(made(), "cpu") == usual_options("cpu") == {}


@needs_cpu
def test_barriers_functions_apart_and_other_platforms_keep_the_usual_scheduler() -> None:
    assert program_options(made(pinned=True), "cpu") == barrier_options("cpu")
    assert OPTION not in program_options(made(pinned=True), "cpu")
    assert program_options(made(), "cuda", {"a": True}) == {"a": True}
    inner = Builder("inner")
    body = inner.build(inner.negate(inner.parameter(X)))
    apart = program([X], lambda b, x: b.emit(Call(body, is_inlineable=False), x))
    assert OPTION not in program_options(apart, "cpu")
    inlined = program([X], lambda b, x: b.emit(Call(body), x))
    assert OPTION in program_options(inlined, "cpu")
