"""Where to cut a program into segments, so that its backward pass needs little memory.

The backward pass takes the segments from the last to the first. While it is in one, it holds what that one computes
again (its working set), and what crosses from this segment and those before it into later ones, which the forward
pass saved. Small segments have small working sets but save much; the best cuts are few and where little crosses:
between the layers of a network, which nobody has to point out.

`problem` finds the cuts for which the largest sum of both is the least. (For chains of equal layers that is the rule of
square roots: Chen et al., "Training deep nets with sublinear memory cost", 2016; the general shape is that of Kusumoto
et al., "A graph theoretic framework of recomputation algorithms", 2019.) Where a program repeats itself, cuts at the
same places of each layer (`regular`) are preferred if they need no more, in large programs if they need hardly more.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from rematc.passes.staging.footprint import LEAST_GAIN, Footprint
from rematc.passes.staging.problem import BISECTIONS, Bytes, Problem, cheapest, least_bound, problem_at
from rematc.passes.staging.regular import regular_cuts

#: Cuts are chosen among at most so many places; the time is of the order of its square.
_CANDIDATES = 256
#: What a cut has to be worth, as a part of the memory needed: a barrier keeps XLA from fusing across it.
_WORTH = 0.004
#: Cutting at all must save so much of the memory.
_GAIN = 0.1
#: Regular cuts may need more than the best ones in programs that XLA takes seconds to compile, of so many equations.
_LARGE = 1500
#: So much more of what segments hold, or of all that is held.
_OF_SEGMENTS, _OF_ALL = 0.15, 0.04


def choose_cuts(found: Footprint, begin: int, end: int) -> tuple[int, ...]:
    """Indices of equations before which a segment of `equations[begin:end]` begins, `begin` left out."""
    live = _live_bytes(found, begin, end)
    minima = _local_minima(live, begin)
    free = problem_at(found, [begin, *_thinned(minima, live, begin), end])
    if len(free.places) < 3:
        return ()
    least = least_bound(free)
    if not _is_worth_it(least, free.whole):
        return ()
    regular = _regular(found, minima, live, begin, end)
    if regular is not None:
        bound = least_bound(regular)
        more = max(_OF_SEGMENTS * least, _OF_ALL * (found.saved + least)) if end - begin >= _LARGE else 0.0
        if bound <= least + more:
            return _places(regular, bound)
    return _places(free, least)


def choose_cuts_of_step(found: Footprint, steps: int) -> tuple[int, ...]:
    """The same for the body of a loop, all of whose steps save what crosses.

    The backward pass is in one step at a time, and holds what all steps before it have saved.
    """
    count = len(found.equations)
    live = _live_bytes(found, 0, count)
    problem = problem_at(found, [0, *_thinned(_local_minima(live, 0), live, 0), count])
    if len(problem.places) < 3:
        return ()
    whole = problem.whole
    best, cuts = whole, list[int]()
    largest = float(np.max(np.diff(problem.working)))
    for bound in np.geomspace(max(largest, 1.0), max(whole, 1.0), BISECTIONS):
        chosen = cheapest(problem, float(bound), share=0.0, steps=steps, worth=_WORTH * whole)
        if chosen is not None and chosen[1] + bound < best:
            best, cuts = chosen[1] + float(bound), chosen[0]
    return tuple([problem.places[index] for index in cuts]) if _is_worth_it(best, whole) else ()


def _is_worth_it(least: float, whole: float) -> bool:
    return least <= min((1 - _GAIN) * whole, whole - LEAST_GAIN)


def _places(problem: Problem, least: float) -> tuple[int, ...]:
    """The fewest places to cut at that need hardly more than the least memory."""
    worth = _WORTH * least
    relaxed = least * (1 + _WORTH) + worth * len(problem.places) ** 0.5
    chosen = cheapest(problem, relaxed, worth=worth) or cheapest(problem, least)
    return () if chosen is None else tuple([problem.places[index] for index in chosen[0]])


def _regular(found: Footprint, minima: Sequence[int], live: Bytes, begin: int, end: int) -> Problem | None:
    """The problem whose layers are all cut alike; None for a program that does not repeat itself."""
    repetitions, cuts = regular_cuts(found, minima, live, begin, end)
    if not cuts:
        return None
    outside = [low for low in minima if not any(run.begin <= low <= run.end for run in repetitions)]
    places = sorted({*cuts, *_thinned(outside, live, begin)})
    return problem_at(found, [begin, *places, end], frozenset(cuts))


def _live_bytes(found: Footprint, begin: int, end: int) -> Bytes:
    """For each index of an equation, the bytes that cross a cut before it."""
    change = np.zeros(end - begin + 1)
    for index in range(begin, end):
        for value in found.equations[index].results:
            last = found.last_use.get(value, -1)
            if value in found.crossing and last > index:
                size = found.crossing[value]
                change[index + 1 - begin] += size
                if last + 1 < end:
                    change[last + 1 - begin] -= size
    return np.cumsum(change)[:-1]


def _local_minima(live: Bytes, begin: int) -> list[int]:
    """Where fewer bytes cross than on either side."""
    return [
        begin + index
        for index in range(1, len(live))
        if live[index] < live[index - 1] or (live[index] == live[index - 1] and index + 1 < len(live))
        if index + 1 == len(live) or live[index] <= live[index + 1]
    ]


def _thinned(minima: Sequence[int], live: Bytes, begin: int) -> list[int]:
    """Of too many places the one where least crosses in each stretch."""
    if len(minima) <= _CANDIDATES:
        return list(minima)
    edges = np.linspace(0, len(minima), _CANDIDATES + 1).astype(int)
    return [min(minima[a:b], key=lambda low: float(live[low - begin])) for a, b in itertools.pairwise(edges) if b > a]
