"""Lowering of bitwise ops, shifts, comparison and select."""

from __future__ import annotations

from rematc.ir.core import Equation
from rematc.ir.ops import logical
from rematc.ir.types import DTYPES, Kind
from rematc.lowering.ops import elementwise
from rematc.lowering.ops.values import COMPARE_TYPES
from rematc.lowering.writer import Writer, lowers

lowers(
    logical.And,
    logical.Or,
    logical.Xor,
    logical.Not,
    logical.ShiftLeft,
    logical.ShiftRightArithmetic,
    logical.ShiftRightLogical,
)(elementwise.one_type)


@lowers(logical.Popcnt, logical.CountLeadingZeros)
def count_bits(w: Writer, eqn: Equation) -> None:
    """`%r = stablehlo.popcnt %x`, of signed integers as unsigned ones.

    XLA widens signed integers of 4 bits with their sign, and where they are constant it widens all of them so.
    """
    (x,), (result,) = eqn.operands, eqn.results
    type = x.type
    if type.dtype.kind is not Kind.INT:
        elementwise.one_type(w, eqn)
        return
    unsigned = type.with_dtype(DTYPES[f"u{type.dtype.bits}"])
    bits, count = w.fresh(), w.fresh()
    there, back = [f"({w.type(a)}) -> {w.type(b)}" for a, b in ((type, unsigned), (unsigned, type))]
    w.line(f"{bits} = stablehlo.bitcast_convert {w.name(x)} : {there}", eqn.loc)
    w.line(f"{count} = stablehlo.{eqn.op.name} {bits} : {w.type(unsigned)}", eqn.loc)
    w.line(f"{w.define(result)} = stablehlo.bitcast_convert {count} : {back}", eqn.loc)


@lowers(logical.Compare)
def compare(w: Writer, eqn: Equation) -> None:
    """`%r = stablehlo.compare LT, %x, %y, FLOAT : (tensor<...>, tensor<...>) -> tensor<...xi1>`."""
    assert isinstance(eqn.op, logical.Compare)
    operands, types = w.names(eqn.operands), w.types(eqn.operands)
    kind = COMPARE_TYPES[eqn.operands[0].type.dtype.kind]
    (result,) = eqn.results
    text = f"stablehlo.compare {eqn.op.direction}, {operands}, {kind} : ({types}) -> {w.type(result.type)}"
    w.line(f"{w.define(result)} = {text}", eqn.loc)


@lowers(logical.Select)
def select(w: Writer, eqn: Equation) -> None:
    """`%r = stablehlo.select %p, %x, %y : tensor<...xi1>, tensor<...>`."""
    operands = w.names(eqn.operands)
    (result,) = eqn.results
    types = f"{w.type(eqn.operands[0].type)}, {w.type(result.type)}"
    w.line(f"{w.define(result)} = stablehlo.select {operands} : {types}", eqn.loc)
