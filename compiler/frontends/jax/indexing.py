"""Import of gathers, scatters and slices at computed starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from rematc.compiler.frontends.jax.block import Block, imports
from rematc.compiler.frontends.stablehlo.indexing import with_index
from rematc.ir.ops import indexing
from rematc.ir.ops.dynamic import DynamicSlice, DynamicUpdateSlice
from rematc.ir.ops.gather_scatter import GatherDimensions, ScatterDimensions, clamped, fitting
from rematc.ir.types import BOOL, I32, I64, DType, Kind
from rematc.ir.values import Value
from rematc.lowering.jax_internals.jaxprs import closed

_COMBINED: dict[str, type[indexing.Scattering]] = {
    "scatter": indexing.Scatter,
    "scatter-add": indexing.ScatterAdd,
    "scatter-sub": indexing.ScatterAdd,
    "scatter-mul": indexing.ScatterMultiply,
    "scatter-min": indexing.ScatterMinimum,
    "scatter-max": indexing.ScatterMaximum,
}


@imports("dynamic_slice")
def dynamic_slice(block: Block, eqn: Any) -> Sequence[Value]:
    """`dynamic_slice`."""
    return block.b.emit(DynamicSlice(tuple(eqn.params["slice_sizes"])), *block.operands(eqn))


@imports("dynamic_update_slice")
def dynamic_update_slice(block: Block, eqn: Any) -> Sequence[Value]:
    """`dynamic_update_slice`."""
    return block.b.emit(DynamicUpdateSlice(), *block.operands(eqn))


def _mode(eqn: Any) -> str:
    """CLIP, FILL_OR_DROP or PROMISE_IN_BOUNDS."""
    mode = eqn.params["mode"]
    return str(getattr(mode, "name", mode))


@imports("gather")
def gather(block: Block, eqn: Any) -> Sequence[Value]:
    """`gather`, which moves windows inside; with FILL_OR_DROP the fill value where they are not."""
    x, indices = block.operands(eqn)
    params, type = eqn.params, block.result_type(eqn)
    if not type.size:
        return [block.b.zeros(type)]
    numbers, sizes = params["dimension_numbers"], tuple(params["slice_sizes"])
    dims = GatherDimensions(
        tuple(numbers.offset_dims),
        tuple(numbers.collapsed_slice_dims),
        tuple(numbers.start_index_map),
        indices.type.rank - 1,
        tuple(numbers.operand_batching_dims),
        tuple(numbers.start_indices_batching_dims),
    )
    if not dims.start_index_map:
        x, indices, last = with_index(block.b, x, indices, dims.index_vector_dim)
        dims = replace(dims, collapsed_slice_dims=(*dims.collapsed_slice_dims, last), start_index_map=(last,))
        sizes = (*sizes, 1)
    op = indexing.Gather(dims, sizes, bool(params["indices_are_sorted"]))
    if _mode(eqn) != "FILL_OR_DROP":
        return block.b.emit(op, x, indices)
    indices = block.b.convert(indices, I32 if all(size < 2**31 for size in x.type.shape) else I64)
    found = block.b.emit1(op, x, indices)
    fits = fitting(block.b, dims, x.type.shape, sizes, indices)
    return [block.b.select(fits, found, block.b.full(type, _fill(params["fill_value"], type.dtype)))]


def _fill(value: Any, dtype: DType) -> complex:
    """The fill value; where none is given NaN, the least signed integer, the greatest unsigned one, or true."""
    if value is not None:
        found: complex = np.asarray(value).astype(dtype.numpy).item()
        return found
    if dtype is BOOL:
        return True
    if dtype.is_inexact:
        return float("nan")
    limits: Any = ml_dtypes.iinfo
    return int(limits(dtype.numpy).min if dtype.kind is Kind.INT else limits(dtype.numpy).max)


@imports(*_COMBINED)
def scatter(block: Block, eqn: Any) -> Sequence[Value]:
    """A scatter of the IR, which drops windows that are not inside; with CLIP they are moved inside before."""
    x, indices, updates = block.operands(eqn)
    params, name = eqn.params, eqn.primitive.name
    if not x.type.size or not updates.type.size:
        return [x]
    numbers = params["dimension_numbers"]
    dims = ScatterDimensions(
        tuple(numbers.update_window_dims),
        tuple(numbers.inserted_window_dims),
        tuple(numbers.scatter_dims_to_operand_dims),
        indices.type.rank - 1,
        tuple(numbers.operand_batching_dims),
        tuple(numbers.scatter_indices_batching_dims),
    )
    make: Any = _COMBINED[name]  # all members have these fields
    op = make(dims, bool(params["indices_are_sorted"]), bool(params["unique_indices"]))
    if x.type.dtype.kind not in op.kinds or (name == "scatter" and not _replaces(params["update_jaxpr"])):
        return block.fallback(eqn)
    updates = block.b.negate(updates) if name == "scatter-sub" else updates
    if not dims.scatter_dims_to_operand_dims:
        return [_scattered_whole(block, op, x, indices, updates)]
    if _mode(eqn) == "CLIP":
        indices = clamped(block.b, dims.of_gather(), x.type.shape, _window_sizes(x, updates, dims), indices)
    return block.b.emit(op, x, indices, updates)


def _scattered_whole(block: Block, op: Any, x: Value, indices: Value, updates: Value) -> Value:
    """What `x.at[...].set` is: all windows are at the start. One that is all of x takes its place, or is combined."""
    if indices.type.rank == 1 and updates.type == x.type:
        match op:
            case indexing.Scatter():
                return updates
            case indexing.ScatterAdd():
                return block.b.add(x, updates)
            case indexing.ScatterMultiply():
                return block.b.multiply(x, updates)
    shape = x.type.shape
    x, indices, last = with_index(block.b, x, indices, op.dimension_numbers.index_vector_dim)
    inserted = (*op.dimension_numbers.inserted_window_dims, last)
    dims = replace(op.dimension_numbers, inserted_window_dims=inserted, scatter_dims_to_operand_dims=(last,))
    return block.b.reshape(block.b.emit1(replace(op, dimension_numbers=dims), x, indices, updates), shape)


def _replaces(jaxpr: Any) -> bool:
    """Whether a scatter's function gives the update."""
    if jaxpr is None:
        return True
    inner = closed(jaxpr).jaxpr
    return not inner.eqns and list(inner.outvars) == list(inner.invars[1:])


def _window_sizes(x: Value, updates: Value, dims: ScatterDimensions) -> list[int]:
    """The sizes of windows along each dimension of x."""
    walked = iter(dims.update_window_dims)
    single = (*dims.inserted_window_dims, *dims.input_batching_dims)
    return [1 if d in single else updates.type.shape[next(walked)] for d in range(x.type.rank)]
