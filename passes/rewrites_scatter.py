"""Exact rewrites of scatters: what is added to zeros, and meets no element twice, is chosen by its place.

Before:  %1 = broadcast_in_dim 0.0   %2 = scatter_add %1, %labels, %updates   (of each row one element)
After:   %3 = iota {dimension=1}   %4 = compare %3, %labels   %2 = select %4, %updates, 0.0

So JAX writes the derivative of a cross-entropy in programs that it differentiated. For a scatter compilers write zeros,
as large as the logits, beside the other part of the gradient; what is chosen they compute while they write that.
"""

from __future__ import annotations

from collections.abc import Sequence

from rematc.ir.builder import Builder
from rematc.ir.core import Equation
from rematc.ir.ops.arithmetic import Negate
from rematc.ir.ops.gather_scatter import selected
from rematc.ir.ops.indexing import ScatterAdd
from rematc.ir.ops.logical import Compare, Select
from rematc.ir.ops.reduction import ReduceSum
from rematc.ir.ops.shape import BroadcastInDim
from rematc.ir.ops.structural import Iota
from rematc.ir.values import Value
from rematc.passes.batched_gathers import batched_indices
from rematc.passes.rewriting import Scope, rewrites


@rewrites(ScatterAdd)
def scatter_into_zeros(s: Scope, eqn: Equation) -> Value | None:
    """Of updates of which no two may fall on one element; whatever lies outside is nowhere then, too."""
    op, (x, indices, updates) = eqn.op, eqn.operands
    assert isinstance(op, ScatterAdd)
    dims, sizes = op.dimension_numbers.of_gather(), op.sizes(x.type.rank, updates.type.shape)
    # A window as long as its dimension is skipped where it begins elsewhere than at 0.
    if not s.is_splat(x, 0) or any(sizes[d] == x.type.shape[d] for d in dims.start_index_map):
        return None
    b = Builder("scatter")
    b.loc = eqn.loc
    batched = batched_indices(b, dims, x.type.shape, indices, s.equation)
    if batched is not None:
        dims, indices = batched
    result = selected(b, dims, x.type, sizes, indices, updates)
    if result is None:
        return None
    for each in b.equations:
        s.append(each)
    return result


@rewrites(ReduceSum)
def sum_of_chosen(s: Scope, eqn: Equation) -> Value | None:
    """Of what is zero but in one place, or negated so, the sum is what is there: so ends a softmax's derivative."""
    op, (x,) = eqn.op, eqn.operands
    assert isinstance(op, ReduceSum)
    negated = s.definition(x, Negate)
    chosen = s.definition(x if negated is None else negated[1][0], Select)
    if chosen is None or len(op.dimensions) != 1 or not s.is_splat(chosen[1][2], 0):
        return None
    (d,) = op.dimensions
    size, shape = x.type.shape[d], eqn.results[0].type.shape
    compared = s.definition(chosen[1][0], Compare)
    if compared is None or compared[0].direction != "EQ":
        return None
    counted = s.definition(compared[1][0], Iota)
    place, part = [_repeated_along(s, value, d) for value in (compared[1][1], chosen[1][1])]
    if counted is None or counted[0].dimension != d or place is None or part is None:
        return None
    b = Builder("sum")
    b.loc = eqn.loc
    at, found = [b.broadcast_in_dim(value, shape, dims) for value, dims in (place, part)]
    found = found if negated is None else b.negate(found)
    is_there = b.logical_and(b.compare(at, b.zeros(at.type), "GE"), b.compare(at, b.full(at.type, size - 1), "LE"))
    zeros = b.zeros(found.type)
    result = b.select(is_there, b.add(found, zeros), zeros)
    for each in b.equations:
        s.append(each)
    return result


def _repeated_along(s: Scope, value: Value, dimension: int) -> tuple[Value, Sequence[int]] | None:
    """What is repeated along a dimension, and its places among the others; None where it is not repeated."""
    found = s.definition(value, BroadcastInDim)
    if found is None or dimension in found[0].dimensions:
        return None
    return found[1][0], [d - (d > dimension) for d in found[0].dimensions]
