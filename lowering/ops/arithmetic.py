"""Lowering of arithmetic: one StableHLO op of the op's name, but for constant quotients and booleans."""

from __future__ import annotations

from rematc.ir.core import Equation
from rematc.ir.ops import arithmetic
from rematc.lowering.ops import elementwise
from rematc.lowering.writer import Writer, lowers

lowers(
    arithmetic.Negate,
    arithmetic.Subtract,
    arithmetic.Maximum,
    arithmetic.Minimum,
    arithmetic.Power,
    arithmetic.Sign,
)(elementwise.one_type)
lowers(arithmetic.Add, arithmetic.Multiply)(elementwise.arithmetic)
lowers(arithmetic.Divide)(elementwise.quotient)
lowers(arithmetic.Abs)(elementwise.signature)


@lowers(arithmetic.Clamp)
def clamp(w: Writer, eqn: Equation) -> None:
    """`%r = stablehlo.clamp %low, %x, %high : tensor<...>`; scalar bounds need the whole signature."""
    form = elementwise.one_type if len(set(eqn.operand_types)) == 1 else elementwise.signature
    form(w, eqn)
