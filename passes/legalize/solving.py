"""Functions of a factored matrix: equations of triangular systems and diagonals."""

from __future__ import annotations

from collections.abc import Sequence

from rematc.ir.builder import Builder
from rematc.ir.ops.matrices import put_rows, take_rows
from rematc.ir.ops.solving import Determinant, LinearSolve, LogDeterminant, LuSolve, signed_diagonal
from rematc.ir.ops.triangular import TriangularSolve
from rematc.ir.values import Value
from rematc.passes.legalize.rules import expands


@expands(LinearSolve, LuSolve)
def linear_solve(b: Builder, op: LinearSolve | LuSolve, *operands: Value) -> Sequence[Value]:
    """Rows permuted, then l, then u; for the transpose all of it the other way round. The matrix itself is not read."""
    lu, permutation, y = operands[-3:]
    if op.transpose_a:
        inner = b.emit1(TriangularSolve(True, False, False, "TRANSPOSE"), lu, y)
        return [put_rows(b, b.emit1(TriangularSolve(True, True, True, "TRANSPOSE"), lu, inner), permutation)]
    inner = b.emit1(TriangularSolve(True, True, True), lu, take_rows(b, y, permutation))
    return [b.emit1(TriangularSolve(True, False), lu, inner)]


@expands(Determinant)
def determinant(b: Builder, op: Determinant, a: Value, lu: Value, pivots: Value, permutation: Value) -> Sequence[Value]:
    """The product of u's diagonal, with the permutation's sign."""
    return [b.reduce_prod(signed_diagonal(b, lu, pivots), (lu.type.rank - 2,))]


@expands(LogDeterminant)
def log_determinant(
    b: Builder, op: LogDeterminant, a: Value, lu: Value, pivots: Value, permutation: Value
) -> Sequence[Value]:
    """The product of the signs and the sum of the logarithms of u's diagonal."""
    entries, last = signed_diagonal(b, lu, pivots), (lu.type.rank - 2,)
    return b.reduce_prod(b.sign(entries), last), b.reduce_sum(b.log(b.abs(entries)), last)
