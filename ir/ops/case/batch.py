"""Branches on a batch: where elements disagree about the index all are computed, and each element chooses."""

from __future__ import annotations

from rematc.ir.batches import Batch
from rematc.ir.core import Emitter, VmapContext
from rematc.ir.facts import Effect
from rematc.ir.ops.batching import with_fields
from rematc.ir.ops.bodies import with_batch
from rematc.ir.ops.case.base import CaseBase
from rematc.ir.ops.regions import Call
from rematc.ir.values import Value


def vmap_case(op: CaseBase, b: VmapContext, batch: Batch) -> tuple[Value, ...]:
    """`Case.vmap`: a case of batches, or every branch and a choice for each element."""
    if batch.is_batched[0] and op.effect is not Effect.NONE:
        # Branches with effects are not computed for elements that do not choose them.
        return b.one_by_one(op, batch)
    parts = [b.vmap_of(branch, batch.is_batched[1:]) for branch in op.branches]
    flags = [batch.is_batched[0] or any(column) for column in zip(*[found for _, found in parts], strict=True)]
    branches = [with_batch(graph, batch.size, found, flags) for graph, found in parts]
    if not batch.is_batched[0]:
        return b.emit(with_fields(op, branches=tuple(branches)), *batch.operands)
    index, *given = batch.operands
    results = b.emit(Call(branches[-1]), *given)
    for place, branch in enumerate(branches[:-1]):
        is_chosen = b.compare(index, b.full(index.type, place), "EQ")
        pairs = zip(b.emit(Call(branch), *given), results, strict=True)
        results = tuple([b.select(_along(b, is_chosen, x), x, y) for x, y in pairs])
    return results


def _along(b: Emitter, predicate: Value, x: Value) -> Value:
    return b.broadcast_in_dim(predicate, x.type.shape, (0,))
