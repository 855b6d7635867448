"""Lowering of arithmetic: each op is one StableHLO op of the same name."""

from __future__ import annotations

from rematc.ir.core import Equation
from rematc.ir.ops import arithmetic
from rematc.lowering.writer import Writer, lowers


@lowers(arithmetic.Negate, arithmetic.Add, arithmetic.Subtract, arithmetic.Multiply, arithmetic.Divide)
def same_name(w: Writer, eqn: Equation) -> None:
    """`%r = stablehlo.<name> %x, %y : tensor<...>`."""
    operands = w.names(eqn.operands)
    (result,) = eqn.results
    w.line(f"{w.define(result)} = stablehlo.{eqn.op.name} {operands} : {w.type(result.type)}", eqn.loc)
