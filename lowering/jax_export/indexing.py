"""Export of gathers, scatters and sorts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from rematc.ir.core import Equation, Op
from rematc.ir.ops import indexing, sorting
from rematc.lowering.jax_export.evaluating import exports, lax
from rematc.lowering.jax_export.opaque import opaque

_SCATTERS: dict[type[Op], Callable[..., Any]] = {
    indexing.Scatter: lax.scatter,
    indexing.ScatterAdd: lax.scatter_add,
    indexing.ScatterMultiply: lax.scatter_mul,
    indexing.ScatterMinimum: lax.scatter_min,
    indexing.ScatterMaximum: lax.scatter_max,
}


@exports(indexing.Gather)
def gather(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.gather`, whose index vectors lie along the last dimension."""
    op = eqn.op
    assert isinstance(op, indexing.Gather)
    dims = op.dimension_numbers
    x, indices = operands
    vector = dims.index_vector_dim
    found = lax.gather(
        x,
        _vectors_last(indices, vector),
        lax.GatherDimensionNumbers(
            offset_dims=dims.offset_dims,
            collapsed_slice_dims=dims.collapsed_slice_dims,
            start_index_map=dims.start_index_map,
            operand_batching_dims=dims.operand_batching_dims,
            start_indices_batching_dims=_without(dims.start_indices_batching_dims, vector),
        ),
        op.slice_sizes,
        indices_are_sorted=op.indices_are_sorted,
        mode=lax.GatherScatterMode.CLIP,
    )
    return (found,)


@exports(*_SCATTERS)
def scatter(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.scatter` and its kin.

    JAX differentiates a product only where no two windows overlap, and has no adjoint of a replacement where they do.
    """
    op = eqn.op
    assert isinstance(op, indexing.Scattering)
    if isinstance(op, (indexing.ScatterMultiply, indexing.Scatter)) and not op.unique_indices:
        return opaque(eqn, operands)
    dims = op.dimension_numbers
    x, indices, updates = operands
    vector = dims.index_vector_dim
    found = _SCATTERS[type(op)](
        x,
        _vectors_last(indices, vector),
        updates,
        lax.ScatterDimensionNumbers(
            update_window_dims=dims.update_window_dims,
            inserted_window_dims=dims.inserted_window_dims,
            scatter_dims_to_operand_dims=dims.scatter_dims_to_operand_dims,
            operand_batching_dims=dims.input_batching_dims,
            scatter_indices_batching_dims=_without(dims.scatter_indices_batching_dims, vector),
        ),
        indices_are_sorted=op.indices_are_sorted,
        unique_indices=op.unique_indices,
        mode=lax.GatherScatterMode.FILL_OR_DROP,
    )
    return (found,)


def _vectors_last(indices: Any, vector: int) -> Any:
    """The indices with their vectors along the last dimension."""
    rank = len(indices.shape)
    if vector == rank:
        return lax.expand_dims(indices, (rank,))
    if vector == rank - 1:
        return indices
    return lax.transpose(indices, (*[d for d in range(rank) if d != vector], vector))


def _without(dimensions: Sequence[int], vector: int) -> tuple[int, ...]:
    """Dimensions of the indices after the vectors' one has moved to the end."""
    return tuple([d - (d > vector) for d in dimensions])


@exports(sorting.Sort)
def sort(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.sort`; for the descending order of lines turned around, and back, so that equal keys keep their order."""
    op = eqn.op
    assert isinstance(op, sorting.Sort)
    turned = (op.dimension,) if op.descending else ()
    given = [lax.rev(x, turned) for x in operands]
    found = lax.sort(tuple(given), dimension=op.dimension, is_stable=True, num_keys=op.num_keys)
    return [lax.rev(x, turned) for x in found]


@exports(sorting.TopK)
def top_k(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """`lax.top_k`, for which a NaN is the greatest only if its sign is plus."""
    assert isinstance(eqn.op, sorting.TopK)
    (x,) = operands
    if eqn.operands[0].type.dtype.is_float:
        x = lax.select(lax.ne(x, x), lax.full_like(x, math.nan), x)
    found: Sequence[Any] = lax.top_k(x, eqn.op.k)
    return found
