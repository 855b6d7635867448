"""Lowering of functions of a factored matrix: equations of triangular systems and diagonals."""

from __future__ import annotations

from collections.abc import Sequence

from rematc.ir.builder import Builder
from rematc.ir.core import Equation, Value
from rematc.ir.ops.matrices import put_rows, take_rows
from rematc.ir.ops.solving import Determinant, LinearSolve, LogDeterminant, LuSolve, signed_diagonal
from rematc.ir.ops.triangular import TriangularSolve
from rematc.lowering.ops.kernels import expand
from rematc.lowering.writer import Writer, lowers


@lowers(LinearSolve, LuSolve)
def linear_solve(w: Writer, eqn: Equation) -> None:
    """Rows permuted, then l, then u; for the transpose all of it the other way round. The matrix itself is not read."""
    assert isinstance(eqn.op, LinearSolve | LuSolve)
    solved = _transposed if eqn.op.transpose_a else _direct
    expand(w, eqn, lambda b, *operands: solved(b, *operands[-3:]))


def _direct(b: Builder, lu: Value, permutation: Value, y: Value) -> Sequence[Value]:
    inner = b.emit1(TriangularSolve(True, True, True), lu, take_rows(b, y, permutation))
    return [b.emit1(TriangularSolve(True, False), lu, inner)]


def _transposed(b: Builder, lu: Value, permutation: Value, y: Value) -> Sequence[Value]:
    inner = b.emit1(TriangularSolve(True, False, False, "TRANSPOSE"), lu, y)
    return [put_rows(b, b.emit1(TriangularSolve(True, True, True, "TRANSPOSE"), lu, inner), permutation)]


@lowers(Determinant)
def determinant(w: Writer, eqn: Equation) -> None:
    """The product of u's diagonal, with the permutation's sign."""

    def product(b: Builder, a: Value, lu: Value, pivots: Value, permutation: Value) -> Sequence[Value]:
        return [b.reduce_prod(signed_diagonal(b, lu, pivots), (lu.type.rank - 2,))]

    expand(w, eqn, product)


@lowers(LogDeterminant)
def log_determinant(w: Writer, eqn: Equation) -> None:
    """The product of the signs and the sum of the logarithms of u's diagonal."""

    def parts(b: Builder, a: Value, lu: Value, pivots: Value, permutation: Value) -> Sequence[Value]:
        entries, last = signed_diagonal(b, lu, pivots), (lu.type.rank - 2,)
        return b.reduce_prod(b.sign(entries), last), b.reduce_sum(b.log(b.abs(entries)), last)

    expand(w, eqn, parts)
