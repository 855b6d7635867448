"""Exact rewrites of scatters: what is added to zeros, and meets no element twice, is chosen by its place.

Before:  %1 = broadcast_in_dim 0.0   %2 = scatter_add %1, %labels, %updates   (of each row one element)
After:   %3 = iota {dimension=1}   %4 = compare %3, %labels   %2 = select %4, %updates, 0.0

So JAX writes the derivative of a cross-entropy in programs that it differentiated. For a scatter compilers write zeros,
as large as the logits, beside the other part of the gradient; what is chosen they compute while they write that.
"""

from __future__ import annotations

from rematc.ir.builder import Builder
from rematc.ir.core import Equation
from rematc.ir.ops.gather_scatter import selected
from rematc.ir.ops.indexing import ScatterAdd
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
