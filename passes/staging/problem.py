"""The problem of cutting a program into segments: places to cut at, what crosses, and what is computed again.

For a bound on what the backward pass holds at once, dynamic programming over the places finds the cuts that save least;
the smallest bound that has a solution is found by sections, many bounds at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rematc.passes.staging.profile import Bytes, Profile

#: A bound is found in so many rounds, each of which tries the ends of so many equal sections at once.
_ROUNDS, _SECTIONS = 5, 16
#: How many bounds are tried where what is saved and the bound are weighed against each other.
TRIED = 20


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Where a program may be cut, and what that costs.

    Attributes:
        places: indices of equations before which it may be cut, in order; both ends are among them.
        crossing: [i, j] are the bytes of what a segment from places[i] to places[j] computes and later ones use.
        working: [i, j] are the most bytes that the stage of a segment from places[i] to places[j] takes at once,
            beside what crosses to it and over it.
        kept: [i] are the most bytes that are there at once from places[i] on, beside what crosses to it, if all that
            adjoints read is kept from there on.
        forced: indices into `places` at which it must be cut.
    """

    places: Sequence[int]
    crossing: Bytes
    working: Bytes
    kept: Bytes
    forced: frozenset[int] = field(default=frozenset())

    @property
    def whole(self) -> float:
        """The bytes that one stage for everything takes, as without any."""
        return float(self.working[0, -1])


def problem_at(
    found: Profile, places: Sequence[int], forced: frozenset[int] = frozenset(), *, keeps_last: bool = False
) -> Problem:
    """The problem of cutting at some of these places, and at all that are `forced`.

    `keeps_last` says that what the last segment computes may be kept, whatever the policy.
    """
    at = frozenset(index for index, place in enumerate(places) if place in forced)
    working, kept = _working_bytes(found, places), _kept_bytes(found, places)
    if keeps_last:
        # The last segment is as good as kept.
        working[:, -1] = np.minimum(working[:, -1], kept)
    return Problem(places, _crossing_bytes(found, places), working, kept, at)


def least_bound(problem: Problem, last: float | None = None) -> float:
    """The least number of bytes that cuts exist for, of what is held and computed again at once.

    `last` is a bound for the last segment, which then does not count.
    """
    most = problem.whole + float(np.max(problem.crossing, axis=0).sum() if problem.forced else 0.0)
    low, step = 0, _SECTIONS**_ROUNDS
    for _ in range(_ROUNDS):
        step //= _SECTIONS
        between = low + step * np.arange(1, _SECTIONS)
        saved = _searched(problem, most * (between / _SECTIONS**_ROUNDS), last=last).saved
        low += step * int(np.count_nonzero(~np.isfinite(saved)))
    return float(most * ((low + 1) / _SECTIONS**_ROUNDS))


def cheapest(
    problem: Problem,
    bound: float,
    *,
    last: float | None = None,
    share: float = 1.0,
    steps: int = 1,
    worth: float = 0.0,
) -> tuple[list[int], float] | None:
    """The cuts that save least so that each working set, and `share` of what is saved before it, keep the bound.

    Args:
        problem: what is to be cut.
        bound: in bytes.
        last: another bound for the last segment.
        share: the part of what is saved that counts.
        steps: how often what crosses is saved.
        worth: what each cut has to be worth, in bytes.

    Returns:
        Indices into the problem's places, and the bytes that the cuts save; None where no cuts keep the bound.
    """
    found = _searched(problem, np.asarray([bound]), last=last, share=share, steps=steps, worth=worth)
    return found.cuts(0) if np.isfinite(found.saved[0]) else None


