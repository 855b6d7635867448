"""A program of which each device computes its parts, of whole arrays again but for what runs in slices.

Before:  %1 = full_to_shard %x   %2 = exponential %1   %3, %4 = scan %2 ...   %5 = device_sum %4   %6 = negate %3
After:   %7 = exponential %x     %2 = full_to_shard %7   %3, %4 = scan %2 ...   %5 = device_sum %4
         %8 = shard_to_full %3   %6 = negate %8

XLA partitions what has no slices as it would without any (`rematc.passes.slicing.local_parts` is undone there). What
nobody knows any more, as it was merged or made anew meanwhile, stays as it is: it is right in parts, too.
"""

from __future__ import annotations

from rematc.ir.core import Equation, Graph
from rematc.ir.ops.mapped import FullToShard, ShardToFull
from rematc.ir.values import Value
from rematc.passes.dce import DeadCode
from rematc.passes.regions import RegionRewriter
from rematc.passes.slicing.local_parts import LocalParts


def whole_again(graph: Graph, parts: LocalParts) -> Graph:
    """The graph, after stages of what each device computes were cut, with all that was not cut as it was before."""
    program = _WholeAgain(parts)
    return DeadCode().run(program.regions.graph(graph))


class _WholeAgain:
    """All graphs of a program."""

    def __init__(self, parts: LocalParts) -> None:
        self.parts = parts
        self.regions = RegionRewriter(self._graph)
        self.parts_of: dict[Value, list[Value]] = {}
        for part, (value, _) in parts.spread.items():
            self.parts_of.setdefault(value, []).append(part)

    def _graph(self, graph: Graph) -> Graph:
        return _Writer(self, graph).graph()


class _Writer:
    """Writes one graph."""

    def __init__(self, program: _WholeAgain, graph: Graph) -> None:
        self._program, self._parts, self._graph = program, program.parts, graph
        self._present = set(graph.equations)
        self._readers: dict[Value, list[Equation]] = {}
        for eqn in graph.equations:
            for value in dict.fromkeys(eqn.operands):
                self._readers.setdefault(value, []).append(eqn)
        self._equations: list[Equation] = []
        self._have = set(graph.params)
        self._cuts: dict[Value, Equation] = {}
        standing = self._parts.standing.items()
        self._last = {eqn: group[-1] for eqn, group in standing if self._is_complete(eqn, group)}

    def graph(self) -> Graph:
        for eqn in self._graph.equations:
            own = self._parts.written.get(eqn)
            if eqn.results and self._have.issuperset(eqn.results):
                continue  # something needed it before
            if own in self._last and all(map(self._can_be_whole, own.operands)):
                if self._last[own] is eqn:
                    self._whole_equation(own)
            elif isinstance(eqn.op, FullToShard) and eqn.results[0] in self._parts.spread:
                self._cuts[eqn.results[0]] = eqn  # where the part is read
            else:
                self._as_it_is(eqn)
        for value in self._graph.results:
            self._need(value)
        return Graph(self._graph.name, self._graph.params, tuple(self._equations), self._graph.results)

    def _is_complete(self, own: Equation, group: list[Equation]) -> bool:
        """Whether all that stands for an equation is here, and nothing else reads what is between."""
        if not group or not self._present.issuperset(group):
            return False
        made = [value for eqn in group for value in eqn.results]
        between = [value for value in made if value not in self._parts.spread and value not in own.results]
        readers = [reader for value in between for reader in self._readers.get(value, ())]
        return set(group).issuperset(readers) and not set(between).intersection(self._graph.results)

    def _can_be_whole(self, value: Value) -> bool:
        if value in self._have or any(part in self._have for part in self._program.parts_of.get(value, ())):
            return True
        return self._can_be_remade(value)

    def _can_be_remade(self, value: Value) -> bool:
        eqn = self._parts.remade.get(value)
        return eqn is not None and all(map(self._can_be_whole, eqn.operands))

    def _whole_equation(self, eqn: Equation) -> None:
        for value in eqn.operands:
            self._need(value)
        self._equations.append(eqn)
        self._have.update(eqn.results)

    def _as_it_is(self, eqn: Equation) -> None:
        for value in eqn.operands:
            self._need(value)
        self._equations.append(self._program.regions.equation(eqn))
        self._have.update(eqn.results)

    def _need(self, value: Value) -> None:
        """Have a value: a part cut from the whole, or the whole put together."""
        if value in self._have:
            return
        if value in self._cuts:
            eqn = self._cuts[value]
            self._need(eqn.operands[0])
        elif value in self._parts.spread:
            whole, spec = self._parts.spread[value]
            self._need(whole)
            eqn = Equation(FullToShard.at(self._parts.where, spec), (whole,), (value,), None)
        elif self._can_be_remade(value):
            self._whole_equation(self._parts.remade[value])
            return
        else:
            part = next(part for part in self._program.parts_of[value] if part in self._have)
            spec = self._parts.spread[part][1]
            eqn = Equation(ShardToFull.at(self._parts.where, spec), (part,), (value,), None)
        self._equations.append(eqn)
        self._have.add(value)
