"""Systems of equations, inverses, determinants and powers of matrices, as in np.linalg.

Where NumPy raises LinAlgError for a singular matrix the result is not finite.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from rematc.compiler.frontends.numpy.decompositions import pseudo_inverse, resolution, singular_values
from rematc.compiler.frontends.numpy.matrices import element, floating, identity_of, square, with_batch
from rematc.compiler.frontends.numpy.operands import (
    ArrayLike,
    broadcast_shape,
    fail,
    here,
    normalize_axis,
    promote,
    static_int,
    value_of,
    wrap,
)
from rematc.compiler.frontends.numpy.products import dot, matmul_values
from rematc.compiler.tracing.trace import Tracer
from rematc.ir.ops.factorization import Lu
from rematc.ir.ops.matrices import batch_of, matmul, square_magnitude
from rematc.ir.ops.solving import Determinant, LinearSolve, LogDeterminant
from rematc.ir.types import I32, TensorType
from rematc.ir.values import Value

SlogdetResult: Any = type(np.linalg.slogdet(np.eye(1)))


# -- systems of equations ----------------------------------------------------------------------------------------------


def solve(a: ArrayLike, b: ArrayLike) -> Tracer:
    """As np.linalg.solve: b is one vector if it has one dimension, else matrices."""
    left, right = floating("np.linalg.solve", a, b)
    left = square("np.linalg.solve", wrap(left))
    is_vector = right.type.rank == 1
    if right.type.rank == 0 or right.type.shape[-1 if is_vector else -2] != left.type.shape[-1]:
        fail(
            f"np.linalg.solve of shapes {left.type.shape} and {right.type.shape}: the second must have one row for "
            f"each of the {left.type.shape[-1]} unknowns"
        )
    if is_vector:
        column = here().reshape(right, (*right.type.shape, 1))
        found = _solved(left, column)
        return wrap(here().reshape(found, found.type.shape[:-1]))
    return wrap(_solved(left, right))


def _solved(a: Value, y: Value) -> Value:
    """x with a x = y, the batches broadcast. Each matrix is factored once, and one matrix takes all right sides."""
    b = here()
    lu, _, permutation = b.emit(Lu(), a)
    if a.type.rank == 2 and y.type.rank > 2:
        rows, k = y.type.shape[-2:]
        batch = batch_of(y.type)
        order = (y.type.rank - 2, *range(y.type.rank - 2), y.type.rank - 1)
        side_by_side = b.reshape(b.transpose(y, order), (rows, prod(batch) * k))
        found = b.reshape(b.emit1(LinearSolve(), a, lu, permutation, side_by_side), (rows, *batch, k))
        return b.transpose(found, (*range(1, len(batch) + 1), 0, len(batch) + 1))
    batch = broadcast_shape(
        "np.linalg.solve (the dimensions before the last two)", (batch_of(a.type), batch_of(y.type))
    )
    a, lu, y = (with_batch(x, batch) for x in (a, lu, y))
    return b.emit1(LinearSolve(), a, lu, with_batch(permutation, batch, 1), y)


def inv(a: ArrayLike) -> Tracer:
    """As np.linalg.inv; not finite where a matrix is singular."""
    return wrap(inverse(square("np.linalg.inv", a)))


def inverse(x: Value) -> Value:
    """The inverse of square matrices."""
    lu, _, permutation = here().emit(Lu(), x)
    return here().emit1(LinearSolve(), x, lu, permutation, identity_of(x))


def tensorsolve(a: ArrayLike, b: ArrayLike, axes: object = None) -> Tracer:
    """As np.linalg.tensorsolve."""
    left, right = floating("np.linalg.tensorsolve", a, b)
    build, rank = here(), left.type.rank
    if axes is not None:
        moved = [normalize_axis(axis, rank, "np.linalg.tensorsolve") for axis in axes]  # type: ignore[attr-defined]
        left = build.transpose(left, [*[d for d in range(rank) if d not in moved], *moved])
    unknowns = left.type.shape[right.type.rank :]
    if prod(unknowns) ** 2 != left.type.size or right.type.size != prod(unknowns):
        fail(
            f"np.linalg.tensorsolve of shapes {left.type.shape} and {right.type.shape}: the first must have as many "
            "elements in the dimensions of the second as in the others"
        )
    size = prod(unknowns)
    found = _solved(build.reshape(left, (size, size)), build.reshape(right, (size, 1)))
    return wrap(build.reshape(found, unknowns))


def tensorinv(a: ArrayLike, ind: int = 2) -> Tracer:
    """As np.linalg.tensorinv."""
    (x,) = floating("np.linalg.tensorinv", a)
    cut = static_int(ind, "ind of np.linalg.tensorinv")
    first, second = x.type.shape[:cut], x.type.shape[cut:]
    if cut <= 0 or prod(first) != prod(second):
        fail(f"np.linalg.tensorinv of shape {x.type.shape} with ind={cut}: {first} and {second} must have one size")
    found = inverse(here().reshape(x, (prod(first), prod(first))))
    return wrap(here().reshape(found, (*second, *first)))


def lstsq(a: ArrayLike, b: ArrayLike, rcond: object = None) -> tuple[Tracer, Tracer, Tracer, Tracer]:
    """As np.linalg.lstsq: the solution, the squared residuals, the rank, the singular values.

    NumPy leaves out the residuals of a tall matrix that lacks rank, which is known when the program runs; here they
    are given. Gradients exist where the rank does not change nearby.
    """
    left, right = floating("np.linalg.lstsq", a, b)
    if left.type.rank != 2 or right.type.rank not in (1, 2) or left.type.shape[0] != right.type.shape[0]:
        fail(
            f"np.linalg.lstsq takes a matrix and right sides with as many rows, got shapes {left.type.shape} and "
            f"{right.type.shape}"
        )
    build, (m, n) = here(), left.type.shape
    y = build.reshape(right, (m, 1)) if right.type.rank == 1 else right
    cutoff = resolution(left.type.dtype) * max(m, n) if rcond is None else _cutoff(rcond, left.type)
    x = matmul(build, pseudo_inverse(left, cutoff), y)
    s = singular_values(left)
    residuals = build.full(s.type.with_shape((0,)), 0)
    if m > n:
        residuals = build.reduce_sum(square_magnitude(build, build.subtract(matmul(build, left, x), y)), (0,))
    found = build.reshape(x, (n,)) if right.type.rank == 1 else x
    return wrap(found), wrap(residuals), wrap(_rank(s, cutoff)), wrap(s)


def _cutoff(rcond: object, a: TensorType) -> float:
    if isinstance(rcond, Tracer):
        fail("rcond of np.linalg.lstsq must be a number known while tracing; pass a float")
    return float(rcond) if float(rcond) >= 0 else resolution(a.dtype)  # type: ignore[arg-type]  # what the user passes


def _rank(s: Value, cutoff: float) -> Value:
    b, last = here(), s.type.rank - 1
    if s.type.shape[last] == 0:
        return b.full(s.type.with_shape(()).with_dtype(I32), 0)
    largest = b.broadcast_in_dim(b.reduce_max(s, (last,)), s.type.shape, range(last))
    return b.reduce_sum(b.convert(b.compare(s, b.scale(largest, cutoff), "GT"), I32), (last,))


# -- determinants ------------------------------------------------------------------------------------------------------


def det(a: ArrayLike) -> Tracer:
    """As np.linalg.det. First derivatives exist for singular matrices too; up to 3 rows those of all orders."""
    x, b = square("np.linalg.det", a), here()
    size = x.type.shape[-1]
    if size in (1, 2, 3):
        return wrap(_expanded(x, tuple(range(size)), tuple(range(size))))
    lu, pivots, permutation = b.emit(Lu(), x)
    return wrap(b.emit1(Determinant(), x, lu, pivots, permutation))


def _expanded(x: Value, rows: tuple[int, ...], columns: tuple[int, ...]) -> Value:
    """The determinant of a small matrix, by its first row."""
    b, (row, *below) = here(), rows
    if not below:
        return element(x, row, columns[0])
    total: Value | None = None
    for place, column in enumerate(columns):
        rest = _expanded(x, tuple(below), columns[:place] + columns[place + 1 :])
        term = b.multiply(element(x, row, column), rest)
        signed = b.negate(term) if place % 2 else term
        total = signed if total is None else b.add(total, signed)
    assert total is not None, "a matrix has columns"
    return total


def slogdet(a: ArrayLike) -> Any:
    """As np.linalg.slogdet."""
    x, b = square("np.linalg.slogdet", a), here()
    lu, pivots, permutation = b.emit(Lu(), x)
    sign, logarithm = b.emit(LogDeterminant(), x, lu, pivots, permutation)
    return SlogdetResult(wrap(sign), wrap(logarithm))


# -- products ----------------------------------------------------------------------------------------------------------


def matrix_power(a: ArrayLike, n: int) -> Tracer:
    """As np.linalg.matrix_power, by squaring; of the inverse for a negative n."""
    what, power, x = "np.linalg.matrix_power", static_int(n, "n of np.linalg.matrix_power"), value_of(a)
    if x.type.rank < 2 or x.type.shape[-1] != x.type.shape[-2]:
        fail(f"{what} takes square matrices in the last two dimensions, got shape {x.type.shape}")
    if power < 0:
        x, power = inverse(square(what, a)), -power
    result: Value | None = None
    while power > 0:
        if power % 2:
            result = x if result is None else matmul_values(result, x, what)
        power //= 2
        if power:
            x = matmul_values(x, x, what)
    return wrap(identity_of(x) if result is None else result)


def multi_dot(arrays: Sequence[ArrayLike]) -> Tracer:
    """As np.linalg.multi_dot, in the order of fewest multiplications; vectors may stand at the ends."""
    values, _ = promote(*arrays)
    if len(values) < 2:
        fail(f"np.linalg.multi_dot takes 2 arrays or more, got {len(values)}")
    inner = [value.type.rank for value in values[1:-1]]
    if any(rank != 2 for rank in inner) or any(value.type.rank not in (1, 2) for value in (values[0], values[-1])):
        fail("np.linalg.multi_dot takes matrices; only the first and the last array may be vectors")
    rows = [1 if values[0].type.rank == 1 else values[0].type.shape[0], *[value.type.shape[0] for value in values[1:]]]
    sizes = [*rows, 1 if values[-1].type.rank == 1 else values[-1].type.shape[1]]
    return wrap(_multiplied(values, _splits(sizes)))


def _splits(sizes: Sequence[int]) -> dict[tuple[int, int], int]:
    """Where to split each chain of matrices; matrix i has `sizes[i]` rows and `sizes[i + 1]` columns.

    By dynamic programming over chains of growing length (Cormen et al., "Introduction to algorithms", 15.2).
    """
    count = len(sizes) - 1
    cost = {(i, i): 0 for i in range(count)}
    split: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for first in range(count - length):
            last = first + length
            ways = [
                cost[first, k] + cost[k + 1, last] + sizes[first] * sizes[k + 1] * sizes[last + 1]
                for k in range(first, last)
            ]
            cost[first, last] = min(ways)
            split[first, last] = first + ways.index(cost[first, last])
    return split


def _multiplied(values: Sequence[Value], split: dict[tuple[int, int], int]) -> Value:
    """The product of the chain, each part of it after the parts that it is made of."""
    made = {(i, i): value for i, value in enumerate(values)}
    pending = [(0, len(values) - 1)]
    while pending:
        chain = pending[-1]
        parts = [(chain[0], split[chain]), (split[chain] + 1, chain[1])]
        missing = [part for part in parts if part not in made]
        if missing:
            pending.extend(missing)
            continue
        made[chain] = dot(wrap(made[parts[0]]), wrap(made[parts[1]])).value
        pending.pop()
    return made[0, len(values) - 1]


FUNCTIONS: dict[Callable[..., object], Callable[..., object]] = {
    np.linalg.solve: solve,
    np.linalg.inv: inv,
    np.linalg.tensorsolve: tensorsolve,
    np.linalg.tensorinv: tensorinv,
    np.linalg.lstsq: lstsq,
    np.linalg.det: det,
    np.linalg.slogdet: slogdet,
    np.linalg.matrix_power: matrix_power,
    np.linalg.multi_dot: multi_dot,
}
