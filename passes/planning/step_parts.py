"""What a step of a loop is made of, and what each of it takes, down to the steps of the loops and the branches in it.

Before:  %c, %h, %y = scan %x, %ws {body: %h = dot %c, %w   %y = tanh %h   return %y, %h, %y}
After:   body's %c from %x and body's %y, 0 ns; %h from %c and %w, 4 us a step; %y from %h, 1 us a step; ...
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rematc.ir.core import Equation, Graph
from rematc.ir.ops.case.op import Case
from rematc.ir.ops.scan.op import Scan
from rematc.ir.values import Value
from rematc.passes.planning.needed_parts import open_loop
from rematc.passes.planning.shards import Machine
from rematc.passes.planning.translation import translate

#: A value of a graph: that of the step, which is 0, or of a loop in it, or of a branch.
Key = tuple[int, Value]


@dataclass(frozen=True, slots=True)
class Part:
    """An equation of a step, or of a loop or a branch in it, or how a value comes into one of these or out of it.

    Attributes:
        reads: what it needs.
        gives: what it computes.
        cost: nanoseconds in all steps of the loops around it, within one step of the outermost one.
        steps: of what a step of a loop takes over from that before it, how many steps the loop has; else 0.
    """

    reads: tuple[Key, ...]
    gives: tuple[Key, ...]
    cost: int = 0
    steps: int = 0


class Parts:
    """A step as the parts of which `needed_parts` takes those that are needed.

    Attributes:
        parts: all of them.
        stacks: for values of loops in the step where they are stacked, and for those of branches where they are given.
    """

    def __init__(self, graph: Graph, machine: Machine) -> None:
        self.parts: list[Part] = []
        self.stacks: dict[Key, list[Key]] = {}
        self._machine = machine
        self._count = 0
        self._add(graph, 0, 1)

    def _add(self, graph: Graph, number: int, times: int) -> None:
        translation = translate(graph, self._machine)
        costs = {
            translation.own(node).results[0]: int(cost)
            for node, cost in enumerate(translation.problem.cost)
            if translation.own(node).results
        }
        for eqn in graph.equations:
            loop = open_loop(eqn)
            if loop is not None:
                self._count += 1
                self.parts += self._links(eqn, loop, number, self._count)
                self._add(loop.body, self._count, times * loop.length)
            elif isinstance(eqn.op, Case):
                self._add_branches(eqn, eqn.op, number, times)
            else:
                cost = costs.get(eqn.results[0], 0) if eqn.results else 0
                self.parts.append(Part(_keys(number, eqn.operands), _keys(number, eqn.results), cost * times))

    def _add_branches(self, eqn: Equation, op: Case, outer: int, times: int) -> None:
        """What is in branches, each as if it ran, and how values come into them and out of the one that is taken."""
        numbers = []
        index, *operands = _keys(outer, eqn.operands)
        for branch in op.branches:
            self._count += 1
            numbers.append(self._count)
            self.parts += [
                Part((operand, index), _keys(self._count, [param]))
                for operand, param in zip(operands, branch.params, strict=True)
            ]
            self._add(branch, self._count, times)
        for place, given in enumerate(_keys(outer, eqn.results)):
            values = [(number, branch.results[place]) for number, branch in zip(numbers, op.branches, strict=True)]
            self.parts.append(Part(tuple(values), (given,)))
            for value in values:
                self.stacks.setdefault(value, []).append(given)

    def _links(self, eqn: Equation, op: Scan, outer: int, inner: int) -> Iterator[Part]:
        """How values come into a loop, and out of it."""
        results = op.body.results
        for place, (operand, param) in enumerate(zip(eqn.operands, op.body.params, strict=True)):
            carry = place - op.consts
            before = _keys(inner, [results[carry]] if 0 <= carry < op.carry else [])
            yield Part(((outer, operand), *before), ((inner, param),), steps=op.length if before else 0)
        for place, (given, result) in enumerate(zip(eqn.results, results, strict=True)):
            yield Part(((inner, result),), ((outer, given),))
            if place >= op.carry:
                self.stacks.setdefault((inner, result), []).append((outer, given))


def _keys(number: int, values: Iterable[Value]) -> tuple[Key, ...]:
    return tuple([(number, value) for value in values])
