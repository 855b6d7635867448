"""Lowering of conversions between element types."""

from __future__ import annotations

from rematc.ir.core import Equation
from rematc.ir.ops import conversion
from rematc.lowering.ops import elementwise
from rematc.lowering.writer import Writer, lowers

lowers(conversion.Convert, conversion.BitcastConvert)(elementwise.signature)


@lowers(conversion.ReducePrecision)
def reduce_precision(w: Writer, eqn: Equation) -> None:
    """`%r = stablehlo.reduce_precision %x, format = e5m10 : tensor<...>`."""
    assert isinstance(eqn.op, conversion.ReducePrecision)
    operand = w.names(eqn.operands)
    (result,) = eqn.results
    form = f"e{eqn.op.exponent_bits}m{eqn.op.mantissa_bits}"
    w.line(
        f"{w.define(result)} = stablehlo.reduce_precision {operand}, format = {form} : {w.type(result.type)}", eqn.loc
    )
