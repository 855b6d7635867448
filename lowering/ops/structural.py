"""Lowering of literals, identities, barriers and moves between memories."""

from __future__ import annotations

from rematc.ir.core import Equation
from rematc.ir.ops import structural
from rematc.lowering.ops.values import literal
from rematc.lowering.writer import Writer, lowers


@lowers(structural.Constant)
def constant(w: Writer, eqn: Equation) -> None:
    """`%r = stablehlo.constant dense<...> : tensor<...>`."""
    assert isinstance(eqn.op, structural.Constant)
    (result,) = eqn.results
    w.bind(result, literal(w, eqn.op.array, eqn.loc))
    if result.type.dtype.is_integer and eqn.op.array.all():
        w.note_nonzero(result)


@lowers(structural.Iota)
def iota(w: Writer, eqn: Equation) -> None:
    """`%r = stablehlo.iota dim = 0 : tensor<...>`."""
    assert isinstance(eqn.op, structural.Iota)
    (result,) = eqn.results
    w.line(f"{w.define(result)} = stablehlo.iota dim = {eqn.op.dimension} : {w.type(result.type)}", eqn.loc)


@lowers(structural.Name, structural.StopGradient)
def identity(w: Writer, eqn: Equation) -> None:
    """No line: the result is the operand."""
    w.bind(eqn.results[0], w.name(eqn.operands[0]))


@lowers(structural.OptimizationBarrier)
def optimization_barrier(w: Writer, eqn: Equation) -> None:
    """`%r:2 = stablehlo.optimization_barrier %x, %y : tensor<...>, tensor<...>`."""
    if not eqn.operands:
        return
    operands = w.names(eqn.operands)
    types = w.types(eqn.operands)
    w.barriers += 1
    w.line(f"{w.define_all(eqn.results)}stablehlo.optimization_barrier {operands} : {types}", eqn.loc)


@lowers(structural.ToMemory)
def to_memory(w: Writer, eqn: Equation) -> None:
    """The custom call by which XLA places a value in the host's or the device's memory."""
    assert isinstance(eqn.op, structural.ToMemory)
    (operand,), (result,) = eqn.operands, eqn.results
    memory = "device"
    if eqn.op.on_host:
        memory = "pinned_host"
        w.memories.add(memory)
    call = f"stablehlo.custom_call @annotate_device_placement({w.name(operand)})"
    attributes = f'{{has_side_effect = true, mhlo.frontend_attributes = {{_xla_buffer_placement = "{memory}"}}}}'
    signature = f"({w.type(operand.type)}) -> {w.type(result.type)}"
    w.line(f"{w.define(result)} = {call} {attributes} : {signature}", eqn.loc)
