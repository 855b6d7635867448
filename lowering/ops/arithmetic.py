"""Lowering of arithmetic: one StableHLO op of the op's name, but for `integer_power`, constant quotients, booleans."""

from __future__ import annotations

from rematc.ir.core import Equation
from rematc.ir.ops import arithmetic
from rematc.lowering.ops import elementwise
from rematc.lowering.writer import Writer, lowers

lowers(
    arithmetic.Negate,
    arithmetic.Subtract,
    arithmetic.Power,
    arithmetic.Maximum,
    arithmetic.Minimum,
    arithmetic.Sign,
)(elementwise.one_type)
lowers(arithmetic.Add, arithmetic.Multiply)(elementwise.arithmetic)
lowers(arithmetic.Divide)(elementwise.quotient)
lowers(arithmetic.Abs)(elementwise.signature)


@lowers(arithmetic.Clamp)
def clamp(w: Writer, eqn: Equation) -> None:
    """`%r = stablehlo.clamp %low, %x, %high : tensor<...>`; scalar bounds need the whole signature."""
    types = set(eqn.operand_types)
    form = elementwise.one_type if len(types) == 1 else elementwise.signature
    form(w, eqn)


@lowers(arithmetic.IntegerPower)
def integer_power(w: Writer, eqn: Equation) -> None:
    """Squares of x and the product of those that the exponent's bits choose; its reciprocal for a negative exponent."""
    assert isinstance(eqn.op, arithmetic.IntegerPower)
    type = w.type(eqn.results[0].type)

    def emit(text: str) -> str:
        name = w.fresh()
        w.line(f"{name} = stablehlo.{text} : {type}", eqn.loc)
        return name

    square, rest = w.name(eqn.operands[0]), abs(eqn.op.exponent)
    product: str | None = None
    while rest:
        if rest & 1:
            product = square if product is None else emit(f"multiply {product}, {square}")
        rest >>= 1
        if rest:
            square = emit(f"multiply {square}, {square}")
    if product is None or eqn.op.exponent < 0:
        one = emit(f"constant dense<{_one(eqn)}>")
        product = one if product is None else emit(f"divide {one}, {product}")
    w.bind(eqn.results[0], product)


def _one(eqn: Equation) -> str:
    dtype = eqn.results[0].type.dtype
    if dtype.is_complex:
        return "(1.0, 0.0)"
    return "1.0" if dtype.is_float else "1"
