"""Partial evaluation of while loops: known carries are computed now, and again beside the unknown ones."""

from __future__ import annotations

from collections.abc import Sequence

from rematc.ir.core import Equation, Graph, SplitContext, SplitGraph, SplitRegion
from rematc.ir.effects import silent_equation, without_effects
from rematc.ir.ops.batching import with_fields
from rematc.ir.ops.bodies import Inside, chosen, graph_of, others, settled, without_unused
from rematc.ir.ops.while_.base import WhileBase
from rematc.ir.policy import Policy


def split_while(op: WhileBase, b: SplitContext, is_unknown: Sequence[bool], policy: Policy | None) -> SplitRegion:
    """`While.split`: there is no place to stack residuals."""
    cond_consts, consts, carry = op.parts(is_unknown)

    def step(carries: tuple[bool, ...]) -> tuple[SplitGraph, tuple[bool, ...]]:
        part = b.split_of(op.body, (*consts, *carries), None)
        return part, part.is_unknown

    body, _, flags = settled(step, carry)
    cond = b.split_of(op.cond, (*cond_consts, *flags), None)
    if any(cond.is_unknown):
        flags = (True,) * len(flags)
    whole = graph_of(op, (*op.cond.param_types[: op.cond_consts], *op.body.param_types))
    operands = others(whole.params, is_unknown)
    known = _known(op, whole, cond, body, is_unknown, flags)
    forward = Graph(known.name, operands, known.equations, (*known.results, *operands))
    # What the known carries do is done now.
    is_split = not all(flags)
    later = _pruned(_without_known_effects(op, whole, is_unknown, flags) if is_split else whole, flags)
    staged = Graph(later.name, (*operands, *chosen(whole.params, is_unknown)), later.equations, later.results)
    if policy is None:
        return SplitRegion(forward, staged, flags)
    again = Graph(known.name, operands, known.equations, known.results)
    return SplitRegion(forward, staged, flags, again, (False,) * len(operands))


def _known(
    op: WhileBase, whole: Graph, cond: SplitGraph, body: SplitGraph, is_unknown: Sequence[bool], flags: Sequence[bool]
) -> Graph:
    """The loop over the known carries: what partial evaluation of condition and body leaves for now."""
    carries = tuple([not is_set for is_set in flags])
    if not any(carries):
        return Graph(whole.name, whole.params, (), ())
    inside = Inside.of(body.known)
    step = inside.build([value for value in chosen(body.known_results, carries) if value is not None])
    test = Graph(cond.known.name, cond.known.params, cond.known.equations, cond.known.results[:1])
    cond_consts, consts, _ = op.parts(is_unknown)
    counts = {"cond_consts": cond_consts.count(False), "body_consts": consts.count(False)}
    loop = with_fields(op, cond=test, body=step, **counts)
    of_cond, of_body, first = op.parts(whole.params)
    operands = (*others(of_cond, cond_consts), *others(of_body, consts), *chosen(first, carries))
    results = chosen(whole.results, carries)
    return Graph(whole.name, whole.params, (Equation(loop, operands, results),), results)


def _without_known_effects(op: WhileBase, whole: Graph, is_unknown: Sequence[bool], flags: Sequence[bool]) -> Graph:
    """The loop without the effects that condition and body have of known values."""
    if not op.effect:
        return whole
    reached = set(chosen(op.body.params, (*op.parts(is_unknown).body_consts, *flags)))
    kept = []
    for eqn in op.body.equations:
        is_known = reached.isdisjoint(eqn.operands)
        if is_known and eqn.op.effect and not eqn.results:
            continue
        kept.append(silent_equation(eqn) if is_known else eqn)
        if not is_known:
            reached.update(eqn.results)
    body = Graph(op.body.name, op.body.params, tuple(kept), op.body.results)
    silent = with_fields(op, cond=without_effects(op.cond), body=body)
    (eqn,) = whole.equations
    return Graph(whole.name, whole.params, (Equation(silent, eqn.operands, eqn.results),), whole.results)


def _pruned(whole: Graph, used: Sequence[bool]) -> Graph:
    """The graph of one while loop with only the used results."""
    equations = tuple([without_unused(eqn, used) for eqn in whole.equations if any(used)])
    return Graph(whole.name, whole.params, equations, chosen(whole.results, used))
