"""Lowering of conversions between element types."""

from __future__ import annotations

from rematc.ir.core import Equation
from rematc.ir.ops import conversion
from rematc.ir.ops.complex_parts import part_dtype
from rematc.ir.types import DTYPES, DType
from rematc.ir.values import Value
from rematc.lowering.ops import elementwise
from rematc.lowering.ops.values import converted
from rematc.lowering.writer import Writer, lowers

lowers(conversion.BitcastConvert)(elementwise.signature)


@lowers(conversion.Convert)
def convert(w: Writer, eqn: Equation) -> None:
    """`%r = stablehlo.convert %x : (tensor<4xf32>) -> tensor<4xi32>`.

    Integers of fewer than 8 bits become those of 8 by way of 32: XLA computes the former in 8 bits, and takes what
    overflows the fewer as it is. Of complex numbers it is the real part, which XLA dies of finding in known ones.
    """
    (operand,), (result,) = eqn.operands, eqn.results
    old, new = operand.type.dtype, result.type.dtype
    if old.is_complex and not new.is_complex:
        way, x = part_dtype(old), w.fresh()
        w.line(f"{x} = stablehlo.real {w.name(operand)} : ({w.type(operand.type)}) -> {_in(w, operand, way)}", eqn.loc)
    elif old.is_integer and old.bits < 8 and new.is_integer and new.bits == 8:
        way = DTYPES["i32"]
        x = converted(w, w.name(operand), operand.type, way, eqn.loc)
    else:
        elementwise.signature(w, eqn)
        return
    w.bind(result, converted(w, x, operand.type.with_dtype(way), new, eqn.loc))


def _in(w: Writer, value: Value, dtype: DType) -> str:
    return w.type(value.type.with_dtype(dtype))


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
