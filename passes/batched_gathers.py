"""Analysis: gathers whose indices count the rows that they read in, as gathers with batching dimensions.

Before:  %0 = iota {dimension=0}   %1 = concatenate %0, %labels   %2 = gather %logits, %1 {start_index_map=[0, 1]}
After:   %2 = gather %logits, %labels {start_index_map=[1], operand_batching_dims=[0]}

`logits[arange(n), labels]` reads one element of each row, and so says the second form: its derivative needs no scatter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rematc.ir.builder import Builder
from rematc.ir.core import Emitter, Equation
from rematc.ir.ops.conversion import Convert
from rematc.ir.ops.gather_scatter import GatherDimensions
from rematc.ir.ops.indexing import Gather
from rematc.ir.ops.logical import Compare, Select
from rematc.ir.ops.shape import BroadcastInDim, Concatenate, Reshape
from rematc.ir.ops.structural import Constant, Iota
from rematc.ir.values import Value

#: The equation that defines a value; None where it is not known.
Definitions = Callable[[Value], Equation | None]


def batched_gathers(
    equations: Sequence[Equation], definitions: Mapping[Value, Equation]
) -> dict[tuple[Value, ...], tuple[Equation, ...]]:
    """By their results, what stands for the gathers that read by indices that count."""
    found = {}
    for eqn in equations:
        if isinstance(eqn.op, Gather):
            instead = _batched(eqn, eqn.op, definitions.get)
            if instead is not None:
                found[eqn.results] = instead
    return found


def _batched(eqn: Equation, op: Gather, definitions: Definitions) -> tuple[Equation, ...] | None:
    x, indices = eqn.operands
    b = Builder("gather")
    b.loc = eqn.loc
    batched = batched_indices(b, op.dimension_numbers, x.type.shape, indices, definitions)
    if batched is None:
        return None
    dims, by = batched
    return (*b.equations, Equation(Gather(dims, op.slice_sizes), (x, by), eqn.results, eqn.loc))


def batched_indices(
    b: Emitter, dims: GatherDimensions, shape: Sequence[int], indices: Value, definitions: Definitions
) -> tuple[GatherDimensions, Value] | None:
    """The same windows of an array of this shape, with batching dimensions in the place of what counts rows.

    None where nothing counts them.
    """
    vector, joined = dims.index_vector_dim, definitions(indices)
    if joined is None or not isinstance(joined.op, Concatenate) or joined.op.dimension != vector:
        return None
    columns = joined.operands
    if len(columns) != len(dims.start_index_map):
        return None
    counted: dict[int, int] = {}
    dropped: set[int] = set()
    for component, (column, d) in enumerate(zip(columns, dims.start_index_map, strict=True)):
        if len(counted) + len(dropped) == len(columns) - 1 or d not in dims.collapsed_slice_dims:
            continue
        along = _counts_along(column, definitions)
        if shape[d] == 1:
            dropped.add(component)
        elif along is not None and column.type.shape[along] == shape[d]:
            taken = (*dims.start_indices_batching_dims, *counted.values())
            counted |= {} if along in taken else {component: along}
    if not counted and not dropped:
        return None
    paired = dict(zip(dims.operand_batching_dims, dims.start_indices_batching_dims, strict=True))
    paired |= {dims.start_index_map[component]: counts for component, counts in counted.items()}
    order = tuple(sorted(paired))
    left = [component for component in range(len(columns)) if component not in counted and component not in dropped]
    new = GatherDimensions(
        dims.offset_dims,
        tuple([d for d in dims.collapsed_slice_dims if d not in paired]),
        tuple([dims.start_index_map[component] for component in left]),
        vector,
        order,
        tuple([paired[d] for d in order]),
    )
    rest = [columns[component] for component in left]
    return new, rest[0] if len(rest) == 1 else b.emit1(Concatenate(vector), *rest)


def _counts_along(value: Value, definitions: Definitions) -> int | None:
    """The dimension along which an array of integers is 0, 1, 2, ..., and the same along all others; None if none."""
    eqn = definitions(value)
    if eqn is None or not value.type.dtype.is_integer:
        return None
    op = eqn.op
    match op:
        case Iota():
            return op.dimension
        case Constant():
            return _counted(op)
    if not isinstance(op, (Convert, BroadcastInDim, Reshape, Select)):
        return None
    x = eqn.operands[-1]
    along = _counts_along(x, definitions)
    if along is None:
        return None
    match op:
        case BroadcastInDim():
            return op.dimensions[along]
        case Reshape():
            return _moved(along, x.type.shape, op.shape)
        case Select():
            return along if _is_never(eqn.operands[0], x, definitions) else None
    return along if value.type.dtype.greatest >= x.type.shape[along] else None


def _counted(op: Constant) -> int | None:
    long = [d for d, size in enumerate(op.type.shape) if size > 1]
    if not op.type.dtype.is_integer or len(long) != 1:
        return None
    is_counting = np.array_equal(op.array.reshape(-1).astype(np.int64), np.arange(op.type.size))
    return long[0] if is_counting else None


def _moved(along: int, shape: Sequence[int], new: Sequence[int]) -> int | None:
    """Where a dimension is after a reshape that adds or takes dimensions of size 1; None after others."""
    long, still = ([d for d, size in enumerate(sizes) if size > 1] for sizes in (shape, new))
    if along not in long or [shape[d] for d in long] != [new[d] for d in still]:
        return None
    return still[long.index(along)]


def _is_never(condition: Value, x: Value, definitions: Definitions) -> bool:
    """Whether a condition is constant and false, or x < 0, which is never true of what counts from 0 on."""
    eqn = definitions(condition)
    if eqn is None or not isinstance(eqn.op, Compare):
        return _has_no_bits(condition, definitions)
    is_below = eqn.op.direction == "LT" and eqn.operands[0] is x
    return is_below and _has_no_bits(eqn.operands[1], definitions)


def _has_no_bits(value: Value, definitions: Definitions) -> bool:
    """Whether a value is known to be zero, or false, everywhere."""
    eqn = definitions(value)
    while eqn is not None and isinstance(eqn.op, BroadcastInDim):
        eqn = definitions(eqn.operands[0])
    return eqn is not None and isinstance(eqn.op, Constant) and not eqn.op.array.any()
