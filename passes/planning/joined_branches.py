"""Branches whose results nothing reads but other branches of the same index: they are computed in these.

Before:  %1, %2 = case %i, %c {branches: [%1 = dot ..., %2 = tanh ...], ...}
         %3 = case %i, %1, %2, %ct {branches: [%3 = dot ...], ...}
After:   %3 = case %i, %ct, %c {branches: [%1 = dot ...   %2 = tanh ...   %3 = dot ...], ...}

What is given to branches is in memory as long as they run, and what they compute themselves as long as it is read. So
are, once joined, the residuals that a step computes again; and the branch can run in stages.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from rematc.ir.core import Equation, Graph
from rematc.ir.ops.case.op import Case
from rematc.ir.splicing import splice
from rematc.ir.values import Value


def with_joined_branches(graph: Graph) -> Graph:
    """The graph with each such branch in the one that reads it."""
    found = list(graph.equations)
    kept = set(graph.results)
    place = 0
    while place < len(found):
        before = _only_read_by(found, place, kept)
        if before is None:
            place += 1
            continue
        found[place] = joined(found[before], found[place], set(found[before].results))
        del found[before]
        place -= 1  # further ones may give to it
    return Graph(graph.name, graph.params, tuple(found), graph.results)


def _only_read_by(equations: Sequence[Equation], place: int, kept: set[Value]) -> int | None:
    """The place of branches that give what these alone read; None where there are none."""
    reader = equations[place]
    if not isinstance(reader.op, Case):
        return None
    for before in range(place - 1, -1, -1):
        eqn = equations[before]
        if not isinstance(eqn.op, Case) or eqn.op.effect or eqn.operands[0] is not reader.operands[0]:
            continue
        given = set(eqn.results)
        if given.isdisjoint(reader.operands) or not given.isdisjoint(kept):
            continue
        if all(other is reader or given.isdisjoint(other.operands) for other in equations[before + 1 :]):
            return before
    return None


def joined(eqn: Equation, reader: Equation, values: Set[Value]) -> Equation:
    """One equation of two with branches of one index: of what the first one gives, the second one computes `values`."""
    assert isinstance(eqn.op, Case), "branches"
    assert isinstance(reader.op, Case), "branches"
    given = {value: place for place, value in enumerate(eqn.results) if value in values}
    operands = list(dict.fromkeys([*[value for value in reader.operands[1:] if value not in given], *eqn.operands[1:]]))
    branches = []
    for first, second in zip(eqn.op.branches, reader.op.branches, strict=True):
        params = {value: Value(value.type, value.name) for value in operands}
        inside: list[Equation] = []
        made = splice(first, [params[value] for value in eqn.operands[1:]], inside)
        taken = [made[given[value]] if value in given else params[value] for value in reader.operands[1:]]
        results = splice(second, taken, inside)
        branches.append(Graph(second.name, tuple(params.values()), tuple(inside), results))
    return Equation(Case(tuple(branches)), (reader.operands[0], *operands), reader.results, reader.loc)
