"""Lowering of triangular matrices: both ops are StableHLO's, and on the CPU calls of LAPACK where it has the type.

XLA on the CPU has no kernels for them: it writes loops over blocks, which take ten times LAPACK's time for a factor and
twice its time for a small system, and more memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from rematc.ir.builder import Builder
from rematc.ir.core import Equation
from rematc.ir.ops.matrices import batch_of, lower_triangle, upper_triangle
from rematc.ir.ops.triangular import Cholesky, TriangularSolve
from rematc.ir.values import Value
from rematc.lowering.ops.kernels import (
    LAPACK_PREFIXES,
    Kernel,
    bind_results,
    call_kernel,
    character,
    in_place,
    info_of,
    lapack,
    valid,
)
from rematc.lowering.writer import Writer, lowers


def _truth(value: bool) -> str:
    return "true" if value else "false"


@lowers(Cholesky)
def cholesky(w: Writer, eqn: Equation) -> None:
    """`%r = stablehlo.cholesky %a, lower = true : tensor<...>`. XLA writes zeros beyond the triangle."""
    assert isinstance(eqn.op, Cholesky)
    if _is_in_lapack(w, eqn):
        _factor_by_lapack(w, eqn, eqn.op)
        return
    operand = w.names(eqn.operands)
    (result,) = eqn.results
    parameters = f"lower = {_truth(eqn.op.lower)}"
    w.line(f"{w.define(result)} = stablehlo.cholesky {operand}, {parameters} : {w.type(result.type)}", eqn.loc)


@lowers(TriangularSolve)
def triangular_solve(w: Writer, eqn: Equation) -> None:
    """`%r = "stablehlo.triangular_solve"(%a, %y) <{..}> : ...`, in MLIR's generic form: it has no other."""
    op = eqn.op
    assert isinstance(op, TriangularSolve)
    if _is_in_lapack(w, eqn):
        _solve_by_lapack(w, eqn, op)
        return
    attributes = (
        f"left_side = {_truth(op.left_side)}, lower = {_truth(op.lower)}, "
        f"unit_diagonal = {_truth(op.unit_diagonal)}, transpose_a = #stablehlo<transpose {op.transpose_a}>"
    )
    operands, signature = w.names(eqn.operands), f"({w.types(eqn.operands)}) -> {w.type(eqn.results[0].type)}"
    call = f'"stablehlo.triangular_solve"({operands}) <{{{attributes}}}>'
    w.line(f"{w.define(eqn.results[0])} = {call} : {signature}", eqn.loc)


def _is_in_lapack(w: Writer, eqn: Equation) -> bool:
    """Whether LAPACK has the routine: on the CPU, for a type of BLAS's, and for matrices with elements."""
    type = eqn.results[0].type
    return w.target.kernels == "lapack" and type.dtype in LAPACK_PREFIXES and type.size > 0


def _factor_by_lapack(w: Writer, eqn: Equation, op: Cholesky) -> None:
    """potrf, which leaves the other triangle as it is, and says where the matrix was not positive definite."""
    (a,) = eqn.operands
    kernel = Kernel(lapack("potrf", a.type.dtype), {"uplo": character("L" if op.lower else "U")})
    types = [a.type, info_of(batch_of(a.type))]
    names = call_kernel(w, kernel, [(w.name(a), a.type)], types, eqn)

    def cleaned(b: Builder, factor: Value, failures: Value) -> Sequence[Value]:
        return (valid(b, failures, lower_triangle(b, factor) if op.lower else upper_triangle(b, factor)),)

    bind_results(w, eqn, in_place(w, cleaned, list(zip(names, types, strict=True)), eqn))


def _solve_by_lapack(w: Writer, eqn: Equation, op: TriangularSolve) -> None:
    """trsm, which solves in the memory of the right-hand side."""
    is_conjugate = op.transpose_a == "ADJOINT" and eqn.results[0].type.dtype.is_complex
    letter = "C" if is_conjugate else "N" if op.transpose_a == "NO_TRANSPOSE" else "T"
    options = {
        "diag": character("U" if op.unit_diagonal else "N"),
        "side": character("L" if op.left_side else "R"),
        "trans_x": character(letter),
        "uplo": character("L" if op.lower else "U"),
    }
    a, y = eqn.operands
    kernel = Kernel(lapack("trsm", a.type.dtype), options, overwritten=1)
    names = call_kernel(w, kernel, [(w.name(a), a.type), (w.name(y), y.type)], [y.type], eqn)
    bind_results(w, eqn, [(names[0], y.type)])
