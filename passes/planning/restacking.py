"""Stack what a later loop computes again, so that a plan decides what of it is stacked.

Before:  %0, %1 = scan %x, %ws {body: %h = tanh (dot %c, %w)   return %h, %c}
         %8 = scan %7, %ws, %1 {is_reversed, body: %h = tanh (dot %c, %w), and reads %h}
After:   %0, %1 = scan %x, %ws {body: %h = tanh (dot %c, %w)   return %h, %h}
         %8 = scan %7, %ws, %1 {is_reversed, body: reads %h}

As of a loop over layers in `jax.checkpoint`: it is the way back from what `rematc.passes.planning.loops` plans. A step
of the later loop is compared with that of the earlier one, equation by equation, where both have the same slices.
"""

from __future__ import annotations

from dataclasses import replace

from rematc.ir.core import Equation, Graph
from rematc.ir.ops.bodies import live_equations
from rematc.ir.ops.scan.base import stack_of
from rematc.ir.ops.scan.op import Scan
from rematc.ir.splicing import reading
from rematc.ir.values import Value
from rematc.passes.regions import RegionRewriter


def restacked(graph: Graph) -> Graph:
    """The graph, and its regions, in which loops read what they compute again; itself where there are none of these.

    Stacks that nothing reads any more are left.
    """
    return _Restacking().graph(graph)


class _Restacking:
    def __init__(self) -> None:
        self._regions = RegionRewriter(self.graph)

    def graph(self, graph: Graph) -> Graph:
        ops = [self._regions.op(eqn.op) for eqn in graph.equations]
        pairs = zip(graph.equations, ops, strict=True)
        equations = [eqn if op is eqn.op else replace(eqn, op=op) for eqn, op in pairs]
        loops = [place for place, eqn in enumerate(equations) if isinstance(eqn.op, Scan) and not eqn.op.is_unrolled]
        for later in loops:
            for earlier in loops[: loops.index(later)]:
                equations[earlier], equations[later] = _pair(equations[earlier], equations[later])
        is_same = all(new is eqn for new, eqn in zip(equations, graph.equations, strict=True))
        return graph if is_same else Graph(graph.name, graph.params, tuple(equations), graph.results)


def _pair(forward: Equation, backward: Equation) -> tuple[Equation, Equation]:
    """Two loops, the later one of which reads what of its step the earlier one computes as well."""
    loop, other = forward.op, backward.op
    assert isinstance(loop, Scan)
    assert isinstance(other, Scan)
    stacks, given = forward.results[loop.carry :], set(other.parts(backward.operands).xs)
    if loop.length != other.length or loop.snapshots or other.snapshots or given.isdisjoint(stacks):
        return forward, backward
    same = _same(forward, loop, backward, other)
    if not same:
        return forward, backward
    values = loop.body.results[loop.carry :]
    more = {value: Value(stack_of(value.type, loop.length), value.name) for value in same.values()}
    more = {value: stack for value, stack in more.items() if value not in values}
    where = {**dict(zip(values, stacks, strict=True)), **more}
    step = Graph(loop.body.name, loop.body.params, loop.body.equations, (*loop.body.results, *more))
    forward = Equation(replace(loop, body=step), forward.operands, (*forward.results, *more.values()), forward.loc)
    return forward, _reading(backward, other, {value: where[of] for value, of in same.items()})


def _same(forward: Equation, loop: Scan, backward: Equation, other: Scan) -> dict[Value, Value]:
    """Of what a step of the later loop computes, and reads, the values of the earlier one's that are the same.

    Only those that something else reads in it; what follows from constants alone is none of them.
    """
    theirs, own = loop.parts(loop.body.params), other.parts(other.body.params)
    given, read = loop.parts(forward.operands), other.parts(backward.operands)
    known = dict(zip(given.xs, theirs.xs, strict=True))
    known |= dict(zip(forward.results[loop.carry :], loop.body.results[loop.carry :], strict=True))
    consts = dict(zip(given.consts, theirs.consts, strict=True))
    found = {param: known[value] for param, value in zip(own.xs, read.xs, strict=True) if value in known}
    found |= {param: consts[value] for param, value in zip(own.consts, read.consts, strict=True) if value in consts}
    computed = {(eqn.op, eqn.operands): eqn.results for eqn in loop.body.equations if _is_mergeable(eqn)}
    varying = set(found)
    made: dict[Value, Value] = {}
    readers: list[Value] = list(other.body.results)
    for eqn in other.body.equations:
        operands = tuple([found[value] for value in eqn.operands if value in found])
        results = computed.get((eqn.op, operands)) if len(operands) == len(eqn.operands) else None
        if results is None:
            readers += eqn.operands
            continue
        found.update(zip(eqn.results, results, strict=True))
        if not varying.isdisjoint(eqn.operands):
            varying.update(eqn.results)
            made.update(zip(eqn.results, results, strict=True))
    return {value: made[value] for value in dict.fromkeys(readers) if value in made}


def _is_mergeable(eqn: Equation) -> bool:
    return eqn.op.is_mergeable and not eqn.op.effect


def _reading(backward: Equation, other: Scan, stacks: dict[Value, Value]) -> Equation:
    """The later loop, which reads slices of stacks in the place of values of its step."""
    body = other.body
    there = dict(zip(other.parts(backward.operands).xs, other.parts(body.params).xs, strict=True))
    new = {value: Value(value.type, value.name) for value, stack in stacks.items() if stack not in there}
    instead = {value: new.get(value) or there[stack] for value, stack in stacks.items()}
    equations = [reading(eqn, instead) for eqn in body.equations]
    results = tuple([instead.get(value, value) for value in body.results])
    step = Graph(body.name, (*body.params, *new.values()), tuple(equations), results)
    needed = live_equations(step, set(results))
    op = replace(other, body=Graph(body.name, step.params, needed, results))
    return Equation(op, (*backward.operands, *[stacks[value] for value in new]), backward.results, backward.loc)
