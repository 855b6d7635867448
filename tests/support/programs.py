"""Small programs for the tests of the runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rematc.ir.builder import Builder
from rematc.ir.types import TensorType
from rematc.ir.values import Array, Value
from rematc.lowering.module import stablehlo_module
from rematc.lowering.program import Module, Program
from rematc.lowering.reading import module_of
from rematc.lowering.validation import mlir_context, parse


def program(
    types: Sequence[TensorType],
    body: Callable[..., Sequence[Value]],
    *,
    name: str = "f",
    constants: Sequence[Array] = (),
) -> Program:
    """The program of `body(builder, *parameters)`; `types` are those of the leaves and then of the constants."""
    b = Builder(name)
    params = [b.parameter(type, f"x{index}") for index, type in enumerate(types)]
    graph = b.build(*body(b, *params))
    return Program(stablehlo_module(graph), graph.param_types, graph.result_types, name, tuple(constants))


def read_module(text: str) -> Module:
    """The module of a text that somebody else wrote."""
    with mlir_context():
        return module_of(parse(text))
