"""Analysis: the equations around a value that can run in parts along a dimension of it.

Before:  %3: f32[8,100] = dot_general %x, %w   %4 = exponential %3   %5: f32[8] = reduce_sum %4 {dimensions=[1]}
         %6: f32[] = reduce_sum %5   %7: f32[8,100] = broadcast_in_dim %ct   %8 = multiply %7, %4
         %9: f32[8,4] = dot_general %8, %w   %10: f32[4,100] = dot_general %x, %8
Stage:   of %3 along dimension 0: all but %6, which reads little: parts of %x give parts of %5 and %9, and terms of %10

A stage grows from its value, along what the slicings of the ops say (`Op.slicings`), through values of more bytes than
it is told, unless they are made of no more where they are read, as masks that layers share. Then come what only it
reads and what kernels make of less as they read it, and the equations between. What an equation of the stage reads must
not depend on what only the whole stage gives, a sum or what an equation outside of it has made: there it ends, and so
does all that follows.
"""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from rematc.ir.core import Equation, Graph
from rematc.ir.facts import Weight
from rematc.ir.ops.mapped import FullToShard
from rematc.ir.ops.regions import Region
from rematc.ir.slicings import SAME, Slicing
from rematc.ir.types import TensorType
from rematc.ir.values import Value
from rematc.passes.manual_computations import place_of_shards, shard_values
from rematc.passes.readers import dependent_on


@dataclass(frozen=True, slots=True)
class Stage:
    """Equations of a graph that can run in parts.

    Attributes:
        slicings: the equations in the graph's order, and how each is cut.
        made: the values that they give part after part, and the dimension along which; `SAME` for those that each part
            gives whole.
        after: the values that the whole stage must have run for.
        refused: equations that read what the stage makes and cannot be in it.
    """

    slicings: Mapping[Equation, Slicing]
    made: Mapping[Value, int]
    after: frozenset[Value]
    refused: tuple[Equation, ...]

    @property
    def reads(self) -> Iterator[tuple[Value, int | None]]:
        """The values that come from outside, and the dimensions along which they are cut."""
        for eqn, slicing in self.slicings.items():
            for value, d in zip(eqn.operands, slicing.operands, strict=True):
                if value not in self.made:
                    yield value, d

    def has_parts(self, count: int) -> bool:
        """Whether all that is cut can be cut into so many parts, of which there are two or more."""
        made = all(d == SAME or value.type.shape[d] % count == 0 for value, d in self.made.items())
        return made and all(value.type.shape[d] % count == 0 for value, d in self.reads if d is not None)


