"""Loops on a batch. What is carried is batched if its first value is, or a step makes it so."""

from __future__ import annotations

from rematc.ir.batches import Batch
from rematc.ir.core import VmapContext
from rematc.ir.ops.batching import batched_where, to_front, with_fields
from rematc.ir.ops.bodies import settled, with_batch
from rematc.ir.ops.scan.base import ScanBase
from rematc.ir.values import Value


def vmap_scan(op: ScanBase, b: VmapContext, batch: Batch) -> tuple[Value, ...]:
    """`Scan.vmap`: a loop of as many steps over batches."""
    _, carry, xs = op.parts(batch.is_batched)
    body, found, flags = settled(lambda carries: b.vmap_of(op.body, op.with_carries(batch.is_batched, carries)), carry)
    values, first, stacks = op.parts(batch.operands)
    results = b.emit(
        with_fields(op, body=with_batch(body, batch.size, found, (*flags, *found[op.carry :]))),
        *values,
        *batched_where(b, batch, first, carry, flags),
        # A stack has the steps first, and then the batch.
        *[to_front(b, x, 1) if is_set else x for x, is_set in zip(stacks, xs, strict=True)],
    )
    ys = zip(results[op.carry :], found[op.carry :], strict=True)
    return (*results[: op.carry], *[to_front(b, y, 1) if is_set else y for y, is_set in ys])
