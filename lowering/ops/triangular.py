"""Lowering of triangular matrices: both ops are StableHLO's."""

from __future__ import annotations

from rematc.ir.core import Equation
from rematc.ir.ops.triangular import Cholesky, TriangularSolve
from rematc.lowering.writer import Writer, lowers


def _truth(value: bool) -> str:
    return "true" if value else "false"


@lowers(Cholesky)
def cholesky(w: Writer, eqn: Equation) -> None:
    """`%r = stablehlo.cholesky %a, lower = true : tensor<...>`. XLA writes zeros beyond the triangle."""
    assert isinstance(eqn.op, Cholesky)
    operand = w.names(eqn.operands)
    (result,) = eqn.results
    parameters = f"lower = {_truth(eqn.op.lower)}"
    w.line(f"{w.define(result)} = stablehlo.cholesky {operand}, {parameters} : {w.type(result.type)}", eqn.loc)


@lowers(TriangularSolve)
def triangular_solve(w: Writer, eqn: Equation) -> None:
    """`%r = "stablehlo.triangular_solve"(%a, %y) <{..}> : ...`, in MLIR's generic form: it has no other."""
    op = eqn.op
    assert isinstance(op, TriangularSolve)
    attributes = (
        f"left_side = {_truth(op.left_side)}, lower = {_truth(op.lower)}, "
        f"unit_diagonal = {_truth(op.unit_diagonal)}, transpose_a = #stablehlo<transpose {op.transpose_a}>"
    )
    operands, signature = w.names(eqn.operands), f"({w.types(eqn.operands)}) -> {w.type(eqn.results[0].type)}"
    call = f'"stablehlo.triangular_solve"({operands}) <{{{attributes}}}>'
    w.line(f"{w.define(eqn.results[0])} = {call} : {signature}", eqn.loc)
