"""What runs again for some values of a step: of loops and branches in it, only what leads to them from what is known.

Before:  %c, %h, %y = scan %x, %ws {body: %h = dot %c, %w   %y = tanh %h   return %y, %h, %y}
After:   %y = scan %h {body: %y = tanh %h   return %y}

where %y is needed and %h is known. A loop that stacks values for its own backward loop stands in a step of another pair
of loops, as layers of recurrences or steps of a solver do. Its stacks are made of one another, step by step, and only
the carries need all steps before. So what is known of them saves all that leads to it.

Before:  %h, %y = case %i, %c, %w {branches: [%h = dot %c, %w   %y = tanh %h   return %h, %y], [...]}
After:   %y = case %i, %h {branches: [%y = tanh %h   return %y], [...]}
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import replace

from rematc.ir.core import Equation, Graph
from rematc.ir.ops.case.op import Case
from rematc.ir.ops.scan.base import stack_of
from rematc.ir.ops.scan.op import Scan
from rematc.ir.splicing import reading
from rematc.ir.values import Value

#: For the last carries of loops what stacks those with which their steps begin.
States = dict[Value, Value]


def needed_parts(
    equations: Sequence[Equation], targets: Iterable[Value], known: Set[Value], states: States | None = None
) -> list[Equation]:
    """The equations, or parts of them, that lead from what is known to the targets that are not.

    Args:
        equations: of one graph, in order.
        targets: values of these, or parameters.
        known: values that need no equation.
        states: what is read of this kind is entered here, so that no loop takes its steps again for a carry; None if
            there are no such stacks, and the loops do.
    """
    needed = {*targets} - known
    found = []
    for eqn in reversed(equations):
        if not needed.isdisjoint(eqn.results):
            part = _part(eqn, needed, known, states)
            found.append(part)
            needed.update([value for value in part.operands if value not in known])
    return found[::-1]


def _part(eqn: Equation, needed: Set[Value], known: Set[Value], states: States | None) -> Equation:
    if isinstance(eqn.op, Case):
        return _part_of_branches(eqn, eqn.op, needed, known)
    loop = open_loop(eqn)
    return eqn if loop is None else _part_of_loop(eqn, loop, needed, known, states)


def open_loop(eqn: Equation) -> Scan | None:
    """The loop that an equation is, if its steps may give less than they do."""
    op = eqn.op
    return op if isinstance(op, Scan) and not op.snapshots and not op.is_unrolled else None


def _part_of_loop(eqn: Equation, op: Scan, needed: Set[Value], known: Set[Value], states: States | None) -> Equation:
    """The loop that gives what is needed of its results; itself if all of it runs for that."""
    carry_params, results = op.parts(op.body.params).carry, op.body.results
    given: dict[Value, Value] = {}
    for stack, value in zip(eqn.results[op.carry :], results[op.carry :], strict=True):
        if stack in known:
            given.setdefault(value, stack)
    stacks = [place for place in range(op.carry, len(results)) if eqn.results[place] in needed]
    carries = {place for place in range(op.carry) if eqn.results[place] in needed}
    while True:
        targets = [results[place] for place in (*sorted(carries), *stacks)]
        equations = needed_parts(op.body.equations, targets, given.keys())
        read = {*targets}.union(*[inner.operands for inner in equations])
        missing = {place for place, param in enumerate(carry_params) if param in read and param not in given}
        if states is None:
            missing -= carries
            carries |= missing
        else:
            for place in missing:
                type = stack_of(carry_params[place].type, op.length)
                given[carry_params[place]] = states.setdefault(eqn.results[place], Value(type))
        if not missing:
            break
    if len(carries) == op.carry and equations == [*op.body.equations]:
        return eqn
    return _loop_of(eqn, op, [*sorted(carries), *stacks], equations, {one: given[one] for one in given if one in read})


def _loop_of(
    eqn: Equation, op: Scan, places: Sequence[int], equations: Sequence[Equation], given: dict[Value, Value]
) -> Equation:
    """A loop of these equations, which gives the results of these places; `given` are stacks of what it does not
    compute.
    """
    read = {op.body.results[place] for place in places}.union(*[inner.operands for inner in equations])
    instead = {value: Value(value.type, value.name) for value in given}
    consts, _, xs = [
        [(param, operand) for param, operand in zip(params, operands, strict=True) if param in read - given.keys()]
        for params, operands in zip(op.parts(op.body.params), op.parts(eqn.operands), strict=True)
    ]
    count = sum(place < op.carry for place in places)
    carries = [(op.parts(op.body.params).carry[place], op.parts(eqn.operands).carry[place]) for place in places[:count]]
    taken = [*consts, *carries, *xs, *[(instead[value], stack) for value, stack in given.items()]]
    body = Graph(
        op.body.name,
        tuple([param for param, _ in taken]),
        tuple([reading(inner, instead) for inner in equations]),
        tuple([instead.get(op.body.results[place], op.body.results[place]) for place in places]),
    )
    loop = replace(op, body=body, consts=len(consts), carry=count)
    return Equation(
        loop, tuple([operand for _, operand in taken]), tuple([eqn.results[place] for place in places]), eqn.loc
    )


def _part_of_branches(eqn: Equation, op: Case, needed: Set[Value], known: Set[Value]) -> Equation:
    """The branches that give what is needed of their results; themselves if all of each runs for that.

    What is known of the others was computed by the branch that is taken, and is given to each.
    """
    places = [place for place, value in enumerate(eqn.results) if value in needed]
    of_known = {place: value for place, value in enumerate(eqn.results) if value in known}
    parts = []
    for branch in op.branches:
        instead = {branch.results[place]: place for place in of_known if branch.results[place] not in branch.params}
        targets = [branch.results[place] for place in places]
        equations = needed_parts(branch.equations, targets, instead.keys())
        parts.append((branch, instead, equations, {*targets}.union(*[inner.operands for inner in equations])))
    if all(len(equations) == len(branch.equations) for branch, _, equations, _ in parts):
        return eqn
    given = [
        place
        for place in of_known
        if any(instead.get(value) == place for _, instead, _, read in parts for value in read)
    ]
    taken = [
        place
        for place in range(len(eqn.operands) - 1)
        if any(branch.params[place] in read for branch, _, _, read in parts)
    ]
    branches = []
    for branch, instead, equations, _ in parts:
        params = {place: Value(of_known[place].type, of_known[place].name) for place in given}
        env = {value: params[place] for value, place in instead.items() if place in params}
        branches.append(
            Graph(
                branch.name,
                (*[branch.params[place] for place in taken], *params.values()),
                tuple([reading(inner, env) for inner in equations]),
                tuple([env.get(branch.results[place], branch.results[place]) for place in places]),
            )
        )
    operands = (eqn.operands[0], *[eqn.operands[place + 1] for place in taken], *[of_known[place] for place in given])
    return Equation(Case(tuple(branches)), operands, tuple([eqn.results[place] for place in places]), eqn.loc)


def with_states(eqn: Equation, states: States) -> Equation:
    """The loop that stacks the carries with which its steps begin, as far as they are asked for."""
    op = eqn.op
    if not isinstance(op, Scan) or states.keys().isdisjoint(eqn.results):
        return eqn
    places = [place for place, value in enumerate(eqn.results[: op.carry]) if value in states]
    params = op.parts(op.body.params).carry
    given = (*op.body.results, *[params[place] for place in places])
    body = Graph(op.body.name, op.body.params, op.body.equations, given)
    results = (*eqn.results, *[states[eqn.results[place]] for place in places])
    return Equation(replace(op, body=body), eqn.operands, results, eqn.loc)
