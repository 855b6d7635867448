"""A checkpoint of the user's that is a whole program: its policy is one on the whole.

Before:  graph @loss(%w, %x) { %0 = checkpoint[dots] %w, %x {...}   %1 = convert %0 }
After:   graph @loss(%w, %x) { ...   %1 = convert %0 }, and the policy `dots`

Where the forward and the backward pass are one program, such a region would be computed again as soon as it is
computed, all at once, and would save nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from rematc.ir.core import Equation, Graph
from rematc.ir.ops.regions import Call, Checkpoint
from rematc.ir.policy import Policy, SaveNothing
from rematc.ir.splicing import splice
from rematc.passes.policies import nothing_saveable


def policy_on_whole(graph: Graph, policy: Policy | None, of: Sequence[bool]) -> tuple[Graph, Policy | None]:
    """A graph without the checkpoint that is all of it, and what both its policy and the one around it let be saved.

    A region is all of it where all results that get cotangents go back to it, and what is beside it takes no time: XLA
    computes it as a part of something else. One with `prevent_cse=False`, for one operand or all, has no barrier that
    segments could be held apart by, and stays.

    Args:
        graph: what is to be differentiated.
        policy: on the whole of it; None is no checkpoint around it.
        of: the results that are going to get cotangents.
    """
    found = graph, policy
    while (index := _only(graph, of)) is not None:
        op = graph.equations[index].op
        if isinstance(op, Checkpoint):
            both = _both(policy, op.policy or nothing_saveable) if _is_pinned(op) else None
            if both is None:
                break
            policy = both
        graph = without_region(graph, index)
        if isinstance(op, Checkpoint):
            found = graph, policy
    return found


def without_region(graph: Graph, index: int) -> Graph:
    """The graph with the body of a region in its place."""
    eqn = graph.equations[index]
    assert isinstance(eqn.op, (Call, Checkpoint))
    equations = list(graph.equations[:index])
    env = dict(zip(eqn.results, splice(eqn.op.body, eqn.operands, equations, eqn.loc), strict=True))
    for later in graph.equations[index + 1 :]:
        operands = tuple([env.get(value, value) for value in later.operands])
        equations.append(Equation(later.op, operands, later.results, later.loc))
    return Graph(graph.name, graph.params, tuple(equations), tuple([env.get(value, value) for value in graph.results]))


def _only(graph: Graph, of: Sequence[bool]) -> int | None:
    """The index of a region, or a call, that is all of the graph."""
    written = [index for index, eqn in enumerate(graph.equations) if not eqn.op.is_fusible]
    if len(written) != 1 or not isinstance(graph.equations[written[0]].op, (Call, Checkpoint)):
        return None
    (index,) = written
    reached = set(graph.equations[index].results)
    for eqn in graph.equations[index + 1 :]:
        if not reached.isdisjoint(eqn.operands):
            reached.update(eqn.results)
    differentiated = [value for value, is_set in zip(graph.results, of, strict=True) if is_set]
    return index if reached.issuperset(differentiated) else None


def _is_pinned(op: Checkpoint) -> bool:
    """Whether this is a user's region that may be behind barriers, all of it."""
    return not op.is_differentiated and all(op.pinned)


def _both(around: Policy | None, inner: Policy) -> Policy | None:
    """What saves a value where both policies do; None where that is not one of them."""
    if around is None or around.is_everything or around == inner or _is_nothing(inner):
        return inner
    return around if inner.is_everything or _is_nothing(around) else None


def _is_nothing(policy: Policy) -> bool:
    return policy == nothing_saveable or isinstance(policy, SaveNothing)
