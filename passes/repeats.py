"""Analysis: what a backward graph computes again in more than one of its segments.

Before:  %1, %2 = checkpoint %x, %ct0 {... sine %x ...}   %3, %4 = checkpoint %x, %1 {... sine %x ...}
After:   sine of %x, in 2 segments

Holding a value from one segment to the next takes memory; taking it again takes work. Staging takes what follows from
parameters by a little elementwise work again in each segment that uses it, and regions of the user's own may overlap.
Values are numbered through regions: two equations are the same if their ops are, and their operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rematc.ir.core import Equation, Graph
from rematc.ir.facts import Storage
from rematc.ir.ops.regions import Call, Checkpoint
from rematc.ir.ops.scan.op import Scan
from rematc.ir.values import Value


@dataclass(frozen=True, slots=True)
class Repeat:
    """An equation that several segments evaluate.

    Attributes:
        eqn: the equation, as the first of them has it.
        segments: how many they are.
    """

    eqn: Equation
    segments: int


def repeats_in_segments(graph: Graph, is_ct: Sequence[bool]) -> tuple[Repeat, ...]:
    """Equations of a backward graph that several of its segments repeat, those that take most work first.

    `is_ct` marks the parameters that are cotangents: what depends on them is no recomputation. Constants and what
    follows from them alone do not count, nor do other names of values.
    """
    numbering = _Numbering()
    params = [None if is_set else numbering.fresh() for is_set in is_ct]
    numbering.graph(graph, params, None)
    found = [Repeat(eqn, len(regions)) for eqn, regions in numbering.found.values() if len(regions) > 1]
    return tuple(sorted(found, key=lambda one: -one.eqn.flops * one.segments))


#: The number of a value: the same for two that are equal; None for one that depends on cotangents.
_Number = int | None


class _Numbering:
    def __init__(self) -> None:
        self.numbers: dict[object, int] = {}
        self.found: dict[object, tuple[Equation, set[int]]] = {}
        self.constant: set[int] = set()
        self.regions = 0

    def fresh(self) -> int:
        return self.numbers.setdefault(object(), len(self.numbers))

    def graph(self, graph: Graph, params: Sequence[_Number], region: int | None) -> list[_Number]:
        """Number a graph that stands in a region, given its parameters' numbers; its results' numbers."""
        env: dict[Value, _Number] = dict(zip(graph.params, params, strict=True))
        for eqn in graph.equations:
            operands = [env[value] for value in eqn.operands]
            env.update(zip(eqn.results, self.results(eqn, operands, region), strict=True))
        return [env[value] for value in graph.results]

    def results(self, eqn: Equation, operands: list[_Number], region: int | None) -> list[_Number]:
        match eqn.op:
            case Checkpoint(body=body, is_differentiated=True):
                self.regions += 1
                return self.graph(body, operands, self.regions)
            case Checkpoint(body=body) | Call(body=body):
                return self.graph(body, operands, region)
            case Scan(body=body) if None in operands:
                self._loop(eqn.op, operands)
        known = [number for number in operands if number is not None]
        if eqn.op.effect or len(known) < len(operands):
            return [None] * len(eqn.results)
        if eqn.op.storage is Storage.ALIAS:
            return list(operands)
        key = (eqn.op, *known)
        numbers: list[_Number] = []
        for index in range(len(eqn.results)):
            number = self.numbers.setdefault((key, index), len(self.numbers))
            numbers.append(number)
            if self.constant.issuperset(known):
                self.constant.add(number)
        if region is not None and not self.constant.issuperset(known):
            self.found.setdefault(key, (eqn, set()))[1].add(region)
        return numbers

    def _loop(self, loop: Scan, operands: list[_Number]) -> None:
        """The segments of a step. Carries, and what a step takes of a cotangent, are the step's own."""
        consts, carry, xs = loop.parts(operands)
        own: list[_Number] = [*consts, *[None] * len(carry), *[None if x is None else self.fresh() for x in xs]]
        self.graph(loop.body, own, None)
