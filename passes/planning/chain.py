"""Plans for what is a chain of blocks forwards and backwards: dynamic programming over blocks and memory.

What stands before the peak is cut at narrow places, where few bytes are read further on; what comes after it reads the
blocks' values in reversed order, block by block. For blocks s to t and m bytes the least time is that of the best of

    run s to j without keeping anything, hold what is read after it, solve j to t, then s to j       for each j
    run s to j, keep what will be read of it, solve j to t, read it                                  for each j
    run s, keep what is dear of that, solve s + 1 to t, run the rest of s, read it
    run s and read it at once                                                                       where t = s + 1

which nests to any depth; on equal blocks of one value it is the binomial schedule of `rematc.passes.revolve`. What is
dear is what takes long for its bytes: of a network the products, with others where the bar is lower.

Reference: Beaumont, Eyraud-Dubois, Herrmann, Joly & Shilova, "Optimal checkpointing for heterogeneous chains" (2019).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rematc.passes.planning.problem import GIVEN, Booleans, Integers, Problem, Stages, simulate

Table = np.ndarray[tuple[int, int], np.dtype[np.int64]]

#: How many blocks there are at most, and how many nodes and blocks make more of them worth while: the programme takes
#: time with their cube.
BLOCKS = 48
NODES_AND_BLOCKS = 24_000
#: Into how many parts memory is divided.
LEVELS = 300
#: How many bars there are at most above which something is dear: each takes the programme as much time again.
BARS = 8


@dataclass(frozen=True, slots=True)
class Chain:
    """Blocks, forwards and backwards.

    Attributes:
        cuts: [blocks + 1] the nodes at which blocks begin, and the one after the last.
        begins: [blocks] the node at which something begins to read a block's values; descending.
        cost: [blocks] nanoseconds of running it.
        again: [blocks] nanoseconds of running what reading it needs, where nothing of it was kept.
        kept: [blocks + 1, blocks + 1] bytes of what is written from the one block on and before the other, and is read
            from that on or after the peak: a block's values may lie in the place of what the one before it wrote.
        crossing: [blocks + 1, blocks + 1] bytes of what is written from the one block on and read from the other on.
        forward: [blocks] the most bytes that it takes while it runs, nothing of it being kept.
        reading: [blocks] the most bytes while it is run again and its values are read, with all else that is live then.
        base: [blocks + 1] bytes that are live before a block's reading besides forward values; the last before all.
        partly: the same where what is dear is kept, for each bar.
    """

    cuts: list[int]
    begins: list[int]
    cost: Integers
    again: Integers
    kept: Table
    crossing: Table
    forward: Integers
    reading: Integers
    base: Integers
    partly: tuple[Partly, ...]


@dataclass(frozen=True, slots=True)
class Partly:
    """Blocks of which what is dear is kept.

    Attributes:
        runs: [nodes before the peak] whether the node runs again.
        again: [blocks] nanoseconds of that.
        kept: [blocks] bytes that are kept.
        reading: [blocks] as `Chain.reading`.
    """

    runs: Booleans
    again: Integers
    kept: Integers
    reading: Integers


def chain_of(problem: Problem) -> Chain | None:
    """The chain in a problem; None where there are no two blocks."""
    count = len(problem.cost)
    run = simulate(problem)
    peak = int(np.flatnonzero(run.live == run.peak)[-1]) + 1 if count else 0
    if not 2 < peak < count:
        return None
    uses = _Uses(problem, peak)
    cuts = _cuts(uses.crossing, uses.weight, max(BLOCKS, min(count, NODES_AND_BLOCKS // count)))
    if len(cuts) < 3:
        return None
    return _Blocks(problem, uses, cuts).chain()


class _Uses:
    """When the values that are written before the peak are read, before and after it."""

    def __init__(self, problem: Problem, peak: int) -> None:
        count, values = len(problem.cost), len(problem.size)
        self.peak = peak
        self.forward = np.full(values, -1)
        self.first = np.full(values, count)
        self.last = np.full(values, -1)
        for node, reads in enumerate(problem.reads):
            for value in reads:
                if node < peak:
                    self.forward[value] = node
                else:
                    self.first[value] = min(self.first[value], node)
                    self.last[value] = node
        self.last[problem.is_result] = count - 1
        self.is_forward = (problem.producer != GIVEN) & (problem.producer < peak)
        change = np.zeros(peak + 2, np.int64)
        chosen = self.is_forward & (self.forward >= 0)
        np.add.at(change, problem.producer[chosen] + 1, problem.size[chosen])
        np.subtract.at(change, self.forward[chosen] + 1, problem.size[chosen])
        #: [peak] bytes that are written before a node and read by it or after it, before the peak.
        self.crossing = np.cumsum(change)[:peak]
        #: [peak] how much a node has to do with memory: bytes that are read after the peak.
        self.weight = np.zeros(peak)
        late = self.is_forward & (self.last >= 0)
        np.add.at(self.weight, problem.producer[late], problem.size[late].astype(float))


def _cuts(crossing: Integers, weight: np.ndarray[tuple[int], np.dtype[np.float64]], most: int) -> list[int]:
    """Where few bytes cross, at most so many, with like amounts between them."""
    count = len(crossing)
    inner = np.arange(1, count)
    after = np.append(crossing[2:], np.iinfo(np.int64).max)
    before = np.append(crossing[1], crossing[1:-1])
    is_low = (crossing[1:] <= before) & (crossing[1:] <= after)
    cuts = inner[is_low]
    if len(cuts) > 2:
        width = np.concatenate([[0], crossing[cuts], [0]])
        cuts = cuts[width[1:-1] <= 1.5 * np.maximum(width[:-2], width[2:])]
    total = np.concatenate([[0.0], np.cumsum(weight + weight.sum() / max(1, count) * 1e-3)])
    if len(cuts) >= most:
        # The narrowest one in each of equal parts of the weight.
        part = np.minimum((total[cuts] / total[-1] * most).astype(int), most - 1)
        best = np.lexsort((cuts, crossing[cuts], part))
        cuts = np.sort(cuts[best[np.concatenate([[True], part[best][1:] != part[best][:-1]])]])
    return [0, *(cut for cut in cuts.tolist() if cut > 0), count]


class _Blocks:
    """What the blocks between given cuts take."""

    def __init__(self, problem: Problem, uses: _Uses, cuts: list[int]) -> None:
        self.problem, self.uses, self.cuts = problem, uses, cuts
        self.count = len(cuts) - 1
        self.block = np.full(len(problem.size), -1)
        forward = uses.is_forward
        self.block[forward] = np.searchsorted(cuts, problem.producer[forward], side="right") - 1

    def chain(self) -> Chain:
        """The chain of these blocks."""
        problem, uses, cuts = self.problem, self.uses, self.cuts
        begins = self._begins()
        crossing = self._crossing()
        cost = np.add.reduceat(problem.cost[: uses.peak], cuts[:-1])
        outside = self._outside()
        base = np.array([outside[begin - 1] if begin else 0 for begin in begins] + [outside[begins[-1] - 1]])
        again = self._again(begins)
        last = np.add.reduceat(np.where(again, problem.cost[: uses.peak], 0), cuts[:-1])
        nothing = np.zeros(len(problem.size), np.bool_)
        reading = self._reading(begins, outside, again, nothing)
        partly = tuple([self._partly(begins, outside, bar) for bar in self._bars()])
        return Chain(cuts, begins, cost, last, self._kept(), crossing, self._forward(), reading, base, partly)

    def _bars(self) -> list[float]:
        """How long for its bytes a node takes at least that is dear, in nanoseconds for each byte."""
        late = np.flatnonzero(self.uses.is_forward & (self.uses.last >= 0) & (self.problem.size > 0))
        if not len(late):
            return []
        size = self.problem.size[late]
        rates, kind = np.unique(self.problem.cost[self.problem.producer[late]] / size, return_inverse=True)
        # Of the kinds of values between two bars those with the fewest bytes are not told apart.
        held = np.bincount(kind, size.astype(float))
        bars = list(range(1, len(rates)))
        while len(bars) > BARS:
            edges = [0, *bars, len(rates)]
            between = np.add.reduceat(held, edges[:-1])
            pairs = between[:-1] + between[1:]
            del bars[int(pairs.argmin())]
        found: list[float] = rates[bars].tolist()
        return found

    def _partly(self, begins: list[int], outside: Integers, bar: float) -> Partly:
        """Where what takes so long for its bytes is kept, and what later blocks read."""
        problem, uses = self.problem, self.uses
        producer = np.maximum(problem.producer, 0)
        rates = np.where(uses.is_forward, problem.cost[producer] / np.maximum(problem.size, 1), 0.0)
        is_crossing = uses.is_forward & (uses.forward >= np.asarray(self.cuts)[self.block + 1])
        stays = is_crossing | (rates >= bar) | ~problem.is_repeatable[producer]
        is_needed, runs = self._needed(begins, stays)
        held = (is_needed & stays) | is_crossing
        again = np.add.reduceat(np.where(runs, problem.cost[: uses.peak], 0), self.cuts[:-1])
        return Partly(runs, again, self._bytes(held), self._reading(begins, outside, runs, held))

    def _bytes(self, chosen: Booleans) -> Integers:
        """[blocks] the bytes of chosen values."""
        found = np.zeros(self.count, np.int64)
        np.add.at(found, self.block[chosen], self.problem.size[chosen])
        return found

    def _begins(self) -> list[int]:
        """Where blocks begin to be read: backwards, a value is first read for the node that read it last."""
        uses, count = self.uses, len(self.problem.cost)
        reader = np.where(uses.forward >= 0, uses.forward, self.problem.producer)
        chosen = np.flatnonzero((uses.first < count) & (reader >= 0) & (reader < uses.peak))
        reader = reader[chosen]
        first = np.full(self.count, count)
        np.minimum.at(first, np.searchsorted(self.cuts, reader, side="right") - 1, uses.first[chosen])
        begins, later = [], uses.peak
        for begin in reversed(first.tolist()):
            later = max(later, begin) if begin < count else later
            begins.append(later)
        return begins[::-1]

    def _crossing(self) -> Table:
        """[from, at] bytes written from block `from` on before block `at`, and read from `at` on before the peak."""
        uses = self.uses
        chosen = np.flatnonzero(uses.is_forward & (uses.forward >= 0))
        first = self.block[chosen]
        last = np.searchsorted(self.cuts, uses.forward[chosen], side="right") - 1
        table = np.zeros((self.count + 1, self.count + 1), np.int64)
        for value, begin, end in zip(chosen.tolist(), first.tolist(), last.tolist(), strict=True):
            if end > begin:
                table[: begin + 1, begin + 1 : end + 1] += self.problem.size[value]
        return table

    def _kept(self) -> Table:
        """[from, to] bytes written in these blocks that are read from block `to` on before the peak, or after it."""
        uses = self.uses
        chosen = np.flatnonzero(uses.is_forward & ((uses.last >= 0) | (uses.forward >= 0)))
        last = np.searchsorted(self.cuts, uses.forward[chosen], side="right") - 1
        last[uses.last[chosen] >= 0] = self.count
        table = np.zeros((self.count + 1, self.count + 1), np.int64)
        for value, begin, end in zip(chosen.tolist(), self.block[chosen].tolist(), last.tolist(), strict=True):
            if end > begin:
                table[: begin + 1, begin + 1 : end + 1] += self.problem.size[value]
        return table

    def _live(self, begin: Integers, end: Integers, size: Integers) -> Integers:
        change = np.zeros(len(self.problem.cost) + 1, np.int64)
        np.add.at(change, begin, size)
        np.subtract.at(change, end + 1, size)
        live: Integers = np.cumsum(change)[:-1]
        return live

    def _outside(self) -> Integers:
        """[nodes] bytes that are live while a node runs, but for values that are written before the peak."""
        problem, uses = self.problem, self.uses
        end = np.maximum(np.maximum(uses.forward, uses.last), np.maximum(problem.producer, 0))
        chosen = ~uses.is_forward
        live = self._live(np.maximum(problem.producer, 0)[chosen], end[chosen], problem.size[chosen])
        return live + problem.workspace

    def _forward(self) -> Integers:
        """The most bytes that each block takes while it runs and nothing is kept of it, with what crosses it."""
        problem, uses = self.problem, self.uses
        chosen = uses.is_forward
        begin = problem.producer[chosen]
        live = self._live(begin, np.maximum(uses.forward[chosen], begin), problem.size[chosen]) + problem.workspace
        live -= self._replaced(uses.forward)
        return np.maximum.reduceat(live[: uses.peak], self.cuts[:-1])

    def _replaced(self, end: Integers) -> Integers:
        """[nodes] bytes that nodes write into the memory of what ends there."""
        problem = self.problem
        saved = np.zeros(len(problem.cost), np.int64)
        new = np.flatnonzero(problem.replaces >= 0)
        old, at = problem.replaces[new], problem.producer[new]
        dies = end[old] == at
        np.add.at(saved, at[dies], np.minimum(problem.size[old], problem.size[new])[dies])
        return saved

    def _again(self, begins: list[int]) -> Booleans:
        """[nodes before the peak] whether reading a block needs the node to run, where nothing of it was kept."""
        return self._needed(begins, np.zeros(len(self.problem.size), np.bool_))[1]

    def _needed(self, begins: list[int], held: Booleans) -> tuple[Booleans, Booleans]:
        """The values that reading their blocks needs, and [nodes before the peak] whether it needs them to run, where
        these are held.
        """
        problem, uses = self.problem, self.uses
        is_needed = uses.is_forward & (uses.last >= np.asarray(begins)[self.block])
        runs = np.zeros(uses.peak, np.bool_)
        for node in range(uses.peak - 1, -1, -1):
            runs[node] = any(is_needed[value] and not held[value] for value in problem.writes[node])
            if runs[node]:
                first = self.cuts[int(self.block[problem.writes[node][0]])]
                for value in problem.reads[node]:
                    is_needed[value] |= problem.producer[value] >= first
        return is_needed, runs

    def _reading(self, begins: list[int], outside: Integers, again: Booleans, held: Booleans) -> Integers:
        problem, uses = self.problem, self.uses
        start = np.asarray(begins)[self.block]
        is_kept = uses.is_forward & (uses.last >= start)
        chosen = np.flatnonzero(is_kept)
        backward = outside + self._live(start[chosen], uses.last[chosen], problem.size[chosen])
        own = np.flatnonzero(uses.is_forward)
        own = own[again[problem.producer[own]] & ~held[own]]
        stop = np.asarray(self.cuts)[self.block + 1] - 1
        end = np.where(is_kept, stop, np.minimum(np.maximum(uses.forward, problem.producer), stop))
        run = self._live(problem.producer[own], end[own], problem.size[own]) + problem.workspace
        run -= self._replaced(np.where(is_kept, -1, uses.forward))
        run[: uses.peak][~again] = 0
        there = self._bytes(held)
        most = []
        for block, begin in enumerate(begins):
            after = begins[block - 1] if block else len(problem.cost)
            reads = int(backward[begin:after].max()) if after > begin else 0
            inside = run[self.cuts[block] : self.cuts[block + 1]]
            most.append(max(reads, int(outside[begin - 1]) + int(there[block]) + int(inside.max())))
        return np.array(most, np.int64)


class Programme:
    """The least time for each stretch of blocks and each amount of memory, and the plans that take it."""

    def __init__(self, problem: Problem, chain: Chain, levels: int = LEVELS) -> None:
        self.problem, self.chain = problem, chain
        self.count = len(chain.cuts) - 1
        own = np.diagonal(chain.kept, 1)
        top = int(own.sum() + chain.reading.max() + chain.forward.max())
        self.unit = max(1, -(-top // levels))
        self.levels = -(-top // self.unit) + 1
        self.best = np.full((self.count + 1, self.count + 1, self.levels), np.inf)
        self.choice = np.full((self.count + 1, self.count + 1, self.levels), -1, np.int16)
        self._solve()

    def _up(self, size: int) -> int:
        return -(-size // self.unit)

    def _solve(self) -> None:
        chain, count, levels = self.chain, self.count, self.levels
        memory = np.arange(levels)
        run = np.concatenate([[0], np.cumsum(chain.cost)])
        kept = -(-chain.kept // self.unit)
        reading = [self._up(size) for size in chain.reading.tolist()]
        crossing = -(-chain.crossing // self.unit)
        # [from, to] the levels that reading all blocks between them needs, each beside what was kept before it.
        to_read = np.zeros((count + 1, count + 1), np.int64)
        for stop in range(1, count + 1):
            to_read[:stop, stop] = np.maximum(to_read[:stop, stop - 1], kept[:stop, stop - 1] + reading[stop - 1])
        for first in range(count - 1, -1, -1):
            self.best[first, first + 1, reading[first] :] = chain.again[first]
            self.choice[first, first + 1, reading[first] :] = first
            for end in range(first + 2, count + 1):
                options = np.full((end - first, levels), np.inf)
                stops = np.arange(first + 1, end)
                room = memory[None, :] - kept[first, stops][:, None]
                whole = self.best[stops[:, None], end, np.maximum(room, 0)] + (run[stops] - run[first])[:, None]
                whole[(room < 0) | (memory[None, :] < to_read[first, stops][:, None])] = np.inf
                partly = [self._kept_partly(each, first, end) for each in chain.partly]
                splits = np.arange(first + 1, end)
                forward = (
                    np.maximum.accumulate(chain.forward[first : end - 1])
                    + chain.base[end - 1 if end < count else count]
                )
                needed = -(-forward // self.unit)
                room = memory[None, :] - crossing[first, splits][:, None]
                inner = self.best[splits[:, None], end, np.maximum(room, 0)]
                options[1:] = inner + self.best[first, splits] + (run[splits] - run[first])[:, None]
                options[1:][(room < 0) | (memory[None, :] < needed[:, None])] = np.inf
                options = np.concatenate([options, *partly, whole])
                pick = np.argmin(options, axis=0)
                self.best[first, end] = options[pick, memory]
                # Behind the splits is what is kept partly, for which -2 and less stand, then what is kept whole.
                place = pick - (end - first)
                behind = np.where(place < len(partly), -2 - place, self.count + first + 1 + place - len(partly))
                self.choice[first, end] = np.where(place < 0, first + pick, behind)

    def _kept_partly(self, partly: Partly, first: int, end: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        """[1, levels] the time where what is dear of the first block is kept."""
        kept, reading = self._up(int(partly.kept[first])), self._up(int(partly.reading[first]))
        found = np.full((1, self.levels), np.inf)
        if kept < self.levels:
            own = float(self.chain.cost[first] + partly.again[first])
            found[0, kept:] = self.best[first + 1, end, : self.levels - kept] + own
            found[0, :reading] = np.inf
        return found

    def amounts(self) -> list[int]:
        """The levels of memory at which more of it gives a faster plan."""
        best = self.best[0, self.count]
        before = np.append(np.inf, best[:-1])
        found: list[int] = np.flatnonzero(best < before).tolist()
        return found

    def plan(self, level: int) -> Stages:
        """The plan for an amount of memory."""
        again: dict[int, set[int]] = {}
        work = [(0, self.count, level, -1)]
        while work:
            first, end, room, gap = work.pop()
            pick = int(self.choice[first, end, room])
            if end == first + 1:
                self._run(again, gap, first, end)
            elif pick < -1:
                partly = self.chain.partly[-2 - pick]
                self._run(again, gap, first, first + 1)
                nodes = range(self.chain.cuts[first], self.chain.cuts[first + 1])
                again.setdefault(self.chain.begins[first], set()).update(node for node in nodes if partly.runs[node])
                work.append((first + 1, end, room - self._up(int(partly.kept[first])), gap))
            elif pick > self.count:
                stop = pick - self.count
                self._run(again, gap, first, stop)
                work.append((stop, end, room - self._up(int(self.chain.kept[first, stop])), gap))
            else:
                self._run(again, gap, first, pick)
                held = self._up(int(self.chain.crossing[first, pick]))
                work.append((pick, end, room - held, gap))
                work.append((first, pick, room, self.chain.begins[pick - 1]))
        return needed(self.problem, again)

    def _run(self, again: dict[int, set[int]], gap: int, first: int, end: int) -> None:
        if gap >= 0:
            nodes = range(self.chain.cuts[first], min(self.chain.cuts[end], gap))
            again.setdefault(gap, set()).update(node for node in nodes if self.problem.is_repeatable[node])


def needed(problem: Problem, again: dict[int, set[int]]) -> Stages:
    """These runs without those whose values nothing reads."""
    is_needed = problem.is_result.copy()
    kept: dict[int, list[int]] = {}

    def run(node: int) -> None:
        for value in problem.writes[node]:
            is_needed[value] = False
        for value in problem.reads[node]:
            is_needed[value] = True

    end = len(problem.cost)
    for gap in sorted(again, reverse=True):
        for node in range(end - 1, gap - 1, -1):
            run(node)
        end = gap
        for node in sorted(again[gap], reverse=True):
            if any(is_needed[value] for value in problem.writes[node]):
                kept.setdefault(gap, []).append(node)
                run(node)
    begins = tuple(sorted(kept))
    return Stages(begins, tuple(tuple(reversed(kept[begin])) for begin in begins))
