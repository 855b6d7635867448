"""Lowering of conversions between element types."""

from __future__ import annotations

from rematc.ir.core import Equation
from rematc.ir.ops import conversion
from rematc.ir.types import DTYPES
from rematc.lowering.ops import elementwise
from rematc.lowering.ops.values import converted
from rematc.lowering.writer import Writer, lowers

lowers(conversion.BitcastConvert)(elementwise.signature)


@lowers(conversion.Convert)
def convert(w: Writer, eqn: Equation) -> None:
    """`%r = stablehlo.convert %x : (tensor<4xf32>) -> tensor<4xi32>`.

    Integers of fewer than 8 bits become those of 8 by way of 32: XLA computes the former in 8 bits, and takes what
    overflows the fewer as it is.
    """
    (operand,), (result,) = eqn.operands, eqn.results
    narrow, dtype = operand.type.dtype, result.type.dtype
    if not (narrow.is_integer and narrow.bits < 8 and dtype.is_integer and dtype.bits == 8):
        elementwise.signature(w, eqn)
        return
    wide = DTYPES["i32"]
    x = converted(w, w.name(operand), operand.type, wide, eqn.loc)
    w.bind(result, converted(w, x, operand.type.with_dtype(wide), dtype, eqn.loc))


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
