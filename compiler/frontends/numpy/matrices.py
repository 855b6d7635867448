"""Operands of np.linalg: matrices in the last two dimensions, in the element types that LAPACK has."""

from __future__ import annotations

from collections.abc import Sequence

from rematc.compiler.frontends.numpy.operands import ArrayLike, fail, here, promote
from rematc.ir.ops.matrices import LAPACK_TYPES, adjoint, batch_of, identity, lower_triangle
from rematc.ir.types import F64, DType
from rematc.ir.values import Value


def floating(what: str, *operands: ArrayLike) -> list[Value]:
    """Values of one element type that LAPACK has: integers and booleans as float64, as NumPy has it."""
    values, dtype = promote(*operands)
    return [here().convert(value, _computed_in(what, dtype)) for value in values]


def _computed_in(what: str, dtype: DType) -> DType:
    if not dtype.is_inexact:
        return F64
    if dtype not in LAPACK_TYPES:
        fail(f"{what} of {dtype.numpy} arrays is not supported; convert them with astype(np.float32) first")
    return dtype


def matrix(what: str, x: ArrayLike) -> Value:
    """The value of matrices in the last two dimensions."""
    (value,) = floating(what, x)
    if value.type.rank < 2:
        fail(f"{what} takes matrices, of 2 dimensions or more, got shape {value.type.shape}")
    return value


def square(what: str, x: ArrayLike) -> Value:
    """The value of square matrices."""
    value = matrix(what, x)
    if value.type.shape[-1] != value.type.shape[-2]:
        fail(f"{what} takes square matrices in the last two dimensions, got shape {value.type.shape}")
    return value


def of_lower_triangle(x: Value) -> Value:
    """The Hermitian matrices whose lower triangles these are: what `hermitian=True` means."""
    b = here()
    above = adjoint(b, lower_triangle(b, x, -1))
    return b.add(lower_triangle(b, x), above)


def identity_of(x: Value) -> Value:
    """The identity, of the shape of square matrices."""
    return identity(here(), x.type)


def element(x: Value, row: int, column: int) -> Value:
    """One element of each matrix."""
    b, batch = here(), batch_of(x.type)
    none = [0] * len(batch)
    cut = b.slice(x, [*none, row, column], [*batch, row + 1, column + 1])
    return b.reshape(cut, batch)


def with_batch(x: Value, batch: Sequence[int], kept: int = 2) -> Value:
    """`x` broadcast to this batch; its last `kept` dimensions stay."""
    rank, shape = x.type.rank, (*batch, *x.type.shape[x.type.rank - kept :])
    return here().broadcast_in_dim(x, shape, range(len(shape) - rank, len(shape)))
