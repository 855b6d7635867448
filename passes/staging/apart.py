"""What a derivative takes for constant, and a policy would save much for: computed once, outside of all segments.

Before:  %logits = dot_general %y, %frozen    %r = reduce_sum %logits    %d = subtract %a, %r    (dots are saved)
After:   the same, with %r computed before the segments, which take it as they take a parameter

No tangent comes to %r: a segment that reads it computes it again from the logits, which are saved for nothing else.
Where the value itself is smaller than all that is saved for it, it is what is saved. (Frozen parts of a model; the
reference in a loss that compares two models.) What follows from something that is saved for its own tangent stays where
it is: whether the largest logit is finite is no reason to run the model twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

from rematc.ir.core import Equation, Graph
from rematc.ir.ops.bodies import live_equations
from rematc.ir.ops.structural import StopGradient
from rematc.ir.policy import Policy
from rematc.ir.values import Value
from rematc.passes.aliases import find_aliases
from rematc.passes.staging.profile import saved_by


@dataclass(frozen=True, slots=True)
class Apart:
    """A graph in two parts.

    Attributes:
        before: the equations that compute what is held, of the graph's parameters.
        rest: the graph with what is held as further parameters, last.
        held: how many these are.
    """

    before: tuple[Equation, ...]
    rest: Graph
    held: int

    def joined(self, rest: Graph) -> Graph:
        """The whole graph, of what has become of `rest`, which may have other values as its parameters."""
        env = dict(zip(self.rest.params, rest.params, strict=True))
        before = [
            Equation(
                eqn.op,
                tuple([env.get(value, value) for value in eqn.operands]),
                tuple([env.get(value, value) for value in eqn.results]),
                eqn.loc,
            )
            for eqn in self.before
        ]
        params = rest.params[: len(rest.params) - self.held]
        return Graph(rest.name, params, (*before, *rest.equations), rest.results)


def held_apart(graph: Graph, policy: Policy, wrt: Sequence[bool]) -> Apart | None:
    """The graph with what is worth holding apart; None where nothing is.

    Args:
        graph: what is to be differentiated, without calls.
        policy: what may be saved.
        wrt: the parameters that it is going to be differentiated by.
    """
    equations = graph.equations
    moving = _moving(graph, wrt)
    saved = saved_by(equations, policy, find_aliases(equations)).keys()
    if all(value in moving for value in saved):
        return None
    producer = {value: eqn for eqn in equations for value in eqn.results}
    read = {value for eqn in equations if not moving.isdisjoint(eqn.results) for value in eqn.operands}
    others = moving | _behind(graph, moving & saved)
    fixed = [value for value in producer if value in read and value not in others and value not in saved]
    held = [value for value in fixed if _is_worth_it(value, producer, saved)]
    if not held:
        return None
    before = _copies(live_equations(Graph(graph.name, graph.params, _pure(equations), ()), set(held)), set(held))
    rest = Graph(graph.name, (*graph.params, *held), _without(equations, set(held)), graph.results)
    return Apart(
        before, Graph(rest.name, rest.params, live_equations(rest, set(rest.results)), rest.results), len(held)
    )


def _moving(graph: Graph, wrt: Sequence[bool]) -> set[Value]:
    """The values that a tangent may come to."""
    found = {value for value, is_set in zip(graph.params, wrt, strict=True) if is_set}
    for eqn in graph.equations:
        if not isinstance(eqn.op, StopGradient) and not found.isdisjoint(eqn.operands):
            found.update(value for value in eqn.results if value.type.dtype.is_inexact)
    return found


def _behind(graph: Graph, own: Set[Value]) -> set[Value]:
    """What a policy saves for its own sake, and all that follows from it: a copy would do the forward pass again."""
    found = set(own)
    for eqn in graph.equations:
        if not found.isdisjoint((*eqn.operands, *eqn.results)):
            found.update(eqn.results)
    return found


def _is_worth_it(value: Value, producer: dict[Value, Equation], saved: Set[Value]) -> bool:
    """Whether a value has fewer bytes than what is saved to compute it again, which nothing with an effect leads to."""
    seen = {value}
    has_effect = any(eqn.op.effect for eqn in tuple(_leading_to(value, producer, saved, seen)))
    return not has_effect and value.type.bytes < sum(one.type.bytes for one in seen if one in saved)


def _leading_to(
    value: Value, producer: dict[Value, Equation], saved: Set[Value], seen: set[Value]
) -> Iterator[Equation]:
    """The equations that compute a value from what is saved, and parameters; `seen` gains what they read."""
    work = [value]
    while work:
        eqn = producer.get(work.pop())
        if eqn is not None:
            yield eqn
            new = [one for one in eqn.operands if one not in seen]
            seen.update(new)
            work += [one for one in new if one not in saved]


def _copies(equations: Sequence[Equation], held: set[Value]) -> tuple[Equation, ...]:
    """The equations with values of their own but for those held: what else reads the others computes them itself."""
    env: dict[Value, Value] = {}
    found = []
    for eqn in equations:
        operands = tuple([env.get(value, value) for value in eqn.operands])
        env.update({value: Value(value.type, value.name) for value in eqn.results if value not in held})
        results = tuple([env.get(value, value) for value in eqn.results])
        found.append(Equation(eqn.op, operands, results, eqn.loc))
    return tuple(found)


def _pure(equations: Sequence[Equation]) -> tuple[Equation, ...]:
    return tuple([eqn for eqn in equations if not eqn.op.effect])


def _without(equations: Sequence[Equation], held: set[Value]) -> tuple[Equation, ...]:
    """The equations but those all of whose results are held; another result of one of these is computed there, too."""
    found = []
    for eqn in equations:
        if eqn.results and held.issuperset(eqn.results):
            continue
        results = tuple([Value(value.type) if value in held else value for value in eqn.results])
        found.append(eqn if results == eqn.results else Equation(eqn.op, eqn.operands, results, eqn.loc))
    return tuple(found)
