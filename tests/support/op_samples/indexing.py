"""Rows for ir/ops/indexing.py."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from rematc.ir.ops.gather_scatter import GatherDimensions, ScatterDimensions
from rematc.ir.ops.indexing import (
    Gather,
    Scatter,
    ScatterAdd,
    Scattering,
    ScatterMaximum,
    ScatterMinimum,
    ScatterMultiply,
)
from rematc.ir.types import BF16, C64, F32, F64, I8, I32, I64, U8, U32, DType
from tests.support.samples import Factory, Sample, Tolerance, booleans, distinct, integers, literal, normal

ROUNDED = Tolerance(2**-6, 2**-6, "each addition is rounded, in any order")

#: x[i]: rows of a matrix at a vector of indices.
ROWS = GatherDimensions((1,), (0,), (0,), 1)
#: x[i, j]: elements of a matrix at pairs.
PAIRS = GatherDimensions((), (0, 1), (0, 1), 1)
#: Windows of a matrix at starts (column, row), the window's dimensions around those of the indices.
WINDOWS = GatherDimensions((0, 2), (), (1, 0), 0)
#: For each row of a matrix elements at indices of its own (take_along_axis).
ALONG = GatherDimensions((), (1,), (1,), 2, (0,), (0,))
#: Paired dimensions out of order, on both sides of the index vectors.
PAIRED = GatherDimensions((1,), (), (2,), 1, (0, 1), (2, 0))


def gathered_by_jax(op: Gather) -> Any:
    dims = op.dimension_numbers
    numbers = lax.GatherDimensionNumbers(
        dims.offset_dims,
        dims.collapsed_slice_dims,
        dims.start_index_map,
        operand_batching_dims=dims.operand_batching_dims,
        start_indices_batching_dims=before(dims.start_indices_batching_dims, dims.index_vector_dim),
    )
    return lambda x, indices: lax.gather(x, last(indices, dims.index_vector_dim), numbers, op.slice_sizes, mode="clip")


def last(indices: Any, dimension: int) -> Any:
    """JAX's indices have the index vectors in the last dimension."""
    return indices[..., None] if dimension == indices.ndim else jnp.moveaxis(indices, dimension, -1)


def before(dimensions: tuple[int, ...], index_vector_dim: int) -> tuple[int, ...]:
    """Dimensions of the indices, once the index vectors stand in the last one."""
    return tuple(d - (d > index_vector_dim) for d in dimensions)


def scattered_by_jax(op: Scattering) -> Any:
    dims = op.dimension_numbers
    numbers = lax.ScatterDimensionNumbers(
        dims.update_window_dims,
        dims.inserted_window_dims,
        dims.scatter_dims_to_operand_dims,
        operand_batching_dims=dims.input_batching_dims,
        scatter_indices_batching_dims=before(dims.scatter_indices_batching_dims, dims.index_vector_dim),
    )
    function: Any = {
        Scatter: lax.scatter,
        ScatterAdd: lax.scatter_add,
        ScatterMultiply: lax.scatter_mul,
        ScatterMinimum: lax.scatter_min,
        ScatterMaximum: lax.scatter_max,
    }[type(op)]
    return lambda x, indices, updates: function(
        x, last(indices, dims.index_vector_dim), updates, numbers, unique_indices=op.unique_indices, mode="drop"
    )


def gather(dims: GatherDimensions, sizes: tuple[int, ...], x: Factory, indices: Any, dtype: DType = I32) -> Sample:
    op = Gather(dims, sizes)
    return Sample(op, (x, literal(dtype, indices)), differentiable=(0,), jax=gathered_by_jax(op))


def scatter(
    op: type[Any],
    dims: GatherDimensions,
    x: Factory,
    indices: Any,
    updates: Factory,
    differentiable: tuple[int, ...] = (0, 2),
    *,
    unique: bool = False,
    step: float | None = 1e-5,
    label: str = "",
) -> Sample:
    applied = op(ScatterDimensions.of(dims), unique_indices=unique)
    return Sample(
        applied, (x, literal(I32, indices), updates), differentiable, scattered_by_jax(applied), step=step, label=label
    )


INSIDE = [[2], [0]]
REPEATED = [[2], [0], [2], [2]]
OUTSIDE = [[2], [-1], [4], [2]]
WINDOW_STARTS = [[0, 2, 3], [0, 1, 4]]
ALONG_INDICES = [[[0], [3], [3]], [[2], [2], [1]]]
PAIRED_INDICES = [[[0, 3]], [[1, -1]]]


