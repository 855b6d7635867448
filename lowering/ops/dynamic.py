"""Lowering of slices at a computed start."""

from __future__ import annotations

from rematc.ir.core import Equation
from rematc.ir.ops import dynamic
from rematc.lowering.writer import Writer, ints, lowers


@lowers(dynamic.DynamicSlice)
def dynamic_slice(w: Writer, eqn: Equation) -> None:
    """`%r = stablehlo.dynamic_slice %x, %i, %j, sizes = [1, 2] : (...) -> tensor<...>`."""
    assert isinstance(eqn.op, dynamic.DynamicSlice)
    operands, types = w.names(eqn.operands), w.types(eqn.operands)
    (result,) = eqn.results
    call = f"stablehlo.dynamic_slice {operands}, sizes = {ints(eqn.op.slice_sizes)}"
    w.line(f"{w.define(result)} = {call} : ({types}) -> {w.type(result.type)}", eqn.loc)


@lowers(dynamic.DynamicUpdateSlice)
def dynamic_update_slice(w: Writer, eqn: Equation) -> None:
    """`%r = stablehlo.dynamic_update_slice %x, %update, %i, %j : (...) -> tensor<...>`."""
    operands, types = w.names(eqn.operands), w.types(eqn.operands)
    (result,) = eqn.results
    w.line(
        f"{w.define(result)} = stablehlo.dynamic_update_slice {operands} : ({types}) -> {w.type(result.type)}", eqn.loc
    )