def bytes_of(type: TensorType) -> int:
    """How much memory an array of this type takes."""
    return -(-type.size * type.dtype.bits // 8)


def _whole_beside_parts(graph: Graph) -> set[Value]:
    """The values of all devices that stand beside those of one: XLA spreads them, and slices are of parts.

    What does not depend on a parameter is made where it is read.
    """
    place = place_of_shards(graph)
    if place is None:
        return set()
    return dependent_on(graph, graph.params).keys() - shard_values(graph, place)


class Stages:
    """The stages of a graph."""

    def __init__(
        self,
        graph: Graph,
        *,
        cuts_whole: bool = False,
        cuts_through: bool = False,
        left: Sequence[Graph] = (),
        apart: Set[Value] = frozenset(),
    ) -> None:
        """Of what cuts there may be.

        Args:
            graph: it.
            cuts_whole: values of all devices are cut, though there are some of one device beside them.
            cuts_through: stages go through functions and regions that are computed again, which stay what they are, and
                through what is large and lies between what they are grown through.
            left: the steps of loops that are left as they are.
            apart: values whose equations are in no stage.
        """
        self._cuts_through, self._left, self._apart = cuts_through, tuple(left), apart
        self.graph = graph
        self.producer: dict[Value, Equation] = {}
        self.readers: dict[Value, list[Equation]] = {}
        for eqn in graph.equations:
            self.producer.update(dict.fromkeys(eqn.results, eqn))
            for value in dict.fromkeys(eqn.operands):
                self.readers.setdefault(value, []).append(eqn)
        self._results = frozenset(graph.results)
        self._whole = set[Value]() if cuts_whole else _whole_beside_parts(graph)
        values = {*graph.params, *self.producer}
        self._sizes = sorted({bytes_of(value.type) for value in values})

    def of(self, graph: Graph, *left: Graph, apart: Set[Value] = frozenset()) -> Stages:
        """Those of another graph, with the same cuts; steps of more loops are left as they are, and these values."""
        return Stages(graph, cuts_through=self._cuts_through, left=(*self._left, *left), apart=apart)

    def around(self, seed: Value, dimension: int, more_than: int) -> Stage:
        """The stage of a value along one of its dimensions, grown through values of more than so many bytes."""
        larger = bisect_right(self._sizes, more_than)
        return self._around(seed, dimension, self._sizes[larger - 1] if larger else 0)

    @functools.cache  # noqa: B019 - lives as long as the analysis
    def _around(self, seed: Value, dimension: int, more_than: int) -> Stage:
        seeds = {seed: dimension}
        while True:
            between: dict[Value, int] = {}
            stage = self._settled(self._grown(seeds, more_than), more_than, between)
            if not self._cuts_through or between.keys() <= seeds.keys():
                return stage
            seeds = between | seeds

    def whole(self, stage: Stage) -> tuple[Value, ...]:
        """What of the stage's values must exist whole, as it is read outside or is a result of the graph."""
        return tuple([value for value in stage.made if self.is_read_outside(stage, value)])

    def is_read_outside(self, stage: Stage, value: Value) -> bool:
        """Whether a value is a result of the graph, or an operand of an equation that is not in the stage."""
        readers = self.readers.get(value, [])
        return value in self._results or any(reader not in stage.slicings for reader in readers)

    def is_made(self, value: Value) -> bool:
        """Whether the graph computes a value: it is no parameter, nor what one device has of one."""
        producer = self.producer.get(value)
        if producer is not None and isinstance(producer.op, FullToShard):
            return producer.operands[0] in self.producer
        return producer is not None

    @functools.cache  # noqa: B019 - lives as long as the analysis
    def ways(self, eqn: Equation) -> tuple[Slicing, ...]:
        """The slicings of an equation; none for one that does more than to give results, or is not of one device."""
        if eqn.op.effect or not self._whole.isdisjoint((*eqn.operands, *eqn.results)):
            return ()
        if isinstance(eqn.op, Region) and not self._cuts_through:
            return ()
        if not self._apart.isdisjoint(eqn.results):
            return ()
        if self._is_left(eqn) or self._is_for_left(eqn):
            return ()
        return eqn.op.slicings(eqn.operand_types, eqn.result_types)

    def _is_left(self, eqn: Equation) -> bool:
        return any(region is left for region in eqn.op.regions() for left in self._left)

    def _is_for_left(self, eqn: Equation) -> bool:
        """Whether it makes what only such loops read, as their slices of a parameter."""
        readers = [reader for value in eqn.results for reader in self.readers.get(value, ())] if self._left else []
        return bool(readers) and all(map(self._is_left, readers))

    def kind_of(self, value: Value) -> tuple[object, ...]:
        """What a value has in common with those of other layers: how it is computed, where, and what reads it."""
        own = self.producer[value]
        return own.op, own.operand_types, own.loc, tuple([reader.op.name for reader in self.readers.get(value, ())])

    def made_of_less(self, value: Value, d: int | None) -> Slicing | None:
        """How parts of a value are made of fewer bytes than it has, where they are read, such as those of a mask."""
        return self._cheapest(value, d)[1]

    def least_bytes(self, value: Value, d: int | None) -> int:
        """The fewest bytes that must exist whole, so that parts of a value are read, or made where they are read."""
        return self._cheapest(value, d)[0]

    @functools.cache  # noqa: B019 - lives as long as the analysis
    def _cheapest(self, value: Value, d: int | None) -> tuple[int, Slicing | None]:
        """The fewest bytes that must exist whole for parts of a value, and how they are made; None: they are read."""
        eqn = self.producer.get(value)
        best, best_way = bytes_of(value.type), None
        if eqn is None or d is None or not eqn.op.is_fusible or eqn.op.weight is Weight.HEAVY:
            return best, best_way
        for way in self.ways(eqn):
            if way.results == (d,) and not way.into:
                read = dict.fromkeys(zip(eqn.operands, way.operands, strict=True))
                cost = sum(self._cheapest(*each)[0] for each in read)
                if cost < best:
                    best, best_way = cost, way
        return best, best_way

    def _grown(self, seeds: Mapping[Value, int], more_than: int) -> dict[Equation, Slicing]:
        dims, found = dict(seeds), dict[Equation, Slicing]()
        work = [*seeds]
        while work:
            value = work.pop()
            own = self.producer.get(value)
            for eqn in (*([] if own is None else [own]), *self.readers.get(value, ())):
                slicing = None if eqn in found else self._fitting(eqn, value, dims)
                if slicing is None:
                    continue
                found[eqn] = slicing
                named = zip((*eqn.operands, *eqn.results), (*slicing.operands, *slicing.results), strict=True)
                for other, d in named:
                    if d is not None and d != SAME and other not in dims:
                        dims[other] = d
                        if self.least_bytes(other, d) > more_than:
                            work.append(other)
        self._add_fused(found, dims, more_than)
        return found

    def _add_fused(self, found: dict[Equation, Slicing], dims: Mapping[Value, int], more_than: int) -> None:
        """Add what only these equations read and kernels make of fewer bytes as they read it, such as random masks.

        What is made of no more than so many bytes is not: the loop makes it, whoever else reads it, and in other parts.
        """
        into = self._fused_into(found, dims, more_than)
        cost = {value: 0 for eqn in found for value in eqn.results}
        worth = set[Equation]()
        for eqn in reversed(into):
            (value,) = eqn.results
            read = {other for other, d in zip(eqn.operands, into[eqn].operands, strict=True) if d is not None}
            cost[value] = sum(cost.get(other, bytes_of(other.type)) for other in read)
            if cost[value] < bytes_of(value.type):
                worth.add(eqn)
            else:
                cost[value] = bytes_of(value.type)
        for eqn, slicing in into.items():
            if eqn in worth and all(reader in found for reader in self.readers[eqn.results[0]]):
                found[eqn] = slicing

    def _fused_into(
        self, found: Mapping[Equation, Slicing], grown: Mapping[Value, int], more_than: int
    ) -> dict[Equation, Slicing]:
        """What only these equations read and kernels may make as they read it, the last one first."""
        dims, into = dict(grown), dict[Equation, Slicing]()
        for eqn in reversed(self.graph.equations):
            if eqn in found or not eqn.op.is_fusible or len(eqn.results) != 1 or eqn.results[0] not in dims:
                continue
            (value,) = eqn.results
            if value in self._results or any(use not in found and use not in into for use in self.readers[value]):
                continue
            if self.least_bytes(value, dims[value]) <= more_than:
                continue
            slicing = self._fitting(eqn, value, dims)
            if slicing is not None:
                into[eqn] = slicing
                dims.update({o: d for o, d in zip(eqn.operands, slicing.operands, strict=True) if d is not None})
        return into

    def _fitting(self, eqn: Equation, value: Value, dims: Mapping[Value, int]) -> Slicing | None:
        """The slicing of an equation in which a value is cut as it is wherever it stands, and so are others."""
        for slicing in self.ways(eqn):
            named = tuple(zip((*eqn.operands, *eqn.results), (*slicing.operands, *slicing.results), strict=True))
            if all(d == dims[value] for other, d in named if other is value) and all(
                d is None or d == SAME or dims.get(other, d) == d for other, d in named
            ):
                return slicing
        return None

    def _settled(self, grown: Mapping[Equation, Slicing], more_than: int, between: dict[Value, int]) -> Stage:
        """What of the grown equations can be one loop, with what lies between them and has no more than so many bytes.

        What has more and is not grown is another stage's, which would have to be whole for what reads it there:
        `between` gains it.
        """
        leads = self._leading_to(grown)
        chosen: dict[Equation, Slicing] = {}
        made: dict[Value, int] = {}
        after: set[Value] = set()
        refused = []
        for eqn in self.graph.equations:
            is_fed = not made.keys().isdisjoint(eqn.operands)
            is_late = not after.isdisjoint(eqn.operands)
            if not is_late and (eqn in grown or (is_fed and eqn in leads)):
                ways = (grown[eqn], *self.ways(eqn)) if eqn in grown else self.ways(eqn)
                slicing = next((way for way in ways if _takes(eqn, way, made)), None)
                if slicing is not None and eqn not in grown and not self._gives_little(eqn, slicing, more_than):
                    rows = zip(eqn.results, slicing.results, strict=True)
                    between.update({value: d for value, d in rows if d is not None and d != SAME})
                elif slicing is not None:
                    chosen[eqn] = slicing
                    for value, d in zip(eqn.results, slicing.results, strict=True):
                        if d is None:
                            after.add(value)
                        else:
                            made[value] = d
                    continue
            if is_fed or is_late:
                after.update(eqn.results)
                if is_fed:
                    refused.append(eqn)
        return Stage(chosen, made, frozenset(after), tuple(refused))

    def _gives_little(self, eqn: Equation, slicing: Slicing, most: int) -> bool:
        pairs = zip(eqn.results, slicing.results, strict=True)
        return all(d is None or d == SAME or self.least_bytes(value, d) <= most for value, d in pairs)

    def _leading_to(self, grown: Mapping[Equation, Slicing]) -> set[Equation]:
        """The equations on whose results one of these depends."""
        needed: set[Value] = set()
        found = set()
        for eqn in reversed(self.graph.equations):
            is_needed = not needed.isdisjoint(eqn.results)
            if is_needed:
                found.add(eqn)
            if is_needed or eqn in grown:
                needed.update(eqn.operands)
        return found


def _takes(eqn: Equation, slicing: Slicing, made: Mapping[Value, int]) -> bool:
    """Whether a slicing takes what the stage makes in parts as it is made."""
    operands: Sequence[tuple[Value, int | None]] = tuple(zip(eqn.operands, slicing.operands, strict=True))
    return all(made[value] == (SAME if d is None else d) for value, d in operands if value in made)
