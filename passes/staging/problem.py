"""The problem of cutting a program into segments: places to cut at, what crosses, and what is computed again.

For a bound on what the backward pass holds at once, dynamic programming over the places finds the cuts that save least;
the smallest bound that has a solution is found by bisection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rematc.passes.staging.footprint import Footprint

#: Steps of a bisection.
BISECTIONS = 20

Bytes = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Where a program may be cut, and what that costs.

    Attributes:
        places: indices of equations before which it may be cut, in order; both ends are among them.
        crossing: [i, j] are the bytes of what a segment from places[i] to places[j] computes and later ones use.
        working: [i] are the bytes that are computed again and written to memory up to places[i].
        forced: indices into `places` at which it must be cut.
    """

    places: Sequence[int]
    crossing: Bytes
    working: Bytes
    forced: frozenset[int] = field(default=frozenset())

    @property
    def whole(self) -> float:
        """Bytes that are computed again and written to memory."""
        return float(self.working[-1])


def problem_at(found: Footprint, places: Sequence[int], forced: frozenset[int] = frozenset()) -> Problem:
    """The problem of cutting at some of these places, and at all that are `forced`."""
    begin, end = places[0], places[-1]
    sums = np.concatenate([[0.0], np.cumsum(np.asarray(found.working[begin:end], np.float64))])
    at = frozenset(index for index, place in enumerate(places) if place in forced)
    return Problem(places, _crossing_bytes(found, places), sums[np.asarray(places) - begin], at)


def least_bound(problem: Problem) -> float:
    """The least number of bytes that cuts exist for, of what is held and computed again at once."""
    low, high = 0.0, problem.whole + float(np.max(problem.crossing, axis=0).sum() if problem.forced else 0.0)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if cheapest(problem, middle) is None:
            low = middle
        else:
            high = middle
    return high


def cheapest(
    problem: Problem, bound: float, *, share: float = 1.0, steps: int = 1, worth: float = 0.0
) -> tuple[list[int], float] | None:
    """The cuts that save least so that each working set, and `share` of what is saved before it, keep the bound.

    Args:
        problem: what is to be cut.
        bound: in bytes.
        share: the part of what is saved that counts.
        steps: how often what crosses is saved.
        worth: what each cut has to be worth, in bytes.

    Returns:
        Indices into the problem's places, and the bytes that the cuts save; None where no cuts keep the bound.
    """
    crossing, working = problem.crossing * steps + worth, problem.working
    count = len(working)
    saved = np.full(count, np.inf)
    saved[0] = 0.0
    previous = np.zeros(count, int)
    first = 0
    for place in range(1, count):
        held = saved[first:place]
        fits = np.isfinite(held)
        fits[fits] = held[fits] * share + (working[place] - working[first:place][fits]) <= bound
        if fits.any():
            cost = np.where(fits, held + (crossing[first:place, place] if place < count - 1 else 0.0), np.inf)
            previous[place] = first + int(np.argmin(cost))
            saved[place] = cost[previous[place] - first]
        if place in problem.forced:
            first = place
    if not np.isfinite(saved[-1]):
        return None
    cuts: list[int] = []
    place = int(previous[-1])
    while place > 0:
        cuts.append(place)
        place = int(previous[place])
    return cuts[::-1], float(saved[-1])


def _crossing_bytes(found: Footprint, places: Sequence[int]) -> Bytes:
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
