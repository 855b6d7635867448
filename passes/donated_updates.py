"""Write the new value of a donated parameter behind all that reads the old one, so that it needs no copy.

Before:  %g = dot_general %x, %ct          %new = subtract %w, %g       (a result, in the memory of %w)
         %dx = dot_general %ct, %w
After:   %g = dot_general %x, %ct          %dx = dot_general %ct, %w
         %old, %_ = optimization_barrier %w, %dx
         %new = subtract %old, %g

Nothing else orders the two: a compiler that writes %new first, where the gradient's memory is free the sooner, must
copy %w for %dx, which takes as much memory as the gradient, and time.

What reads the old value is a kernel: the equation that writes to memory what is computed from it, which may itself be
the update of another parameter, as an optimizer's step of weights reads the moments that it began with. Of two updates
that read each other's old values one waits.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from rematc.ir.core import Equation, Graph
from rematc.ir.facts import Weight
from rematc.ir.ops.shape import Reshape, Transpose
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.ir.values import Value
from rematc.passes.kernels import CPU, Fusion, kernels

#: What a compiler may write as reads of the operand's own memory.
_VIEWS = (Reshape, Transpose)


def updated_last(
    graph: Graph, updates: Sequence[tuple[int, int]], fusion: Fusion = CPU, *, is_held: bool = True
) -> Graph:
    """A flat graph whose updates in place come after the reads of what they are written over.

    Args:
        graph: after the passes that merge equations.
        updates: pairs of a donated parameter and the result that lies in its memory, by their numbers.
        fusion: how the device fuses.
        is_held: whether barriers hold the updates there; else it is an order, for who keeps to it.

    What other equations read stays where it is, and is given to its place behind a barrier, if barriers hold; all stays
    where it is if the old value is a result, too.
    """
    order = _Order(graph, set(kernels(graph.equations, graph.results, fusion).stored) | set(graph.results))
    if is_held:
        graph = _given_last(graph, order, updates)
    found: dict[int, _Update] = {}
    for param, place in updates:
        old, index = graph.params[param], order.writer(graph.results[place])
        if index is None or old in graph.results or not order.is_passed_on(index):
            continue
        forms, fused = order.forms(old), order.fused(index)
        read = [value for value in forms if any(value in graph.equations[i].operands for i in fused)]
        reads = order.reading(forms, fused)
        # What waits for the update stands behind it: only if the old value is read before may it wait for that.
        if read and (order.is_alone(index) or max(reads, default=-1) < index):
            found[index] = _Update(fused, read, reads)
    before = order.before({index: update.reads for index, update in found.items()})
    late: dict[int, _Update] = {}
    for index, update in found.items():
        reads = {read for read in update.reads - before[index] if not _waits(late, read, index)}
        if reads:
            late[index] = _Update(update.fused, update.old, reads)
    return _moved(graph, late, is_held) if late else graph


def updated_early(graph: Graph, updates: Sequence[tuple[int, int]]) -> Graph:
    """A flat graph whose updates in place come as soon as they can, so that no gradient waits for the others'.

    Before:  %dw2 = ...   %dw1 = ...   %new2 = subtract %w2, %dw2   %new1 = subtract %w1, %dw1
    After:   %dw2 = ...   %new2 = subtract %w2, %dw2   %dw1 = ...   %new1 = subtract %w1, %dw1

    Args:
        graph: with the updates behind the reads of what they are written over, as `updated_last` puts them.
        updates: pairs of a donated parameter and the result that lies in its memory, by their numbers.

    What only one update needs, with those whose new values it reads, as of moments, comes with it; all else stays where
    it is.
    """
    own = _only_for_updates(graph, [graph.results[place] for _, place in updates])
    after = _order_of_reads(graph, {graph.params[param]: graph.results[place] for param, place in updates})
    ready: list[int] = []
    for index, places in enumerate(after):
        ready.append(max([ready[place] for place in places], default=-1) if index in own else index)
    place = list(range(len(after)))
    first: dict[int, int] = {}
    for index in sorted(own, reverse=True):
        place[index] = min(index, first[index]) if index in first else ready[index]
        for operand in {producer for producer in after[index] if producer in own}:
            first[operand] = min(first.get(operand, index), place[index])
    begin = {0: 0}
    for index in sorted(own):
        begin.setdefault(own[index], index)
    keys = [
        (place[index], index in own, begin[own[index]] if index in own else 0, index) for index in range(len(after))
    ]
    waiting = [len(places) for places in after]
    readers: defaultdict[int, list[int]] = defaultdict(list)
    for index, places in enumerate(after):
        for one in places:
            readers[one].append(index)
    heap = [keys[index] for index, count in enumerate(waiting) if not count]
    heapq.heapify(heap)
    equations = []
    while heap:
        index = heapq.heappop(heap)[-1]
        equations.append(graph.equations[index])
        for reader in readers[index]:
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(heap, keys[reader])
    return Graph(graph.name, graph.params, tuple(equations), graph.results)


def _order_of_reads(graph: Graph, new: Mapping[Value, Value]) -> list[set[int]]:
    """For each equation those that come before it: what it reads, and of an update what read the old value before."""
    updated = dict(new)
    producer: dict[Value, int] = {}
    readers: defaultdict[Value, set[int]] = defaultdict(set)
    after = []
    for index, eqn in enumerate(graph.equations):
        before = {producer[value] for value in eqn.operands if value in producer}
        before.update(*[readers[value] for value in eqn.results])
        after.append(before)
        producer.update(dict.fromkeys(eqn.results, index))
        for value in eqn.operands:
            if value in updated:
                readers[updated[value]].add(index)
                updated |= dict.fromkeys(eqn.results if isinstance(eqn.op, _VIEWS) else (), updated[value])
    return after


def _only_for_updates(graph: Graph, new: Sequence[Value]) -> dict[int, int]:
    """The equations, by their numbers, that nothing needs but one of these results, and those that it is made from.

    With a number of that result. Also, with 0, what several of them need, as a count of steps, if it depends on
    parameters alone.
    """
    late: list[int] = []
    needed = set(graph.results) - set(new)
    for index in reversed(range(len(graph.equations))):
        eqn = graph.equations[index]
        if eqn.op.effect or not needed.isdisjoint(eqn.results):
            needed.update(eqn.operands)
        else:
            late.append(index)
    dependent = _dependent(graph, set(late))
    leader = _made_from(graph, new, dependent)
    reached: dict[Value, int] = {value: 1 << bit for value, bit in leader.items()}
    own: dict[int, int] = {}
    for index in late:
        eqn = graph.equations[index]
        mask = 0
        for value in eqn.results:
            mask |= reached.get(value, 0)
        is_one = mask & (mask - 1) == 0
        if is_one or dependent.isdisjoint(eqn.results):
            own[index] = mask if is_one else 0
        for value in eqn.operands:
            reached[value] = reached.get(value, 0) | mask
    return own


def _dependent(graph: Graph, late: Set[int]) -> set[Value]:
    """The values that depend on what is computed by other equations than these, and not on parameters alone."""
    constant, dependent = set[Value](), set[Value]()
    for index, eqn in enumerate(graph.equations):
        if constant.issuperset(eqn.operands) and not eqn.op.effect:
            constant.update(eqn.results)
        elif index not in late or not dependent.isdisjoint(eqn.operands):
            dependent.update(eqn.results)
    return dependent


def _made_from(graph: Graph, new: Sequence[Value], dependent: Set[Value]) -> dict[Value, int]:
    """For each of these results a number; it has that of the others that it is made from, if they are `dependent`."""
    lead = list(range(len(new)))

    def leader(bit: int) -> int:
        while lead[bit] != bit:
            bit = lead[bit]
        return bit

    bits = {value: bit for bit, value in enumerate(new)}
    behind: dict[Value, int] = {}
    for eqn in graph.equations:
        mask = 0
        for value in eqn.operands:
            mask |= behind.get(value, 0)
        for value in eqn.results:
            behind[value] = mask
            if value in bits and value in dependent:
                behind[value] = 1 << bits[value]
                while mask:
                    lead[leader((mask & -mask).bit_length() - 1)] = leader(bits[value])
                    mask &= mask - 1
    return {value: leader(bit) for value, bit in bits.items()}


def _given_last(graph: Graph, order: _Order, updates: Sequence[tuple[int, int]]) -> Graph:
    """The graph with updates that other equations read behind barriers with the reads of the old values.

    The last gradients, which an optimizer holds beside the new ones: written where they belong at once, the old ones
    would be copied first, all of them.
    """
    read: dict[int, tuple[int, set[int]]] = {}
    waits: defaultdict[int, set[int]] = defaultdict(set)
    for param, place in updates:
        old, new = graph.params[param], graph.results[place]
        index = order.producer.get(new)
        if index is None or old in graph.results or not order.readers[new] or graph.results.count(new) > 1:
            continue
        read[place] = index, order.reading(order.forms(old), {index})
        waits[index] |= read[place][1]
    # What it is made from is over already: held, it would take memory until then.
    before = order.before(waits)
    results, equations = list(graph.results), list(graph.equations)
    for place, (index, found) in read.items():
        reads = [graph.equations[i].results[0] for i in sorted(found - before[index])]
        if reads:
            new = results[place]
            results[place] = Value(new.type, new.name)
            others = tuple([Value(value.type, value.name) for value in reads])
            barrier = Equation(
                OptimizationBarrier(), (new, *reads), (results[place], *others), graph.equations[index].loc
            )
            equations.append(barrier)
    if len(equations) == len(graph.equations):
        return graph
    return Graph(graph.name, graph.params, tuple(equations), tuple(results))


@dataclass(frozen=True, slots=True)
class _Update:
    """An update in place.

    Attributes:
        fused: the equations that are a part of its kernel and of no other one, by their numbers, and its own.
        old: what of the old value they read.
        reads: the equations that write what is computed from the old value elsewhere.
    """

    fused: Set[int]
    old: Sequence[Value]
    reads: Set[int]


def _waits(late: Mapping[int, _Update], index: int, other: int) -> bool:
    """Whether an update waits for another one, or for what waits for it."""
    return index == other or (index in late and any(_waits(late, read, other) for read in late[index].reads))


@dataclass(slots=True)
class _Order:
    """Who computes what in a graph, and who reads it: equations by their numbers.

    Attributes:
        graph: the graph.
        stored: its values that are in memory.
        given: its results.
    """

    graph: Graph
    stored: Set[Value]
    producer: dict[Value, int] = field(default_factory=dict)
    readers: defaultdict[Value, list[int]] = field(default_factory=lambda: defaultdict(list))
    given: Set[Value] = frozenset()

    def __post_init__(self) -> None:
        self.given = frozenset(self.graph.results)
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

    def is_alone(self, index: int) -> bool:
        """Whether an equation does nothing but write one result that nothing reads."""
        results = self.graph.equations[index].results
        return len(results) == 1 and not self.readers[results[0]]

    def writer(self, value: Value) -> int | None:
        """The equation that computes what barriers give as this value; None for what of them is given."""
        index = self.producer.get(value)
        while index is not None and isinstance((eqn := self.graph.equations[index]).op, OptimizationBarrier):
            value = eqn.operands[eqn.results.index(value)]
            index = self.producer.get(value)
        return index

    def is_passed_on(self, index: int) -> bool:
        """Whether an equation does nothing but write one result that nothing reads but barriers."""
        results = self.graph.equations[index].results
        readers = [self.graph.equations[reader].op for value in results for reader in self.readers[value]]
        return len(results) == 1 and all(isinstance(op, OptimizationBarrier) for op in readers)

    def fused(self, index: int) -> set[int]:
        """The equations that are a part of this one's kernel and of no other one, and itself."""
        found: set[int] = set()
        work = [-index]  # from the last one on: what reads an equation comes before it
        while work:
            last = -heapq.heappop(work)
            if last in found:
                continue
            eqn = self.graph.equations[last]
            is_inside = not eqn.op.effect and self.stored.isdisjoint(eqn.results)
            if last == index or (is_inside and all(found.issuperset(self.readers[value]) for value in eqn.results)):
                found.add(last)
                for value in eqn.operands:
                    if value in self.producer:
                        heapq.heappush(work, -self.producer[value])
        return found

    def reading(self, forms: Sequence[Value], own: Set[int]) -> set[int]:
        """The equations beside these that write what is computed from one of the values, to memory.

        What the update's kernel reads as well, computed element by element, may be in memory, or each of its readers
        may compute it: those count, too.
        """
        found: set[int] = set()
        seen = set(own)
        work = [index for value in forms for index in self.readers[value]]
        while work:
            index = work.pop()
            eqn = self.graph.equations[index]
            if index in seen or isinstance(eqn.op, (OptimizationBarrier, *_VIEWS)):
                continue
            seen.add(index)
            is_stored = not self.stored.isdisjoint(eqn.results)
            if is_stored:
                found.add(index)
            if not is_stored or self._may_be_repeated(eqn, own):
                work += [reader for value in eqn.results for reader in self.readers[value]]
        return found

    def _may_be_repeated(self, eqn: Equation, own: Set[int]) -> bool:
        is_light = eqn.op.is_elementwise and eqn.op.weight is not Weight.HEAVY
        readers = {reader for value in eqn.results for reader in self.readers[value]}
        return is_light and self.given.isdisjoint(eqn.results) and not readers.isdisjoint(own)

    def before(self, waits: Mapping[int, Set[int]]) -> dict[int, set[int]]:
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


