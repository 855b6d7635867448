"""What a program says of itself is read off its ops, and not off the names that its user has given."""

from __future__ import annotations

import dataclasses

import pytest

from rematc.ir.core import Equation, Graph
from rematc.ir.locations import Location
from rematc.ir.ops.arithmetic import Negate
from rematc.ir.ops.factorization import Lu
from rematc.ir.ops.structural import OptimizationBarrier, ToMemory
from rematc.ir.types import F32, I32, TensorType
from rematc.ir.values import Value
from rematc.lowering.module import stablehlo_module
from rematc.lowering.program import Module
from tests.support.programs import read_module

TYPE = TensorType(F32, (4,))
PAIR = TensorType(I32, (2,))
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


def negation(name: str) -> Module:
    """-x at a place that has this name for its file, its function and its argument."""
    x, y = Value(TYPE, name), Value(TYPE)
    return stablehlo_module(Graph(name, (x,), (Equation(Negate(), (x,), (y,), Location(name, 1, 1, name)),), (y,)))


@pytest.mark.parametrize("name", NAMES)
def test_a_users_names_are_no_ops(name: str) -> None:
    for module in (negation(name), read_module(negation(name).text)):
        assert (module.uses_host_memory, module.barriers, module.kernel_platform) == (False, 0, None)


def test_what_is_written_is_what_mlir_reads() -> None:
    x, held, there, back = Value(TYPE), Value(TYPE), Value(dataclasses.replace(TYPE, on_host=True)), Value(TYPE)
    equations = (
        Equation(OptimizationBarrier(), (x,), (held,)),
        Equation(ToMemory(True), (held,), (there,)),
        Equation(ToMemory(False), (there,), (back,)),
    )
    for results in ((back,), (there,)):
        module = stablehlo_module(Graph("f", (x,), equations, results))
        for one in (module, read_module(module.text)):
            assert (one.uses_host_memory, one.barriers) == (True, 1)
    through = stablehlo_module(Graph("f", (there,), (), (there,)))
    assert through.uses_host_memory and read_module(through.text).uses_host_memory


def test_calls_are_written_with_the_users_line() -> None:
    matrix, line = TensorType(F32, (2, 2)), Location("müll.py", 3, 7, 'för "x"')
    x, packed, pivots, permutation = Value(matrix), Value(matrix), Value(PAIR), Value(PAIR)
    module = stablehlo_module(Graph("f", (x,), (Equation(Lu(), (x,), (packed, pivots, permutation), line),), (packed,)))
    assert module.calls == {"lapack_sgetrf_ffi": line} == read_module(module.text).calls


KERNEL = """module @f {
  func.func public @main(%arg0: tensor<2xf32>) -> tensor<2xf32> {
    %0 = stablehlo.custom_call @lapack_f(%arg0) : (tensor<2xf32>) -> tensor<2xf32> loc(#loc1)
    return %0 : tensor<2xf32>
  }
}
#loc1 = loc("f\\C3\\B6r \\22x\\22"("m\\C3\\BCll.py":3:7))
"""


def test_a_kernel_is_found_with_the_users_line() -> None:
    module = read_module(KERNEL)
    assert module.kernel_platform == "cpu"
    assert module.calls["lapack_f"] == Location("müll.py", 3, 7, 'för "x"')
