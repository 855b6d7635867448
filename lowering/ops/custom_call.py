"""Lowering of `custom_call`, and its meaning: XLA compiles the call alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from rematc.ir.core import Equation
from rematc.ir.errors import CompileError
from rematc.ir.ops.custom_call import CustomCall, evaluates
from rematc.ir.types import TensorType, dtype_of_numpy
from rematc.ir.values import Array, Value
from rematc.lowering.program import Module, Program
from rematc.lowering.target import Target
from rematc.lowering.writer import UNKNOWN, Writer, ints, lowers, symbol


@lowers(CustomCall)
def custom_call(w: Writer, eqn: Equation) -> None:
    """`%r:2 = stablehlo.custom_call @f(%x) {backend_config = "..."} : (tensor<...>) -> (tensor<...>, tensor<...>)`."""
    op = eqn.op
    assert isinstance(op, CustomCall)
    w.calls.setdefault(op.target, eqn.loc)
    found = {symbol(name): value for name, value in op.attributes}
    if op.called:
        found["called_computations"] = f"[{', '.join([f'@{w.function(graph)}' for graph in op.called])}]"
    if op.has_side_effect:
        found["has_side_effect"] = "true"
    if op.has_layouts:
        found["operand_layouts"] = f"[{', '.join(map(_layout, op.operand_layouts))}]"
        found["result_layouts"] = f"[{', '.join(map(_layout, op.result_layouts))}]"
    if op.aliases:
        found["output_operand_aliases"] = f"[{', '.join([_alias(op, *pair) for pair in op.aliases])}]"
    attributes = ", ".join([f"{name} = {value}" for name, value in found.items()])
    call = f"stablehlo.custom_call @{symbol(op.target)}({w.names(eqn.operands)}) {{{attributes}}}"
    signature = f"({w.types(eqn.operands)}) -> ({w.types(eqn.results)})"
    w.line(f"{w.define_all(eqn.results)}{call} : {signature}", eqn.loc)


def _layout(order: Sequence[int]) -> str:
    listed = "" if not order else str(order[0]) if len(order) == 1 else ints(order)
    return f"dense<{listed}> : tensor<{len(order)}xindex>"


def _alias(op: CustomCall, result: int, operand: int) -> str:
    place = ints([result] if len(op.types) > 1 else [])
    return (
        f"#stablehlo.output_operand_alias<output_tuple_indices = {place}, operand_index = {operand}, "
        "operand_tuple_indices = []>"
    )


@evaluates
def evaluate_call(op: CustomCall, operands: Sequence[Array]) -> Sequence[Array]:
    """What a call gives.

    Raises:
        CompileError: no library has registered the function in this process, or it calls functions in turn.
    """
    if op.called:
        raise CompileError(
            f"'{op.name}' of '{op.target}' calls functions of its program, and cannot be evaluated alone; "
            "compile the program instead"
        )
    executable = _compiled(op, tuple([_type(array) for array in operands]))
    return [np.asarray(result) for result in executable(*operands)]


def _type(array: Array) -> TensorType:
    dtype = dtype_of_numpy(array.dtype)
    assert dtype is not None, f"operands have element types, not {array.dtype}"
    return TensorType(dtype, array.shape)


@lru_cache(maxsize=64)
def _compiled(op: CustomCall, types: tuple[TensorType, ...]) -> Any:
    from rematc.lowering.runtime import compile_program  # noqa: PLC0415  # jax is imported where it is used

    program = Program(_module(op, types), types, op.types, op.name)
    platform = program.module.kernel_platform
    return compile_program(program, None if platform is None else Target.of(platform))


def _module(op: CustomCall, types: Sequence[TensorType]) -> Module:
    """The module of which the call is all."""
    w = Writer(Target.of("cpu"))
    params, results = [Value(type) for type in types], tuple([Value(type) for type in op.types])
    listed = []
    for index, param in enumerate(params):
        w.bind(param, f"%arg{index}")
        listed.append(f"%arg{index}: {w.type(param.type)}")
    w.raw(f"func.func public @main({', '.join(listed)}) -> ({w.types(results)}) {{")
    w.equation(Equation(op, tuple(params), results))
    w.returned("func.return", [w.name(value) for value in results], [w.type(value.type) for value in results])
    w.raw("}")
    text = "\n".join([f"module @{op.name} {{", *w.lines, f"}} {UNKNOWN}", ""])
    return Module(text, calls=w.calls)
