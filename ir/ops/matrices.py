"""Matrices in the last two dimensions of an array: what rules of linear algebra are written with.

The dimensions before the last two are a batch of any shape. Functions that emit equations keep linear what they are
given linear: tangents go through all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from rematc.ir.core import Emitter, Op
from rematc.ir.errors import TypeMismatchError
from rematc.ir.ops.complex_parts import Conj, Real
from rematc.ir.ops.dot import DotGeneral
from rematc.ir.ops.elementwise import Numeric, widened
from rematc.ir.ops.gather_scatter import GatherDimensions, ScatterDimensions
from rematc.ir.ops.indexing import Gather, ScatterAdd
from rematc.ir.types import BOOL, C64, C128, F32, F64, I32, TensorType, dtype_of_numpy
from rematc.ir.values import Array, Value

#: The element types that LAPACK computes in.
LAPACK_TYPES = (F32, F64, C64, C128)


# -- types -------------------------------------------------------------------------------------------------------------


def check_matrices(op: Op, operand: TensorType) -> None:
    """Raise TypeMismatchError unless the operand is a matrix, or a batch of them, that LAPACK takes."""
    if operand.dtype not in LAPACK_TYPES:
        listed = ", ".join(dtype.name for dtype in LAPACK_TYPES)
        raise TypeMismatchError(f"'{op.name}' takes elements of {listed}, got {operand}; convert the operand")
    if operand.rank < 2:
        raise TypeMismatchError(f"'{op.name}' takes matrices in the last two dimensions, got {operand}")


def check_square(op: Op, operand: TensorType) -> None:
    """Raise TypeMismatchError unless the last two dimensions are of one size."""
    if operand.rank < 2 or operand.shape[-1] != operand.shape[-2]:
        raise TypeMismatchError(f"'{op.name}' takes square matrices in the last two dimensions, got {operand}")


def batch_of(x: TensorType) -> tuple[int, ...]:
    """The dimensions before the last two."""
    return x.shape[:-2]


def per_matrix(x: TensorType, flops: int) -> int:
    """The work on all matrices of the batch."""
    return math.prod(batch_of(x)) * flops


# -- equations ---------------------------------------------------------------------------------------------------------


def matmul(b: Emitter, x: Value, y: Value) -> Value:
    """x y, in full precision on devices that have less."""
    return _contracted(b, x, y, x.type.rank - 1, x.type.rank - 2)


def adjoint_times(b: Emitter, x: Value, y: Value) -> Value:
    """xᴴ y, without a transpose that derivatives would keep beside x."""
    return _contracted(b, conjugate(b, x), y, x.type.rank - 2, x.type.rank - 2)


def times_adjoint(b: Emitter, x: Value, y: Value) -> Value:
    """x yᴴ, without a transpose that derivatives would keep beside y."""
    return _contracted(b, x, conjugate(b, y), x.type.rank - 1, x.type.rank - 1)


def _contracted(b: Emitter, x: Value, y: Value, of_x: int, of_y: int) -> Value:
    batch = tuple(range(x.type.rank - 2))
    return b.emit1(DotGeneral(((of_x,), (of_y,)), (batch, batch), None, "HIGHEST"), x, y)


def transposed(b: Emitter, x: Value) -> Value:
    """The transpose of each matrix."""
    rank = x.type.rank
    return b.transpose(x, (*range(rank - 2), rank - 1, rank - 2))


def real_part(b: Emitter, x: Value) -> Value:
    """The real part."""
    return b.emit1(Real(), x) if x.type.dtype.is_complex else x


def conjugate(b: Emitter, x: Value) -> Value:
    """The complex conjugate."""
    return b.emit1(Conj(), x) if x.type.dtype.is_complex else x


def square_magnitude(b: Emitter, x: Value) -> Value:
    """The square of the absolute value."""
    return real_part(b, b.multiply(conjugate(b, x), x))


def adjoint(b: Emitter, x: Value) -> Value:
    """The conjugate transpose of each matrix."""
    return conjugate(b, transposed(b, x))


def hermitian_part(b: Emitter, x: Value) -> Value:
    """(x + xᴴ) / 2."""
    return b.scale(b.add(x, adjoint(b, x)), 0.5)


def band(b: Emitter, x: TensorType, direction: str, offset: int = 0) -> Value:
    """Booleans of the shape of `x`: whether row + offset `direction` column."""
    places = TensorType(I32, x.shape)
    rows, columns = b.iota(places, x.rank - 2), b.iota(places, x.rank - 1)
    return b.compare(b.add(rows, b.full(places, offset)) if offset else rows, columns, direction)


def lower_triangle(b: Emitter, x: Value, offset: int = 0) -> Value:
    """Zero above the diagonal, or above the one that lies `offset` to its right."""
    return b.select(band(b, x.type, "GE", offset), x, b.zeros(x.type))


def upper_triangle(b: Emitter, x: Value, offset: int = 0) -> Value:
    """Zero below the diagonal, or below the one that lies `offset` to its right."""
    return b.select(band(b, x.type, "LE", offset), x, b.zeros(x.type))


def identity(b: Emitter, x: TensorType) -> Value:
    """Ones on the diagonal, zeros elsewhere."""
    return b.select(band(b, x, "EQ"), b.full(x, 1), b.zeros(x))


def diagonal(b: Emitter, x: Value) -> Value:
    """The diagonal of each matrix: [..., m, n] to [..., min(m, n)]."""
    (m, n), rank = x.type.shape[-2:], x.type.rank
    on_diagonal = b.select(band(b, x.type, "EQ"), x, b.zeros(x.type))
    # Each column of a tall matrix, and each row of a wide one, has one element of the diagonal.
    return b.reduce_sum(on_diagonal, (rank - 2 if m >= n else rank - 1,))


def as_rows(b: Emitter, x: Value, count: int) -> Value:
    """Each vector `count` times, one below the other: [..., n] to [..., count, n]."""
    rank = x.type.rank
    return b.broadcast_in_dim(x, (*x.type.shape[:-1], count, x.type.shape[-1]), (*range(rank - 1), rank))


def as_columns(b: Emitter, x: Value, count: int) -> Value:
    """Each vector `count` times, one beside the other: [..., n] to [..., n, count]."""
    return b.broadcast_in_dim(x, (*x.type.shape, count), range(x.type.rank))


def rows(b: Emitter, x: Value, start: int, stop: int) -> Value:
    """The rows from `start` up to `stop`."""
    batch, (_, n) = batch_of(x.type), x.type.shape[-2:]
    return b.slice(x, (*[0] * len(batch), start, 0), (*batch, stop, n))


def columns(b: Emitter, x: Value, start: int, stop: int) -> Value:
    """The columns from `start` up to `stop`."""
    batch, (m, _) = batch_of(x.type), x.type.shape[-2:]
    return b.slice(x, (*[0] * len(batch), 0, start), (*batch, m, stop))


def padded(b: Emitter, x: Value, m: int, n: int) -> Value:
    """Each matrix in the upper left corner of one of zeros, of shape [m, n]."""
    none = [0] * (x.type.rank - 2)
    below, beside = m - x.type.shape[-2], n - x.type.shape[-1]
    return b.pad(x, b.zeros(x.type.with_shape(())), [*none, 0, 0], [*none, below, beside])


def continued(b: Emitter, x: Value, size: int) -> Value:
    """Each matrix in the upper left corner of one of shape [size, size], whose diagonal goes on with ones."""
    k = min(x.type.shape[-2:])
    if k == size:
        return x
    ones = identity(b, x.type.with_shape((*batch_of(x.type), size - k, size - k)))
    none = [0] * (x.type.rank - 2)
    corner = b.pad(ones, b.zeros(x.type.with_shape(())), [*none, k, k], [*none, 0, 0])
    return b.add(padded(b, x, size, size), corner)


def take_rows(b: Emitter, x: Value, permutation: Value) -> Value:
    """Row i of each result is row `permutation[i]` of `x`: [..., m, n] at [..., m]."""
    if x.type.size == 0:
        return x
    batch = x.type.rank - 2
    return b.emit1(Gather(_rows_at(batch), (*[1] * batch, 1, x.type.shape[-1])), x, permutation)


def put_rows(b: Emitter, x: Value, permutation: Value) -> Value:
    """Row `permutation[i]` of each result is row i of `x`: undoes `take_rows`."""
    if x.type.size == 0:
        return x
    adding = ScatterAdd(ScatterDimensions.of(_rows_at(x.type.rank - 2)), unique_indices=True)
    return b.emit1(adding, b.zeros(x.type), permutation, x)


def _rows_at(batch: int) -> GatherDimensions:
    paired = tuple(range(batch))
    return GatherDimensions((batch + 1,), (batch,), (batch,), batch + 1, paired, paired)


def where_all(b: Emitter, condition: Value, x: Value, otherwise: Value) -> Value:
    """`x` or `otherwise` for each matrix, or vector, by a condition of the batch's shape."""
    assert condition.type.dtype is BOOL
    spread = b.broadcast_in_dim(condition, x.type.shape, range(condition.type.rank))
    return b.select(spread, x, otherwise)


# -- references --------------------------------------------------------------------------------------------------------


def types_of(operands: Sequence[Array]) -> list[TensorType]:
    """The types of values that hold these arrays."""
    found = []
    for operand in operands:
        dtype = dtype_of_numpy(operand.dtype)
        assert dtype is not None, f"{operand.dtype} is the element type of no tensor"
        found.append(TensorType(dtype, operand.shape))
    return found


def one_by_one(op: Op, function: Callable[..., Sequence[Numeric]], operands: Sequence[Array]) -> tuple[Array, ...]:
    """`function` of each matrix of the batch: the references of ops whose NumPy or SciPy function takes one.

    A batch or a result without elements is never computed.
    """
    types = op.infer(types_of(operands))
    batch = batch_of(types_of(operands)[0])
    results = [np.zeros(type.shape, type.dtype.numpy) for type in types]
    for index in np.ndindex(*batch):
        given = [widened(np.asarray(operand[index])) for operand in operands]
        with np.errstate(all="ignore"):
            computed = function(*given)
        for result, value in zip(results, computed, strict=True):
            result[index] = value
    return tuple(results)