def sets_and_sums() -> list[Sample]:
    rows = []
    for op in (Scatter, ScatterAdd):
        rows += [
            scatter(op, ROWS, normal(F32, 4, 3), INSIDE, normal(F32, 2, 3), unique=True),
            scatter(op, ROWS, normal(F32, 4, 3), REPEATED, normal(F32, 4, 3), label="repeated"),
            scatter(op, ROWS, normal(F64, 4, 3), OUTSIDE, normal(F64, 4, 3), label="outside"),
            scatter(op, ROWS, normal(F32, 4, 3), [[2], [-1]], normal(F32, 2, 3), unique=True, label="unique outside"),
            scatter(op, ROWS, normal(F32, 4, 3), REPEATED, normal(F32, 4, 3), (0,), label="tangent of x"),
            scatter(op, ROWS, normal(F32, 4, 3), REPEATED, normal(F32, 4, 3), (2,), label="tangent of updates"),
            scatter(op, PAIRS, normal(F32, 3, 4), [[0, 1], [2, 3], [0, 1]], normal(F32, 3)),
            scatter(op, WINDOWS, normal(F32, 3, 6), WINDOW_STARTS, normal(F32, 2, 3, 3), label="windows that overlap"),
            scatter(op, ALONG, normal(F32, 2, 4), ALONG_INDICES, normal(F32, 2, 3)),
            scatter(op, PAIRED, normal(F32, 2, 2, 4), PAIRED_INDICES, normal(F32, 2, 2, 2)),
        ]
    return rows


def extrema() -> list[Sample]:
    rows = []
    for op in (ScatterMinimum, ScatterMaximum):
        x, updates = distinct(F32, 4, 3), literal(F32, np.linspace(-1.55, 1.6, 12).reshape(4, 3))
        rows += [
            scatter(op, ROWS, x, REPEATED, updates),
            scatter(op, ROWS, x, OUTSIDE, updates, (0,), label="tangent of x"),
            scatter(op, ROWS, x, OUTSIDE, updates, (2,), label="tangent of updates"),
            # Equal extrema share the derivative; differences see only the steepest.
            scatter(
                op,
                ROWS,
                literal(F32, [[1.0], [2.0], [3.0], [4.0]]),
                REPEATED,
                literal(F32, [[3.0], [1.0], [3.0], [3.0]]),
                step=None,
                label="ties",
            ),
            Sample(op(ScatterDimensions.of(ROWS)), (booleans(4, 3), literal(I8, REPEATED), booleans(4, 3))),
            Sample(
                op(ScatterDimensions.of(ROWS)),
                (integers(U8, 0, 255, 4, 3), literal(I64, REPEATED), integers(U8, 0, 255, 4, 3)),
            ),
        ]
    return rows


SAMPLES = (
    gather(ROWS, (1, 3), normal(F32, 4, 3), REPEATED),
    gather(ROWS, (1, 3), normal(F64, 4, 3), [[-5], [1], [7]], I64),
    gather(ROWS, (1, 3), normal(F32, 4, 3), [[3], [255]], U8),
    gather(ROWS, (1, 2), normal(F32, 4, 3), [[0], [2]]),
    gather(GatherDimensions((1,), (0,), (0,), 1), (1, 3), normal(F32, 4, 3), [2, 0, 2]),
    gather(GatherDimensions((0,), (0,), (0,), 0), (1, 3), normal(F32, 4, 3), [2]),
    gather(PAIRS, (1, 1), normal(F32, 3, 4), [[0, 1], [2, 3], [-1, 9]]),
    gather(WINDOWS, (2, 3), normal(F32, 3, 6), WINDOW_STARTS),
    gather(ALONG, (1, 1), normal(F32, 2, 4), ALONG_INDICES),
    gather(PAIRED, (1, 1, 2), normal(F32, 2, 2, 4), PAIRED_INDICES),
    gather(ROWS, (1, 3), normal(C64, 4, 3), INSIDE),
    Sample(Gather(ROWS, (1, 3), indices_are_sorted=True), (normal(F32, 4, 3), literal(I32, [[0], [1], [9]])), (0,)),
    Sample(Gather(ROWS, (1, 3)), (integers(I32, -9, 9, 4, 3), literal(I32, REPEATED))),
    Sample(Gather(ROWS, (1, 3)), (normal(F32, 4, 3), literal(I32, np.zeros((0, 1)))), (0,)),
    *sets_and_sums(),
    Sample(
        ScatterAdd(ScatterDimensions.of(ROWS)),
        (normal(BF16, 4, 3), literal(I32, REPEATED), normal(BF16, 4, 3)),
        (0, 2),
        tolerance=ROUNDED,
    ),
    Sample(
        ScatterAdd(ScatterDimensions.of(ROWS)),
        (integers(U32, 0, 9, 4, 3), literal(I32, REPEATED), integers(U32, 0, 9, 4, 3)),
    ),
    Sample(Scatter(ScatterDimensions.of(ROWS)), (booleans(4, 3), literal(U8, INSIDE), booleans(2, 3))),
    scatter(ScatterMultiply, ROWS, normal(F32, 4, 3), REPEATED, normal(F32, 4, 3), (0,)),
    scatter(ScatterMultiply, ROWS, normal(F32, 4, 3), INSIDE, normal(F32, 2, 3), unique=True),
    scatter(ScatterMultiply, ROWS, normal(F64, 4, 3), [[2], [-1]], normal(F64, 2, 3), (2,), unique=True),
    *extrema(),
)