def _moved(graph: Graph, late: Mapping[int, _Update], is_held: bool) -> Graph:
    """Each of these behind the last of those that it waits for, reading the old value through a barrier if held."""
    placed: dict[int, tuple[int, int]] = {}

    def place(index: int) -> tuple[int, int]:
        """Behind which equation of the graph an update stands, and behind how many updates there."""
        if index not in placed:
            behind = [place(read) if read in late else (read, 0) for read in late[index].reads]
            last, depth = max(behind)
            placed[index] = (last, depth + 1) if last > index else (index, 1)
        return placed[index]

    behind: defaultdict[int, list[int]] = defaultdict(list)
    for index in sorted(late, key=place):
        behind[place(index)[0]].append(index)
    moved = {index for update in late.values() for index in update.fused}
    equations: list[Equation] = []
    for number, eqn in enumerate(graph.equations):
        if number not in moved:
            equations.append(eqn)
        for index in behind[number]:
            update = late[index]
            new: dict[Value, Value] = {}
            if is_held:
                reads = [graph.equations[read].results[0] for read in sorted(update.reads)]
                held = (*update.old, *reads)
                results = tuple([Value(value.type, value.name) for value in held])
                equations.append(Equation(OptimizationBarrier(), held, results, graph.equations[index].loc))
                new = dict(zip(update.old, results, strict=False))
            for own in sorted(update.fused):
                part = graph.equations[own]
                operands = tuple([new.get(value, value) for value in part.operands])
                equations.append(Equation(part.op, operands, part.results, part.loc))
    return Graph(graph.name, graph.params, tuple(equations), graph.results)
