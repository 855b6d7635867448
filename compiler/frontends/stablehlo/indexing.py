"""Import of gathers, scatters and slices at computed starts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxlib.mlir.dialects import stablehlo

from rematc.compiler.frontends.stablehlo.block import Block, attributes, imports
from rematc.compiler.frontends.stablehlo.bodies import at_arrays, combiner, second_of_two
from rematc.ir.builder import Builder
from rematc.ir.core import Graph, Op
from rematc.ir.ops import indexing
from rematc.ir.ops.arithmetic import Add, Maximum, Minimum, Multiply
from rematc.ir.ops.dynamic import DynamicSlice, DynamicUpdateSlice
from rematc.ir.ops.elementwise import ORDERED
from rematc.ir.ops.gather_scatter import GatherDimensions, ScatterDimensions
from rematc.ir.ops.logical import And, Or
from rematc.ir.ops.scan.op import Scan
from rematc.ir.ops.shape import others
from rematc.ir.types import BOOL, I64, TensorType
from rematc.ir.values import Value

_COMBINED: dict[type[Op], type[indexing.Scattering]] = {
    Add: indexing.ScatterAdd,
    Multiply: indexing.ScatterMultiply,
    Minimum: indexing.ScatterMinimum,
    Maximum: indexing.ScatterMaximum,
}
#: What the bodies are on booleans.
_ON_BOOLEANS: dict[type[Op], type[Op]] = {And: Minimum, Or: Maximum, Multiply: Minimum, Add: Maximum}


@imports("stablehlo.dynamic_slice")
def dynamic_slice(block: Block, operation: Any) -> Sequence[Value]:
    op = DynamicSlice(attributes(operation).integers("slice_sizes"))
    return block.b.emit(op, *block.operands(operation))


@imports("stablehlo.dynamic_update_slice")
def dynamic_update_slice(block: Block, operation: Any) -> Sequence[Value]:
    return block.b.emit(DynamicUpdateSlice(), *block.operands(operation))


@imports("stablehlo.gather", "stablehlo.dynamic_gather")
def gather(block: Block, operation: Any) -> Sequence[Value]:
    """`gather`; the dynamic one has constant sizes of windows."""
    found = attributes(operation)
    x, indices, *given = block.operands(operation)
    numbers = stablehlo.GatherDimensionNumbers(found.raw("dimension_numbers"))
    dims = GatherDimensions(
        tuple(numbers.offset_dims),
        tuple(numbers.collapsed_slice_dims),
        tuple(numbers.start_index_map),
        numbers.index_vector_dim,
        tuple(numbers.operand_batching_dims),
        tuple(numbers.start_indices_batching_dims),
    )
    sizes = found.integers("slice_sizes")
    if given:
        sizes = tuple([int(item) for item in block.constant_of(given[0], operation, "sizes of windows")])
    (type,) = block.result_types(operation)
    if not type.size:
        return [block.b.zeros(type)]  # windows of no elements need not fit, and the op is strict about it
    if not dims.start_index_map:
        x, indices, last = with_index(block.b, x, indices, dims.index_vector_dim)
        dims = replace(dims, collapsed_slice_dims=(*dims.collapsed_slice_dims, last), start_index_map=(last,))
        sizes = (*sizes, 1)
    return block.b.emit(indexing.Gather(dims, sizes, found.boolean("indices_are_sorted")), x, indices)


def with_index(b: Builder, x: Value, indices: Value, vector_dim: int) -> tuple[Value, Value, int]:
    """Where no dimension is indexed: x with one more, of size 1, indices into it, which are zero, and its number."""
    shape = list(indices.type.shape)
    shape[vector_dim] = 1
    return b.reshape(x, (*x.type.shape, 1)), b.zeros(indices.type.with_shape(tuple(shape))), x.type.rank


@imports("stablehlo.scatter")
def scatter(block: Block, operation: Any) -> Sequence[Value]:
    """A scatter for each array, where the body combines them apart; else see `scattering`."""
    found = attributes(operation)
    operands = block.operands(operation)
    count = len(operands) // 2
    numbers = stablehlo.ScatterDimensionNumbers(found.raw("scatter_dimension_numbers"))
    dims = ScatterDimensions(
        tuple(numbers.update_window_dims),
        tuple(numbers.inserted_window_dims),
        tuple(numbers.scattered_dims_to_operand_dims),
        numbers.index_vector_dim,
        tuple(numbers.input_batching_dims),
        tuple(numbers.scatter_indices_batching_dims),
    )
    promises = (found.boolean("indices_are_sorted"), found.boolean("unique_indices"))
    body, indices = block.body(operation), operands[count]
    results = []
    for index in range(count):
        own = _own_part(body, index, count)
        if own is None:
            block.fail(
                operation,
                f"combines {count} arrays with each other; scatter each on its own, or indices by which to gather",
            )
        x, updates = operands[index], operands[count + 1 + index]
        # As in reductions, the body may be wider than the arrays.
        wide = own.param_types[0].dtype
        x, updates = block.b.convert(x, wide), block.b.convert(updates, wide)
        results.append(scattering(block, operation, own, dims, x, indices, updates, *promises))
    return results


def _own_part(body: Graph, index: int, count: int) -> Graph | None:
    """What a body does to one of several arrays, where it reads that one alone."""
    if count == 1:
        return body
    own = (body.params[index], body.params[count + index])
    needed = {body.results[index]}
    kept = []
    for eqn in reversed(body.equations):
        if not needed.isdisjoint(eqn.results):
            needed.update(eqn.operands)
            kept.append(eqn)
    if needed & (set(body.params) - set(own)):
        return None
    return Graph(body.name, own, tuple(kept[::-1]), (body.results[index],))


def scattering(
    block: Block,
    operation: Any,
    body: Graph,
    dims: ScatterDimensions,
    x: Value,
    indices: Value,
    updates: Value,
    is_sorted: bool = False,
    is_unique: bool = False,
) -> Value:
    """`updates` combined into `x` by a body.

    A replacement, sum, product or extremum is one op. With another body one update follows the other.
    """
    b = block.b
    if not updates.type.size or not x.type.size:
        return x
    if not dims.scatter_dims_to_operand_dims:
        shape = x.type.shape
        x, indices, last = with_index(b, x, indices, dims.index_vector_dim)
        inserted = (*dims.inserted_window_dims, last)
        dims = replace(dims, inserted_window_dims=inserted, scatter_dims_to_operand_dims=(last,))
        return b.reshape(scattering(block, operation, body, dims, x, indices, updates, is_sorted, is_unique), shape)
    if second_of_two(body):
        return b.emit1(indexing.Scatter(dims, is_sorted, is_unique), x, indices, updates)
    name = combiner(body)
    if x.type.dtype is BOOL:
        name = _ON_BOOLEANS.get(name, name) if name is not None else None
    op = _COMBINED.get(name) if name is not None else None
    if op is not None and (x.type.dtype.kind in op.kinds) and (x.type.dtype.kind in ORDERED or name in (Add, Multiply)):
        return b.emit1(op(dims, is_sorted, is_unique), x, indices, updates)  # type: ignore[call-arg]  # as all members
    return _one_by_one(b, body, dims, x, indices, updates)


def _one_by_one(b: Builder, body: Graph, dims: ScatterDimensions, x: Value, indices: Value, updates: Value) -> Value:
    """A loop over the windows in row-major order of the indices; a window that does not fit changes nothing."""
    gathered = dims.of_gather()
    sizes = [1] * x.type.rank
    window = gathered.window_dims(x.type.rank)
    for dimension, offset in zip(window, gathered.offset_dims, strict=True):
        sizes[dimension] = updates.type.shape[offset]
    batch = others(gathered.offset_dims, updates.type.rank)
    count = math.prod([updates.type.shape[d] for d in batch])
    walked = [updates.type.shape[d] for d in gathered.offset_dims]
    # [windows, *sizes]: each window in the shape that it has in x.
    moved = b.transpose(updates, (*batch, *gathered.offset_dims))
    rows = b.reshape(b.reshape(moved, (count, *walked)), (count, *sizes))
    vectors = _starts(b, dims, x.type, indices, count)
    inner = Builder("scatter_window")
    carry = inner.parameter(x.type)
    row, vector = inner.parameter(rows.type.with_shape(tuple(sizes))), inner.parameter(TensorType(I64, (x.type.rank,)))
    starts = [inner.reshape(inner.slice(vector, (d,), (d + 1,)), ()) for d in range(x.type.rank)]
    old = inner.dynamic_slice(carry, starts, sizes)
    (new,) = at_arrays(inner, body, (old, row))
    limit = np.array([n - size for n, size in zip(x.type.shape, sizes, strict=True)], np.int64)
    fits = inner.logical_and(
        inner.compare(vector, inner.zeros(vector.type), "GE"), inner.compare(vector, inner.constant(limit), "LE")
    )
    kept = inner.select(inner.reduce_and(fits, (0,)), new, old) if x.type.rank else new
    step = inner.build(inner.dynamic_update_slice(carry, kept, starts) if x.type.rank else kept)
    return b.emit1(Scan(step, count, 0, 1), x, rows, vectors)


def _starts(b: Builder, dims: ScatterDimensions, x: TensorType, indices: Value, count: int) -> Value:
    """For each window where it starts in x: [windows, dimensions]."""
    vector_dim = dims.index_vector_dim
    if vector_dim == indices.type.rank:
        indices = b.reshape(indices, (*indices.type.shape, 1))
    rest = others((vector_dim,), indices.type.rank)
    components = b.reshape(
        b.transpose(b.convert(indices, I64), (*rest, vector_dim)), (count, indices.type.shape[vector_dim])
    )
    batch_shape = tuple([indices.type.shape[d] for d in rest])
    columns = []
    for dimension in range(x.rank):
        if dimension in dims.scatter_dims_to_operand_dims:
            place = dims.scatter_dims_to_operand_dims.index(dimension)
            columns.append(b.slice(components, (0, place), (count, place + 1)))
        elif dimension in dims.input_batching_dims:
            paired = dims.scatter_indices_batching_dims[dims.input_batching_dims.index(dimension)]
            place = paired - (paired > vector_dim)
            counted = b.iota(TensorType(I64, batch_shape), place)
            columns.append(b.reshape(counted, (count, 1)))
        else:
            columns.append(b.zeros(TensorType(I64, (count, 1))))
    if not columns:
        return b.zeros(TensorType(I64, (count, 0)))
    return b.concatenate(columns, 1)
