"""Programs compiled ahead of time: values, XLA's numbers, and errors with a way out."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from rematc.ir.errors import CompileError
from rematc.ir.ops.structural import ToMemory
from rematc.ir.types import F32, F64, TensorType
from rematc.lowering.program import Program
from rematc.lowering.runtime import Executable, compile_program
from rematc.lowering.target import Target
from rematc.lowering.xla_errors import explain_xla
from tests.support.programs import program

MATRIX = TensorType(F32, (32, 32))
VECTOR = TensorType(F64, (5,))


def offloading() -> Program:
    return program([MATRIX], lambda b, x: [b.emit1(ToMemory(False), b.emit1(ToMemory(True), x))], name="step")


@pytest.fixture(scope="module")
def product() -> Executable:
    return compile_program(
        program([MATRIX, MATRIX], lambda b, x, y: [b.dot_general(x, y, ((1,), (0,))), x], name="product")
    )


def test_it_computes(product: Executable) -> None:
    x, y = np.random.default_rng(0).normal(size=(2, 32, 32)).astype(np.float32)
    result, first = product(x, y)
    # float32 sums of 32 terms of size 1, in another order than NumPy's.
    np.testing.assert_allclose(result, x @ y, rtol=0, atol=1e-4)
    np.testing.assert_array_equal(first, x)
    assert isinstance(result, jax.Array)


def test_xlas_numbers(product: Executable) -> None:
    memory = product.memory()
    assert memory.argument_bytes == 2 * MATRIX.bytes
    assert memory.output_bytes >= 2 * MATRIX.bytes  # and the tuple that holds them
    assert memory.alias_bytes == memory.host_temp_bytes == 0
    assert product.flops() == pytest.approx(2 * 32**3, rel=0.1)  # XLA may count a few for the copy
    assert product.cost()["flops"] == product.flops()
    assert product.compile_seconds > 0
    assert product.target.platform == jax.default_backend()


def test_hlo_before_and_after_optimization(product: Executable) -> None:
    assert product.hlo().startswith("HloModule")
    assert "dot(" in product.hlo()
    assert "is_scheduled=true" in product.hlo_optimized()
    assert "is_scheduled=true" not in product.hlo()


def test_64_bit_values_and_constants() -> None:
    constant = np.array([2.0**-40, 1, 2, 3, 4])
    executable = compile_program(program([VECTOR, VECTOR], lambda b, x, c: [b.add(x, c)], constants=[constant]))
    with jax.enable_x64(False):
        (result,) = executable(np.ones(5))
    assert result.dtype == np.float64
    np.testing.assert_array_equal(result, constant + 1)


def test_donated_leaves_are_aliased() -> None:
    executable = compile_program(program([MATRIX], lambda b, x: [b.add(x, x)]), donated=[0])
    assert executable.memory().alias_bytes == MATRIX.bytes


def test_a_program_without_leaves() -> None:
    (result,) = compile_program(program([], lambda b: [b.full(VECTOR, 2)]))()
    np.testing.assert_array_equal(result, np.full(5, 2.0))


@pytest.mark.parametrize(
    ("leaves", "message"),
    [
        ((np.ones((32, 32), np.float32),), r"'product' takes 2 arrays, got 1"),
        ((np.ones((32, 32), np.float32), np.ones(32, np.float32)), r"for f32\[32,32\] as array 1, got f32\[32\]"),
        ((np.ones((32, 32)), np.ones((32, 32))), r"for f32\[32,32\] as array 0, got f64\[32,32\]"),
        (("text", np.ones((32, 32))), r"takes f32\[32,32\] as array 0, got a str"),
    ],
)
def test_arguments_of_other_types_are_named(product: Executable, leaves: tuple[object, ...], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        product(*leaves)


def test_a_platform_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(CompileError, match=r"no platform 'abacus' here \(found: .*cpu"):
        compile_program(offloading(), Target.of("abacus"))


def test_an_option_that_xla_does_not_have_is_named() -> None:
    with pytest.raises(CompileError, match=r"^No such compile option: 'xla_no_such_option'; leave it out"):
        compile_program(plain(), compiler_options={"xla_no_such_option": True})


def plain() -> Program:
    return program([MATRIX], lambda b, x: [b.negate(x)])


def test_offloading_where_there_is_no_host_memory_is_refused_before_compiling() -> None:
    message = r"'step' offloads values to the host's memory, but on platform 'cpu'.*; save these values"
    with pytest.raises(CompileError, match=message):
        compile_program(offloading(), Target.of("cpu"))


def test_running_out_of_memory_is_the_users_error() -> None:
    error = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1099511627776 bytes.\n\nBuffers:")
    with pytest.raises(CompileError) as caught:
        explain_xla(error, "step")
    assert "out of memory in 'step': RESOURCE_EXHAUSTED: Out of memory allocating 1099511627776 bytes;" in str(
        caught.value
    )
    assert "smaller budget" in str(caught.value)


def test_other_errors_of_xla_stay_what_they_are() -> None:
    explain_xla(jax.errors.JaxRuntimeError("INTERNAL: no"), "step")