def cheapest_together(problem: Problem, *, steps: int, worth: float) -> tuple[list[int], float] | None:
    """The cuts for which what they save and the bound on working sets alone are least together, and that sum; of
    `TRIED` bounds between the largest working set of two places in a row and that of everything.

    `steps` and `worth` are those of `cheapest`. None where no bound has cuts.
    """
    largest = float(np.max(np.diagonal(problem.working, 1)))
    bounds = np.geomspace(max(largest, 1.0), max(problem.whole, 1.0), TRIED)
    found = _searched(problem, bounds, share=0.0, steps=steps, worth=worth)
    best = int(np.argmin(found.saved + bounds))
    if not np.isfinite(found.saved[best]):
        return None
    cuts, saved = found.cuts(best)
    return cuts, saved + float(bounds[best])


@dataclass(frozen=True, slots=True)
class _Searched:
    """The cheapest cuts for each of several bounds.

    Attributes:
        saved: [bounds] the bytes that they save; infinite where no cuts keep the bound.
        previous: [bounds, places] the last place before each at which they cut, for what ends there.
    """

    saved: Bytes
    previous: np.ndarray[tuple[int, int], np.dtype[np.int64]]

    def cuts(self, index: int) -> tuple[list[int], float]:
        """Indices into the problem's places, and the bytes that they save, for one of the bounds."""
        previous, cuts = self.previous[index], list[int]()
        place = int(previous[-1])
        while place > 0:
            cuts.append(place)
            place = int(previous[place])
        return cuts[::-1], float(self.saved[index])


def _searched(
    problem: Problem,
    bounds: Bytes,
    *,
    last: float | None = None,
    share: float = 1.0,
    steps: int = 1,
    worth: float = 0.0,
) -> _Searched:
    """`cheapest` for many bounds at a time."""
    # By the place that a segment ends at, as they are read.
    crossing = np.ascontiguousarray(problem.crossing.T) * steps + worth
    working = np.ascontiguousarray(problem.working.T)
    end = len(problem.places) - 1
    crossing[end] = 0.0
    saved = np.full((len(bounds), end + 1), np.inf)
    saved[:, 0] = 0.0
    previous = np.zeros(saved.shape, np.int64)
    limits, rows = np.asarray(bounds)[:, None], np.arange(len(bounds))
    first = 0
    for place in range(1, end + 1):
        held = saved[:, first:place]
        if last is not None and place == end:
            limits = np.full_like(limits, last)
        taken = working[place, first:place] + held * share if share else working[place, first:place]
        cost = np.where(taken <= limits, held + crossing[place, first:place], np.inf)
        best = cost.argmin(1)
        previous[:, place], saved[:, place] = first + best, cost[rows, best]
        if place in problem.forced:
            first = place
    return _Searched(saved[:, -1], previous)


def _working_bytes(found: Profile, places: Sequence[int]) -> Bytes:
    """While the adjoint of an equation is taken there is what the policy saves for those up to it, what its segment
    computed again up to it, and what the adjoint itself works with.
    """
    begin, end = places[0], places[-1]
    starts = np.asarray(places) - begin
    again = np.cumsum(found.recomputed[begin:end])
    before = np.concatenate([[0.0], again])[starts]
    most = np.maximum.reduceat(np.cumsum(found.saved)[begin:end] + again + found.adjoint[begin:end], starts[:-1])
    count = len(places)
    working = np.zeros((count, count))
    for first in range(count - 1):
        working[first, first + 1 :] = np.maximum.accumulate(most[first:]) - before[first]
    return working


def _kept_bytes(found: Profile, places: Sequence[int]) -> Bytes:
    """While the adjoint of an equation is taken, there is what the policy saves for the segments before, and what is
    kept of the last one up to it.
    """
    begin, end = places[0], places[-1]
    starts = np.asarray(places) - begin
    read, saved = (np.concatenate([[0.0], np.cumsum(each[begin:end])]) for each in (found.read, found.saved))
    most = np.maximum.accumulate((read[1:] + found.adjoint[begin:end])[::-1])[::-1]
    most = np.append(most, 0.0)
    return np.asarray(np.sum(found.saved[:begin]) + saved[starts] + np.maximum(most[starts] - read[starts], 0.0))


def _crossing_bytes(found: Profile, places: Sequence[int]) -> Bytes:
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
