"""Loops and branches on a batch.

What is carried is batched if its first value is, or a step makes it so: found as a fixpoint. Elements of a batch that
disagree about a predicate go on together: a loop runs until the last element is done, and the others keep what they
have; of branches all are computed, and each element chooses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rematc.ir.core import Emitter, Graph, Primals, Value
from rematc.ir.ops.batching import repeated, to_front, with_fields
from rematc.ir.ops.bodies import Equations
from rematc.ir.ops.logical import Select
from rematc.ir.ops.reduction import ReduceOr
from rematc.ir.ops.regions import Call, VmapOfGraph
from rematc.ir.ops.shape import BroadcastInDim

if TYPE_CHECKING:
    from rematc.ir.ops.case.op import Case
    from rematc.ir.ops.scan.op import Scan
    from rematc.ir.ops.while_.op import While


def vmap_scan(
    op: Scan, b: Emitter, vmap: VmapOfGraph, size: int, operands: Primals, is_batched: Sequence[bool]
) -> tuple[Value, ...]:
    """`Scan.vmap_region`: a loop of as many steps over batches."""
    consts, carry, xs = op.parts(is_batched)
    body, found, flags = _carried(vmap, op.body, (consts, carry, xs), op.carry)
    wanted = (*flags, *found[op.carry :])
    values, first, stacks = op.parts(operands)
    results = b.emit(
        with_fields(op, body=with_batch(body, size, found, wanted)),
        *values,
        *_spread(b, size, first, carry, flags),
        # A stack has the steps first, and then the batch.
        *[to_front(b, x, 1) if is_set else x for x, is_set in zip(stacks, xs, strict=True)],
    )
    ys = zip(results[op.carry :], found[op.carry :], strict=True)
    return (*results[: op.carry], *[to_front(b, y, 1) if is_set else y for y, is_set in ys])


def vmap_while(
    op: While, b: Emitter, vmap: VmapOfGraph, size: int, operands: Primals, is_batched: Sequence[bool]
) -> tuple[Value, ...]:
    """`While.vmap_region`: a loop of batches, until the condition holds for no element."""
    of_cond, of_body, carry = op.parts(is_batched)
    body, found, flags = _carried(vmap, op.body, (of_body, carry, ()), len(carry))
    cond, (is_condition_batched,) = vmap(op.cond, (*of_cond, *flags))
    if is_condition_batched and not all(flags):
        flags = (True,) * len(carry)
        body, found = vmap(op.body, (*of_body, *flags))
        cond, _ = vmap(op.cond, (*of_cond, *flags))
    body = with_batch(body, size, found, flags)
    cond_consts, body_consts, first = op.parts(operands)
    given = _spread(b, size, first, carry, flags)
    if not is_condition_batched:
        return b.emit(with_fields(op, cond=cond, body=body), *cond_consts, *body_consts, *given)
    choosing = with_fields(
        op, cond=_any(cond), body=_where(cond, body, op.body_consts), body_consts=op.cond_consts + op.body_consts
    )
    return b.emit(choosing, *cond_consts, *cond_consts, *body_consts, *given)


def vmap_case(
    op: Case, b: Emitter, vmap: VmapOfGraph, size: int, operands: Primals, is_batched: Sequence[bool]
) -> tuple[Value, ...]:
    """`Case.vmap_region`: a case of batches, or every branch and a choice for each element."""
    parts = [vmap(branch, is_batched[1:]) for branch in op.branches]
    flags = [is_batched[0] or any(column) for column in zip(*[found for _, found in parts], strict=True)]
    branches = [with_batch(graph, size, found, flags) for graph, found in parts]
    if not is_batched[0]:
        return b.emit(with_fields(op, branches=tuple(branches)), *operands)
    index, *given = operands
    results = b.emit(Call(branches[-1]), *given)
    for place, branch in enumerate(branches[:-1]):
        is_chosen = b.compare(index, b.full(index.type, place), "EQ")
        pairs = zip(b.emit(Call(branch), *given), results, strict=True)
        results = tuple([b.select(_along(b, is_chosen, x), x, y) for x, y in pairs])
    return results


def _along(b: Emitter, predicate: Value, x: Value) -> Value:
    return b.broadcast_in_dim(predicate, x.type.shape, (0,))


def _carried(
    vmap: VmapOfGraph, body: Graph, flags: tuple[Sequence[bool], Sequence[bool], Sequence[bool]], count: int
) -> tuple[Graph, tuple[bool, ...], tuple[bool, ...]]:
    """The body batched, which of its results are, and which carries have to be: its first `count` results.

    The flags are those of operands before the carries, of the carries, and of operands after them.
    """
    before, carry, after = flags
    while True:
        graph, found = vmap(body, (*before, *carry, *after))
        grown = tuple([old or new for old, new in zip(carry, found[:count], strict=True)])
        if grown == tuple(carry):
            return graph, found, grown
        carry = grown


def _spread(b: Emitter, size: int, values: Primals, is_batched: Sequence[bool], wanted: Sequence[bool]) -> list[Value]:
    """The values, those that have to be batched repeated."""
    rows = zip(values, is_batched, wanted, strict=True)
    return [repeated(b, size, x, is_set) if is_wanted else x for x, is_set, is_wanted in rows]


def with_batch(graph: Graph, size: int, found: Sequence[bool], wanted: Sequence[bool]) -> Graph:
    """The graph with results repeated that have to be batched and are not."""
    if list(found) == list(wanted):
        return graph
    inside = Equations(graph.equations)
    results = []
    for value, is_set, is_wanted in zip(graph.results, found, wanted, strict=True):
        shape, rank = value.type.shape, value.type.rank
        is_missing = is_wanted and not is_set
        op = BroadcastInDim((size, *shape), tuple(range(1, rank + 1)))
        results.append(inside.emit(op, value)[0] if is_missing else value)
    return Graph(graph.name, graph.params, tuple(inside.all), tuple(results))


def _any(cond: Graph) -> Graph:
    """Whether the condition holds for any element."""
    inside = Equations(cond.equations)
    results = inside.emit(ReduceOr((0,)), *cond.results)
    return Graph(cond.name, cond.params, tuple(inside.all), results)


def _where(cond: Graph, body: Graph, body_consts: int) -> Graph:
    """A step for the elements for which the condition holds: (its consts, the body's, carries) to carries."""
    carry = body.params[body_consts:]
    consts = tuple([Value(value.type, value.name) for value in cond.params[: len(cond.params) - len(carry)]])
    inside = Equations(body.equations)
    env = dict(zip(cond.params, (*consts, *carry), strict=True))
    for eqn in cond.equations:
        inside.copy(eqn, env)
    predicate = env[cond.results[0]]
    results = []
    for old, new in zip(carry, body.results, strict=True):
        (holds,) = inside.emit(BroadcastInDim(new.type.shape, (0,)), predicate)
        results.append(inside.emit(Select(), holds, new, old)[0])
    return Graph(body.name, (*consts, *body.params), tuple(inside.all), tuple(results))
