"""What a program says of itself is read off its ops, and not off the names that its user has given."""

from __future__ import annotations

import dataclasses

import pytest

from rematc.ir.core import Equation, Graph, Value
from rematc.ir.locations import Location
from rematc.ir.ops.arithmetic import Negate
from rematc.ir.ops.structural import OptimizationBarrier, ToMemory
from rematc.ir.types import F32, TensorType
from rematc.lowering.module import stablehlo_text
from rematc.lowering.program import Program, count_barriers
from rematc.lowering.validation import mlir_context, parse

TYPE = TensorType(F32, (4,))
NAMES = (
    "pinned_host",
    'mhlo.memory_kind = "pinned_host"',
    "stablehlo.optimization_barrier",
    "%0 = stablehlo.optimization_barrier %x",
    "\n    %0 = stablehlo.optimization_barrier %x",
    "stablehlo.custom_call @cusolver_potrf(",
    "\n    %0 = stablehlo.custom_call @cusolver_potrf(%x)",
    "loc(#loc1)",
    "é\\\"'%@{}()[]\t",
    "\udcff",
)


def negation(name: str) -> Program:
    """-x at a place that has this name for its file, its function and its argument."""
    x, y = Value(TYPE, name), Value(TYPE)
    graph = Graph(name, (x,), (Equation(Negate(), (x,), (y,), Location(name, 1, 1, name)),), (y,))
    return Program(stablehlo_text(graph), (TYPE,), (TYPE,), name)


def printed_by_mlir(program: Program) -> Program:
    """The same program as it comes out of a file."""
    with mlir_context():
        return dataclasses.replace(program, text=str(parse(program.text).operation.get_asm(enable_debug_info=True)))


@pytest.mark.parametrize("name", NAMES)
def test_a_users_names_are_no_ops(name: str) -> None:
    for program in (negation(name), printed_by_mlir(negation(name))):
        found = (program.uses_host_memory, program.has_barriers, count_barriers(program.text), program.kernel_platform)
        assert found == (False, False, 0, None)


def test_ops_are_found() -> None:
    x, held, there, back = Value(TYPE), Value(TYPE), Value(dataclasses.replace(TYPE, on_host=True)), Value(TYPE)
    equations = (
        Equation(OptimizationBarrier(), (x,), (held,)),
        Equation(ToMemory(True), (held,), (there,)),
        Equation(ToMemory(False), (there,), (back,)),
    )
    for results in ((back,), (there,)):
        graph = Graph("f", (x,), equations, results)
        program = Program(stablehlo_text(graph), (TYPE,), tuple(value.type for value in results), "f")
        for one in (program, printed_by_mlir(program)):
            assert one.uses_host_memory and one.has_barriers and count_barriers(one.text) == 1


KERNEL = """module @f {
  func.func public @main(%arg0: tensor<2xf32>) -> tensor<2xf32> {
    %0 = stablehlo.custom_call @lapack_f(%arg0) : (tensor<2xf32>) -> tensor<2xf32> loc(#loc1)
    return %0 : tensor<2xf32>
  }
}
#loc1 = loc("f\\C3\\B6r \\22x\\22"("m\\C3\\BCll.py":3:7))
"""


def test_a_kernel_is_found_with_the_users_line() -> None:
    program = Program(KERNEL, (TensorType(F32, (2,)),) * 1, (TensorType(F32, (2,)),), "f")
    assert program.kernel_platform == "cpu"
    assert program.location_of_call("lapack_f") == Location("müll.py", 3, 7, 'för "x"')
