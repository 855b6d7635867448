"""Where to cut a program into segments, so that its backward pass needs little memory.

The backward pass takes the segments from the last to the first. While it is in one, it holds what that one computes
again (its working set), and what crosses from this segment and those before it into later ones, which the forward
pass saved. Small segments have small working sets but save much; the best cuts are few and where little crosses:
between the layers of a network, which nobody has to point out.

For a bound on the sum of both, dynamic programming over candidates finds the cuts that save least; the smallest bound
that has a solution is found by bisection. (For chains of equal layers that is the rule of square roots: Chen et al.,
"Training deep nets with sublinear memory cost", 2016; the general shape is that of Kusumoto et al., "A graph theoretic
framework of recomputation algorithms", 2019.)
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from rematc.passes.staging.footprint import LEAST_GAIN, Footprint

#: Cuts are chosen among at most so many places; the time is of the order of its square.
_CANDIDATES = 256
#: Steps of a bisection.
_BISECTIONS = 20
#: What a cut has to be worth, as a part of the memory needed: a barrier keeps XLA from fusing across it.
_WORTH = 0.004
#: Cutting at all must save so much of the memory.
_GAIN = 0.1

_Bytes = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def choose_cuts(found: Footprint, begin: int, end: int) -> tuple[int, ...]:
    """Indices of equations before which a segment of `equations[begin:end]` begins, `begin` left out."""
    places, crossing, working = _problem(found, begin, end)
    if len(places) < 3:
        return ()
    whole = float(working[-1])
    least = _least_bound(crossing, working)
    if not _is_worth_it(least, whole):
        return ()
    worth = _WORTH * least
    relaxed = least * (1 + _WORTH) + worth * len(places) ** 0.5
    chosen = _cheapest(crossing + worth, working, relaxed, 1.0) or _cheapest(crossing, working, least, 1.0)
    return () if chosen is None else tuple([places[index] for index in chosen[0]])


def choose_cuts_of_step(found: Footprint, steps: int) -> tuple[int, ...]:
    """The same for the body of a loop, all of whose steps save what crosses.

    The backward pass is in one step at a time, and holds what all steps before it have saved.
    """
    places, crossing, working = _problem(found, 0, len(found.equations))
    if len(places) < 3:
        return ()
    whole = float(working[-1])
    best, cuts = whole, list[int]()
    largest = float(np.max(np.diff(working)))
    for bound in np.geomspace(max(largest, 1.0), max(whole, 1.0), _BISECTIONS):
        chosen = _cheapest(crossing * steps + _WORTH * whole, working, float(bound), 0.0)
        if chosen is not None and chosen[1] + bound < best:
            best, cuts = chosen[1] + float(bound), chosen[0]
    return tuple([places[index] for index in cuts]) if _is_worth_it(best, whole) else ()


def _is_worth_it(least: float, whole: float) -> bool:
    return least <= min((1 - _GAIN) * whole, whole - LEAST_GAIN)


def _problem(found: Footprint, begin: int, end: int) -> tuple[list[int], _Bytes, _Bytes]:
    """Places to cut at, what crosses from each to each, and the working set up to each."""
    places = _candidates(_live_bytes(found, begin, end), begin, end)
    sums = np.concatenate([[0.0], np.cumsum(np.asarray(found.working[begin:end], np.float64))])
    return places, _crossing_bytes(found, places), sums[np.asarray(places) - begin]


def _live_bytes(found: Footprint, begin: int, end: int) -> _Bytes:
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


def _candidates(live: _Bytes, begin: int, end: int) -> list[int]:
    """Where fewer bytes cross than on either side; of too many the smallest in each stretch. With both ends."""
    lows = [
        index
        for index in range(1, end - begin)
        if live[index] < live[index - 1] or (live[index] == live[index - 1] and index + 1 < len(live))
        if index + 1 == len(live) or live[index] <= live[index + 1]
    ]
    if len(lows) > _CANDIDATES:
        edges = np.linspace(0, len(lows), _CANDIDATES + 1).astype(int)
        lows = [min(lows[a:b], key=lambda index: float(live[index])) for a, b in itertools.pairwise(edges) if b > a]
    return [begin, *[begin + index for index in lows], end]


def _crossing_bytes(found: Footprint, places: Sequence[int]) -> _Bytes:
    """[i, j]: the bytes of what equations[places[i]:places[j]] compute and equations from places[j] on use."""
    count = len(places)
    starts = np.asarray(places)
    live = np.zeros((count, count + 1))
    for index in range(places[0], places[-1]):
        for value in found.equations[index].results:
            size, last = found.crossing.get(value, 0), found.last_use.get(value, -1)
            if size and last > index:
                bucket = int(np.searchsorted(starts, index, side="right")) - 1
                until = int(np.searchsorted(starts, last, side="right"))
                live[bucket, bucket + 1] += size
                live[bucket, until] -= size
    by_cut = np.cumsum(live[:, :count], axis=1)
    return np.asarray(np.cumsum(by_cut[::-1], axis=0)[::-1])


def _least_bound(crossing: _Bytes, working: _Bytes) -> float:
    low, high = 0.0, float(working[-1])
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if _cheapest(crossing, working, middle, 1.0) is None:
            low = middle
        else:
            high = middle
    return high


def _cheapest(crossing: _Bytes, working: _Bytes, bound: float, share: float) -> tuple[list[int], float] | None:
    """The cuts that save least so that each working set, and `share` of what is saved before it, keep the bound."""
    count = len(working)
    saved = np.full(count, np.inf)
    saved[0] = 0.0
    previous = np.zeros(count, int)
    for place in range(1, count):
        held = saved[:place]
        fits = np.isfinite(held)
        fits[fits] = held[fits] * share + (working[place] - working[:place][fits]) <= bound
        if fits.any():
            cost = np.where(fits, held + (crossing[:place, place] if place < count - 1 else 0.0), np.inf)
            previous[place] = int(np.argmin(cost))
            saved[place] = cost[previous[place]]
    if not np.isfinite(saved[-1]):
        return None
    cuts: list[int] = []
    place = int(previous[-1])
    while place > 0:
        cuts.append(place)
        place = int(previous[place])
    return cuts[::-1], float(saved[-1])
