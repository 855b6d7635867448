"""The forms that elementwise ops share in StableHLO text."""

from __future__ import annotations

from rematc.ir.core import Equation
from rematc.lowering.writer import Writer


def one_type(w: Writer, eqn: Equation) -> None:
    """`%r = stablehlo.<name> %x, %y : tensor<...>`: operands and result are of one type."""
    operands = w.names(eqn.operands)
    (result,) = eqn.results
    w.line(f"{w.define(result)} = stablehlo.{eqn.op.name} {operands} : {w.type(result.type)}", eqn.loc)


def signature(w: Writer, eqn: Equation) -> None:
    """`%r = stablehlo.<name> %x : (tensor<...>) -> tensor<...>`: the result is of another type."""
    operands, types = w.names(eqn.operands), w.types(eqn.operands)
    (result,) = eqn.results
    w.line(f"{w.define(result)} = stablehlo.{eqn.op.name} {operands} : ({types}) -> {w.type(result.type)}", eqn.loc)


def chlo(w: Writer, eqn: Equation) -> None:
    """`%r = chlo.<name> %x, %y : tensor<...>, tensor<...> -> tensor<...>`."""
    operands, types = w.names(eqn.operands), w.types(eqn.operands)
    (result,) = eqn.results
    w.line(f"{w.define(result)} = chlo.{eqn.op.name} {operands} : {types} -> {w.type(result.type)}", eqn.loc)
