"""How much loops compute again, from nothing to all that they can: least time for most memory first.

A loop's stacks are dropped one after another, each time the one that takes least time a byte, with what of the step it
needs that is computed again already. A carry that must be stacked for it counts as taken from what it frees. Inner
loops come after those around them: what is stacked in a step is there while it runs, and no longer. And so again for
loops in chunks, whose inner loops are pairs of their own. Last come stages in the bodies of the loops, where they stack
all and where they stack least.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from rematc.ir.core import Graph
from rematc.ir.ops.scan.base import stack_of
from rematc.ir.values import Value
from rematc.passes.planning.constraints import FREE, Constraints
from rematc.passes.planning.loop_bodies import BodyPlans
from rematc.passes.planning.loop_splits import LoopSplit, chunks_for, is_splittable
from rematc.passes.planning.loops import LoopChoice, LoopDecision, LoopPair, loop_pairs, with_decisions
from rematc.passes.planning.shards import Machine
from rematc.passes.planning.translation import translate

#: How many levels there are at most at each depth, evenly by the bytes that they free.
LEVELS = 12


Decisions = tuple[LoopDecision, ...]


def loop_levels(graph: Graph, machine: Machine, constraints: Constraints = FREE) -> list[Decisions]:
    """Decisions for the loops of a graph, from none on, by what they take on a machine."""
    levels = _dropping(graph, machine, (), constraints)
    for splits in _splits(graph, machine, constraints):
        levels += _dropping(graph, machine, splits, constraints)
    return list(dict.fromkeys(levels))


def staged_levels(
    graph: Graph, levels: Sequence[Decisions], bodies: BodyPlans, peak: int, budget: int
) -> Iterator[Decisions]:
    """To decisions of `loop_levels`, stages in the bodies of loops for a budget; the graph takes `peak` bytes."""
    for first in dict.fromkeys(_ends(levels)):
        yield from bodies.levels(graph, first, least_step(peak), budget)


def least_step(peak: int) -> int:
    """Of steps that take less than a level frees at most, stages free nothing that would count."""
    return peak // LEVELS


def _ends(levels: Sequence[Decisions]) -> Iterator[Decisions]:
    """The first and the last of the levels in the same chunks: where loops stack all, and where they stack least."""
    for _, alike in itertools.groupby(levels, lambda level: [one for one in level if isinstance(one, LoopSplit)]):
        first, *others = alike
        yield first
        yield from others[-1:]


def _dropping(graph: Graph, machine: Machine, first: Decisions, constraints: Constraints) -> list[Decisions]:
    """These decisions, and then stacks that are dropped after another, from the outer loops to the inner ones."""
    levels = [first]
    done: set[tuple[int, ...]] = set()
    while True:
        outer = with_decisions(graph, levels[-1])
        machine.shards.follow(outer)
        possible = [pair for pair in loop_pairs(outer) if pair.path not in done and pair.droppable]
        pairs = [pair.within(constraints.may_repeat(pair.loop.body.equations)) for pair in possible]
        pairs = [pair for pair in pairs if pair.droppable]
        if not pairs:
            return levels
        depth = min(len(pair.path) for pair in pairs)
        here = [pair for pair in pairs if len(pair.path) == depth]
        done.update(pair.path for pair in here)
        before = levels[-1]
        levels += [(*before, *choices) for choices in _levels_of([_Drops(pair, machine) for pair in here])]


def _splits(graph: Graph, machine: Machine, constraints: Constraints) -> list[Decisions]:
    """All loops in chunks: as many as are best where a chunk stacks all, and where it stacks its carries alone."""
    found = []
    for stacks_all in (True, False):
        decisions: list[LoopDecision] = []
        done: set[Value] = set()
        while True:
            # A loop that is split stands elsewhere, and so may those after it; it gives the same values.
            now = with_decisions(graph, decisions)
            given = {pair: now.equations[pair.forward].results[0] for pair in loop_pairs(now) if not pair.path}
            pair = next((pair for pair, value in given.items() if value not in done), None)
            if pair is None:
                break
            done.add(given[pair])
            values = pair.loop.body.results[pair.loop.carry :]
            carries = pair.loop.parts(pair.loop.body.params).carry
            stacked = [values[stack] for stack in pair.own] if stacks_all else carries
            machine.shards.follow(now)
            carry, in_step = (sum(map(machine.shards.bytes, row)) for row in (carries, stacked))
            count = chunks_for(pair.loop.length, carry, in_step)
            may_repeat = constraints.may_repeat(pair.loop.body.equations)
            if count is not None and is_splittable(pair, may_repeat):
                decisions.append(LoopSplit((), pair.forward, pair.backward, count))
        if decisions:
            found.append(tuple(decisions))
    return list(dict.fromkeys(found))


def _levels_of(pairs: Sequence[_Drops]) -> Iterable[tuple[LoopChoice, ...]]:
    """Choices for these pairs, each with more dropped than the one before it."""
    dropped: list[frozenset[int]] = [frozenset() for _ in pairs]
    found: list[tuple[int, tuple[LoopChoice, ...]]] = []
    while True:
        possible = [
            (each.price(dropped[index], stack), index, stack)
            for index, each in enumerate(pairs)
            for stack in each.pair.droppable
            if stack not in dropped[index]
        ]
        if not possible:
            break
        _, index, stack = min(possible)
        dropped[index] |= {stack}
        freed = sum(each.freed(gone) for each, gone in zip(pairs, dropped, strict=True))
        found.append((freed, _choices([each.pair for each in pairs], dropped)))
    most = max([freed for freed, _ in found], default=0)
    if most <= 0:
        return []
    wanted = [most * (step + 1) // LEVELS for step in range(LEVELS)]
    return list(dict.fromkeys(next(choices for freed, choices in found if freed >= least) for least in wanted))


def _choices(pairs: Sequence[LoopPair], dropped: Sequence[frozenset[int]]) -> tuple[LoopChoice, ...]:
    """Choices to be followed one after the other: a loop that several others read stacks less after each of them."""
    gone: dict[tuple[tuple[int, ...], int], list[int]] = {}
    choices = []
    for pair, stacks in zip(pairs, dropped, strict=True):
        if stacks:
            before = gone.setdefault((pair.path, pair.forward), [])
            choices.append(pair.choice([stack - sum(one < stack for one in before) for stack in stacks]))
            before += stacks
    return tuple(choices)


class _Drops:
    """What dropping stacks of a pair takes and frees."""

    def __init__(self, pair: LoopPair, machine: Machine) -> None:
        self.pair = pair
        body = pair.loop.body
        translation = translate(body, machine)
        self._cost = {
            translation.own(node).results[0]: int(cost)
            for node, cost in enumerate(translation.problem.cost)
            if translation.own(node).results
        }
        self._shards = machine.shards
        self._values = body.results[pair.loop.carry :]
        self._carries = pair.loop.parts(body.params).carry
        self._known: dict[frozenset[int], tuple[int, int]] = {}

    def price(self, dropped: frozenset[int], stack: int) -> float:
        """Nanoseconds for each byte that is freed by dropping one stack more; carries are not counted."""
        time, _ = self._taken(dropped | {stack})
        return (time - self._taken(dropped)[0]) / max(1, self._bytes(stack))

    def freed(self, dropped: frozenset[int]) -> int:
        """Bytes of the stacks that are dropped, less those of the carries that are stacked instead."""
        return sum(map(self._bytes, dropped)) - self._taken(dropped)[1]

    def _bytes(self, stack: int) -> int:
        return self._stacked(self._values[stack])

    def _stacked(self, value: Value) -> int:
        return stack_of(self._shards.type(value), self.pair.loop.length).bytes

    def _taken(self, dropped: frozenset[int]) -> tuple[int, int]:
        """Nanoseconds of all steps, and bytes of the carries that are stacked."""
        if dropped not in self._known:
            loop = self.pair.loop
            kept = {value for stack, value in enumerate(self._values) if stack not in dropped}
            equations, read = self.pair.recomputed(dropped)
            time = sum(self._cost.get(value, 0) for eqn in equations for value in itertools.islice(eqn.results, 1))
            stacked = sum(self._stacked(value) for value in self._carries if value in read and value not in kept)
            self._known[dropped] = time * loop.length * self.pair.steps, stacked
        return self._known[dropped]
