"""Loops as long as a condition holds, on a batch.

Elements that disagree about the condition go on together: the loop runs until the last of them is done, and the others
keep what they have.
"""

from __future__ import annotations

from rematc.ir.batches import Batch
from rematc.ir.core import Graph, VmapContext
from rematc.ir.facts import Effect
from rematc.ir.ops.batching import batched_where, with_fields
from rematc.ir.ops.bodies import Inside, settled, with_batch
from rematc.ir.ops.logical import Select
from rematc.ir.ops.reduction import ReduceOr
from rematc.ir.ops.shape import BroadcastInDim
from rematc.ir.ops.while_.base import WhileBase
from rematc.ir.values import Value


def vmap_while(op: WhileBase, b: VmapContext, batch: Batch) -> tuple[Value, ...]:
    """`While.vmap`: a loop of batches, until the condition holds for no element."""
    if op.effect is not Effect.NONE and any(batch.is_batched):
        # An element that is done has no more effects, while others go on.
        return b.one_by_one(op, batch)
    of_cond, of_body, carry = op.parts(batch.is_batched)
    body, found, flags = settled(lambda carries: b.vmap_of(op.body, (*of_body, *carries)), carry)
    cond, (is_condition_batched,) = b.vmap_of(op.cond, (*of_cond, *flags))
    if is_condition_batched and not all(flags):
        flags = (True,) * len(carry)
        body, found = b.vmap_of(op.body, (*of_body, *flags))
        cond, _ = b.vmap_of(op.cond, (*of_cond, *flags))
    body = with_batch(body, batch.size, found, flags)
    cond_consts, body_consts, first = op.parts(batch.operands)
    given = batched_where(b, batch, first, carry, flags)
    if not is_condition_batched:
        return b.emit(with_fields(op, cond=cond, body=body), *cond_consts, *body_consts, *given)
    choosing = with_fields(
        op, cond=_any(cond), body=_where(cond, body, op.body_consts), body_consts=op.cond_consts + op.body_consts
    )
    return b.emit(choosing, *cond_consts, *cond_consts, *body_consts, *given)


def _any(cond: Graph) -> Graph:
    """Whether the condition holds for any element."""
    inside = Inside.of(cond)
    return inside.build(inside.emit(ReduceOr((0,)), *cond.results))


def _where(cond: Graph, body: Graph, body_consts: int) -> Graph:
    """A step for the elements for which the condition holds: (its consts, the body's, carries) to carries."""
    carry = body.params[body_consts:]
    consts = tuple([Value(value.type, value.name) for value in cond.params[: len(cond.params) - len(carry)]])
    inside = Inside(body.name, (*consts, *body.params), body.equations)
    (predicate,) = inside.inline(cond, (*consts, *carry))
    results = []
    for old, new in zip(carry, body.results, strict=True):
        (holds,) = inside.emit(BroadcastInDim(new.type.shape, (0,)), predicate)
        results.append(inside.emit(Select(), holds, new, old)[0])
    return inside.build(results)
