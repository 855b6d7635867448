"""Write the new value of a donated parameter behind all that reads the old one, so that it needs no copy.

Before:  %g = dot_general %x, %ct          %new = subtract %w, %g       (a result, in the memory of %w)
         %dx = dot_general %ct, %w
After:   %g = dot_general %x, %ct          %dx = dot_general %ct, %w
         %old, %_ = optimization_barrier %w, %dx
         %new = subtract %old, %g

Nothing else orders the two: a compiler that writes %new first, where the gradient's memory is free the sooner, must
copy %w for %dx, which takes as much memory as the gradient, and time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rematc.ir.core import Equation, Graph
from rematc.ir.ops.shape import Reshape, Transpose
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.ir.values import Value

#: What a compiler may write as reads of the operand's own memory.
_VIEWS = (Reshape, Transpose)


def updated_last(graph: Graph, updates: Sequence[tuple[int, int]]) -> Graph:
    """A flat graph whose updates in place come after the reads of what they are written over.

    Args:
        graph: after the passes that merge equations.
        updates: pairs of a donated parameter and the result that lies in its memory, by their numbers.

    An update is left where it is if other equations read it, or if the old value is a result, too.
    """
    order = _Order(graph)
    writes: dict[int, Value] = {}
    waits: dict[int, set[int]] = {}
    for param, place in updates:
        old, index = graph.params[param], order.producer.get(graph.results[place])
        if index is not None and old not in graph.results:
            forms = order.forms(old)
            if (read := order.updated(index, forms)) is not None:
                writes[index], waits[index] = read, order.waited_for(forms)
    waits = {index: reads - writes.keys() for index, reads in waits.items()}
    before = order.before(waits)
    late = {index: sorted(reads - before[index]) for index, reads in waits.items()}
    late = {index: reads for index, reads in late.items() if reads}
    return _moved(graph, {index: (writes[index], reads) for index, reads in late.items()}) if late else graph


@dataclass(slots=True)
class _Order:
    """Who computes what in a graph, and who reads it: equations by their numbers."""

    graph: Graph
    producer: dict[Value, int] = field(default_factory=dict)
    readers: defaultdict[Value, list[int]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        for index, eqn in enumerate(self.graph.equations):
            self.producer.update(dict.fromkeys(eqn.results, index))
            for value in dict.fromkeys(eqn.operands):
                self.readers[value].append(index)

    def forms(self, value: Value) -> list[Value]:
        """A value, what barriers make of it, and its other shapes and orders of dimensions: all may be its memory."""
        found = [value]
        for one in found:  # which grows
            for index in self.readers[one]:
                eqn = self.graph.equations[index]
                if isinstance(eqn.op, OptimizationBarrier):
                    found += [new for old, new in zip(eqn.operands, eqn.results, strict=True) if old == one]
                elif isinstance(eqn.op, _VIEWS):
                    found += eqn.results
        return found

    def updated(self, index: int, forms: Sequence[Value]) -> Value | None:
        """What of these an equation reads that does nothing but write a result over it; None if it does not."""
        eqn = self.graph.equations[index]
        is_alone = len(eqn.results) == 1 and not self.readers[eqn.results[0]]
        return next((value for value in eqn.operands if value in forms), None) if is_alone else None

    def waited_for(self, forms: Sequence[Value]) -> set[int]:
        """The equations that read one of these, for whose results one can wait."""
        readers = {index for value in forms for index in self.readers[value]}
        passing = (OptimizationBarrier, *_VIEWS)
        equations = self.graph.equations
        return {index for index in readers if equations[index].results and not isinstance(equations[index].op, passing)}

    def before(self, waits: Mapping[int, set[int]]) -> dict[int, set[int]]:
        """For each of some equations those it could wait for that it comes behind in any order."""
        bits = {index: 1 << place for place, index in enumerate(sorted(set().union(*waits.values())))}
        masks: list[int] = []
        for eqn in self.graph.equations:
            mask = 0
            for value in eqn.operands:
                if (index := self.producer.get(value)) is not None:
                    mask |= masks[index] | bits.get(index, 0)
            masks.append(mask)
        return {index: {read for read in reads if masks[index] & bits[read]} for index, reads in waits.items()}


def _moved(graph: Graph, late: dict[int, tuple[Value, list[int]]]) -> Graph:
    """Each of these equations behind the last of those that it waits for, reading the old value through a barrier."""
    behind: defaultdict[int, list[int]] = defaultdict(list)
    for index, (_, reads) in late.items():
        behind[max(index, reads[-1])].append(index)
    equations: list[Equation] = []
    for place, eqn in enumerate(graph.equations):
        if place not in late:
            equations.append(eqn)
        for index in behind[place]:
            (old, reads), update = late[index], graph.equations[index]
            held = (old, *[graph.equations[read].results[0] for read in reads])
            results = tuple([Value(value.type, value.name) for value in held])
            equations.append(Equation(OptimizationBarrier(), held, results, update.loc))
            operands = tuple([results[0] if value == old else value for value in update.operands])
            equations.append(Equation(update.op, operands, update.results, update.loc))
    return Graph(graph.name, graph.params, tuple(equations), graph.results)
