"""How much loops compute again, from nothing to all that they can: least time for most memory first.

A loop's stacks are dropped one after another, each time the one that takes least time a byte, with what of the step it
needs that is computed again already. A carry that must be stacked for it counts as taken from what it frees. Inner
loops come after those around them: what is stacked in a step is there while it runs, and no longer. And so again for
loops in chunks, whose inner loops are pairs of their own.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace

from rematc.ir.core import Graph
from rematc.ir.ops.scan.base import stack_of
from rematc.ir.values import Value
from rematc.passes.planning.constraints import FREE, Constraints
from rematc.passes.planning.loop_splits import LoopSplit, chunks_for, is_splittable
from rematc.passes.planning.loops import LoopChoice, LoopDecision, LoopPair, loop_pairs, with_decisions
from rematc.passes.planning.region_paths import Path
from rematc.passes.planning.shards import Machine
from rematc.passes.planning.step_parts import Key, Parts

#: How many levels there are at most at each depth, evenly by the bytes that they free; and as many by their time: what
#: frees least may take most.
LEVELS = 12


Decisions = tuple[LoopDecision, ...]


def loop_levels(graph: Graph, machine: Machine, constraints: Constraints = FREE) -> list[Decisions]:
    """Decisions for the loops of a graph, from none on, by what they take on a machine."""
    levels = _dropping(graph, machine, (), constraints)
    for splits in _splits(graph, machine, constraints):
        levels += _dropping(graph, machine, splits, constraints)
    return list(dict.fromkeys(levels))


def least_step(peak: int) -> int:
    """Of steps that take less than a level frees at most, of so many bytes, stages free nothing that would count."""
    return peak // LEVELS


def ends(levels: Sequence[Decisions]) -> list[Decisions]:
    """The first and the last of levels in the same chunks: where loops stack all, and where they stack least.

    And where inner loops stack least, for each of what those around them drop.
    """
    deepest: dict[Decisions, Decisions] = {}
    for level in levels:
        depth = min([len(one.path) for one in level if isinstance(one, LoopChoice)], default=0)
        outer = tuple([one for one in level if isinstance(one, LoopSplit) or len(one.path) == depth])
        if len(outer) < len(level):
            deepest[outer] = level
    return list(dict.fromkeys([levels[0], *deepest.values(), levels[-1]]))


def drops_in_loops(level: Decisions) -> bool:
    """Whether some loop stacks less."""
    return any(isinstance(one, LoopChoice) for one in level)


def in_same_chunks(levels: Sequence[Decisions]) -> Iterator[list[Decisions]]:
    """The levels in the same chunks, ascending by what is dropped."""
    for _, alike in itertools.groupby(levels, lambda level: [one for one in level if isinstance(one, LoopSplit)]):
        yield list(alike)


def chains(levels: Iterable[Decisions]) -> list[list[Decisions]]:
    """Levels apart, so that each drops what the one before it drops, and more."""
    found: list[list[Decisions]] = []
    for level in levels:
        chain = next((chain for chain in found if _dropped_by(chain[-1]) <= _dropped_by(level)), None)
        if chain is None:
            found.append([level])
        else:
            chain.append(level)
    return found


def _dropped_by(level: Decisions) -> set[LoopDecision]:
    """The decisions of a level, those that drop stacks apart for each stack."""
    apart = [
        [replace(one, dropped=(s,)) for s in one.dropped] if isinstance(one, LoopChoice) else [one] for one in level
    ]
    return set(itertools.chain(*apart))


def _dropping(
    graph: Graph, machine: Machine, first: Decisions, constraints: Constraints, done: Set[Path] = frozenset()
) -> list[Decisions]:
    """These decisions, and then stacks that are dropped after another, from the outer loops to the inner ones.

    The inner ones where the outer ones drop all. Where the outermost ones take steps of inner ones again for that, also
    where they drop only what takes none, and where they stack the carries of the inner ones.

    Args:
        graph: with loops.
        machine: where it runs.
        first: decisions that are made.
        constraints: what may run again.
        done: where pairs stand of which it is decided.
    """
    outer = with_decisions(graph, first)
    machine.shards.follow(outer)
    possible = [pair for pair in loop_pairs(outer) if pair.path not in done and pair.droppable]
    pairs = [pair.within(constraints.may_repeat(pair.loop.body.equations)) for pair in possible]
    pairs = [pair for pair in pairs if pair.droppable]
    if not pairs:
        return [first]
    depth = min(len(pair.path) for pair in pairs)
    here = [pair for pair in pairs if len(pair.path) == depth]
    is_outermost, done = not done, done | {pair.path for pair in here}
    drops = [_Drops(pair, machine) for pair in here]
    *levels, last = [first, *[(*first, *choices) for choices in _levels_of(drops)]]
    if is_outermost and any(drop.in_states for drop in drops):
        without = {index: [*{*drop.pair.droppable} - drop.in_states] for index, drop in enumerate(drops)}
        if any(without.values()):
            levels += _dropping(graph, machine, (*first, *_choices(drops, without)), constraints, done)
        instead = _levels_of([_Drops(pair, machine, stacks_states=True) for pair in here])
        *more, deepest = [(*first, *choices) for choices in instead] or [last]
        levels += [*more, *_dropping(graph, machine, deepest, constraints, done)]
    return [*levels, *_dropping(graph, machine, last, constraints, done)]


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
    order: list[tuple[int, int]] = []
    freed: list[int] = []
    taken: list[int] = []
    heap = [(each.price(stack), index, stack) for index, each in enumerate(pairs) for stack in each.pair.droppable]
    heapq.heapify(heap)
    while heap:
        price, index, stack = heapq.heappop(heap)
        each = pairs[index]
        if stack in each.dropped or price != each.price(stack):
            continue  # it stands there with another price, too
        for changed in each.drop(stack):
            heapq.heappush(heap, (each.price(changed), index, changed))
        order.append((index, stack))
        freed.append(sum(one.freed for one in pairs))
        taken.append(sum(one.taken for one in pairs))
    if max(freed, default=0) <= 0:
        return []
    counts = sorted({*_evenly(freed), *_evenly(taken)})
    return list(dict.fromkeys(_choices(pairs, _dropped(order[:count])) for count in counts))


def _evenly(amounts: Sequence[int]) -> Iterator[int]:
    """How many to take of what adds up to these amounts, for even parts of the largest."""
    most = max(amounts)
    for step in range(LEVELS):
        yield next(count for count, now in enumerate(amounts) if now >= most * (step + 1) // LEVELS) + 1


def _dropped(order: Sequence[tuple[int, int]]) -> dict[int, list[int]]:
    """For each pair, by its number, the stacks that are dropped."""
    found: dict[int, list[int]] = {}
    for index, stack in order:
        found.setdefault(index, []).append(stack)
    return found


def _choices(pairs: Sequence[_Drops], dropped: Mapping[int, Collection[int]]) -> tuple[LoopChoice, ...]:
    """Choices to be followed one after the other: a loop that several others read stacks less after each of them."""
    gone: dict[tuple[Path, int], list[int]] = {}
    choices = []
    for index, each in enumerate(pairs):
        if stacks := dropped.get(index):
            pair, states = each.pair, each.stacks_states and not each.in_states.isdisjoint(stacks)
            before = gone.setdefault((pair.path, pair.forward), [])
            choices.append(pair.choice([stack - sum(one < stack for one in before) for stack in stacks], states))
            before += stacks
    return tuple(choices)


class _Drops:
    """What dropping stacks of a pair takes and frees, one after another.

    What a stack takes are the equations that lead to it from what is still read, those of loops in the step among them,
    and that do not run again anyway. Each of them is there once, for all that it leads to, so that what a stack takes
    is less and less; but for a value that is stacked twice, which takes nothing as long as one of its stacks is there.

    Attributes:
        pair: the loops; of what is stacked the carries of loops in the step are not dropped where they are wanted.
        dropped: the stacks that are dropped.
        stacks_states: whether the carries of loops in the step are stacked where these would take steps again.
        in_states: the stacks that are made of such carries.
    """

    def __init__(self, pair: LoopPair, machine: Machine, stacks_states: bool = False) -> None:
        self.pair = pair
        self.stacks_states = stacks_states
        self.dropped: set[int] = set()
        self._bytes = 0
        body = pair.loop.body
        step = Parts(body, machine)
        self._parts, self._inner_stacks = step.parts, step.stacks
        self._producer = {key: index for index, part in enumerate(step.parts) for key in part.gives}
        self._shards = machine.shards
        self._values = body.results[pair.loop.carry :]
        self._carries = pair.loop.parts(body.params).carry
        self._known = Counter(self._values[stack] for stack in pair.read)
        self._kept = Counter(self._values)
        self._read: set[Value] = set()
        self._made: set[int] = set()
        self._leading = {value: self._leads_to(value) for value in {self._values[one] for one in pair.droppable}}
        of_states = {value for value, made in self._leading.items() if any(map(self._is_state, made))}
        self.in_states = {stack for stack in pair.droppable if self._values[stack] in of_states}
        self._time = {value: sum(self._parts[index].cost for index in made) for value, made in self._leading.items()}
        self._for: defaultdict[int, list[Value]] = defaultdict(list)
        self._stacks: defaultdict[Value, list[int]] = defaultdict(list)
        if stacks_states:
            copies = {value for value, made in self._leading.items() if all(map(self._is_link, made))}
            self.pair = replace(
                pair, droppable=tuple([one for one in pair.droppable if self._values[one] not in copies])
            )
        for value, made in self._leading.items():
            for index in made:
                self._for[index].append(value)
        for stack in self.pair.droppable:
            self._stacks[self._values[stack]].append(stack)

    def price(self, stack: int) -> float:
        """Nanoseconds for each byte that is freed by dropping one stack more; carries are not counted."""
        value = self._values[stack]
        time = 0 if self._is_read_elsewhere(stack) else self._time[value]
        return time * self.pair.loop.length * self.pair.steps / max(1, self._stacked(value))

    def drop(self, stack: int) -> set[int]:
        """Drop a stack; the others whose price has changed."""
        value = self._values[stack]
        changed = set(self._stacks[value])
        if not self._is_read_elsewhere(stack):
            for index in self._leading[value] - self._made:
                self._made.add(index)
                self._read.update([value for number, value in self._parts[index].reads if not number])
                for other in self._for[index]:
                    self._time[other] -= self._parts[index].cost
                    changed.update(self._stacks[other])
        self._read.add(value)
        self.dropped.add(stack)
        self._bytes += self._stacked(value)
        self._known[value] -= stack in self.pair.read
        self._kept[value] -= 1
        return changed - self.dropped

    @property
    def freed(self) -> int:
        """Bytes of the stacks that are dropped, less those of the carries that are stacked instead."""
        stacked = [value for value in self._carries if value in self._read and not self._kept[value]]
        if self.stacks_states:
            parts = [self._parts[index] for index in self._made if self._is_state(index)]
            stacked += [Value(stack_of(part.gives[0][1].type, part.steps)) for part in parts]
        return self._bytes - sum(map(self._stacked, stacked))

    @property
    def taken(self) -> int:
        """Nanoseconds that computing again takes in all steps."""
        return sum(self._parts[index].cost for index in self._made) * self.pair.loop.length * self.pair.steps

    def _is_read_elsewhere(self, stack: int) -> bool:
        """Whether another stack of the same value is read."""
        return self._known[self._values[stack]] > (stack in self.pair.read)

    def _leads_to(self, value: Value) -> set[int]:
        """The parts that compute a value from parameters and stacks that are read, by their numbers."""
        found: set[int] = set()
        target: Key = (0, value)
        work = [target]
        while work:
            index = self._producer.get(work.pop())
            if index is not None and index not in found:
                found.add(index)
                if not (self.stacks_states and self._is_state(index)):
                    work += [key for key in self._parts[index].reads if not self._is_known(key, target)]
        return found

    def _is_link(self, index: int) -> bool:
        """Whether a part only takes a value into a loop, or out of it."""
        part = self._parts[index]
        return bool(part.reads) and part.reads[0][0] != part.gives[0][0]

    def _is_state(self, index: int) -> bool:
        """Whether a part gives a carry of a loop that stands in the step itself."""
        part = self._parts[index]
        return bool(part.steps) and part.reads[0][0] == 0

    def _is_known(self, key: Key, target: Key) -> bool:
        """Whether a value is read, or a stack of it that is not to be made from it."""
        number, value = key
        if not number:
            return bool(self._known[value])
        return any(stack != target and self._is_known(stack, target) for stack in self._inner_stacks.get(key, ()))

    def _stacked(self, value: Value) -> int:
        return stack_of(self._shards.type(value), self.pair.loop.length).bytes
