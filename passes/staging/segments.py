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
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rematc.passes.staging.problem import Problem, cheapest, cheapest_together, least_bound, problem_at
from rematc.passes.staging.profile import LEAST_GAIN, Bytes, Profile
from rematc.passes.staging.regular import regular_cuts
from rematc.passes.staging.repetition import Repetition

#: Cuts are chosen among at most so many places; the time is of the order of its square.
_CANDIDATES = 256
#: What a cut has to be worth, as a part of the memory needed: a barrier keeps XLA from fusing across it.
_WORTH = 0.004
#: Cutting at all must save so much of the memory.
_GAIN = 0.1
#: What the profile cannot tell apart, as a part of the memory needed.
_ALIKE = 0.03
#: Regular cuts may need more than the best ones in programs that XLA takes seconds to compile, of so many equations.
_LARGE = 1500
#: So much more of what segments hold, or of all that is held.
_OF_SEGMENTS, _OF_ALL = 0.15, 0.04


@dataclass(frozen=True, slots=True)
class Cuts:
    """How a program is cut.

    Attributes:
        places: indices of equations before which a segment begins, the first one left out.
        kept: the index from which on everything is kept: the backward pass begins there at once.
    """

    places: tuple[int, ...]
    kept: int


def ways_to_cut(found: Profile, apart: Collection[int] = ()) -> Iterator[Cuts]:
    """Ways to cut a program whose forward and backward pass are one, the most promising first, each when asked for.

    The profile takes all that adjoints read to be there from the beginning of a stage. XLA may come to it later, when
    what the adjoints before it work with is gone: then segments are as large as what they write to compute it again,
    and the last one is better computed again as well.
    """
    first = choose_cuts(found, apart, keeps_last=True)
    yield first
    late = replace(found, adjoint=np.zeros_like(found.adjoint), recomputed=found.computed)
    alike = choose_cuts(late, apart, keeps_last=True)
    others = (alike, choose_cuts(late, apart), _finer(late, apart), _cut_behind_largest(found, alike))
    yield from (cuts for cuts in dict.fromkeys(others) if cuts != first)


def _cut_behind_largest(found: Profile, cuts: Cuts) -> Cuts:
    """The same, and one more cut behind the equation whose adjoint takes most, where that is in the last segment.

    Between a head and its loss: the cotangent of the logits, which several products read, then is written once, and
    what the loss makes of the logits has gone before these products run.
    """
    count, most = len(found.equations), int(found.adjoint.argmax())
    behind = next((low for low in _local_minima(_live_bytes(found)) if low > most), most + 1)
    is_outside = behind == count or most < max(cuts.places, default=0)
    if is_outside or found.adjoint[most] < LEAST_GAIN:
        return cuts
    return Cuts((*cuts.places, behind), count)


def _finer(found: Profile, apart: Collection[int]) -> Cuts:
    """Cuts for which what is held to the end and what the largest stage takes are least together."""
    forced, live = _forced(found, apart), _live_bytes(found)
    problem = problem_at(found, _free_places(_local_minima(live), live, forced), forced)
    cuts = _least_together(problem) or problem.forced
    return Cuts(tuple([problem.places[index] for index in _sorted(*cuts, *problem.forced)]), len(found.equations))


def _forced(found: Profile, apart: Collection[int]) -> frozenset[int]:
    """Where a program must be cut around equations that are segments of their own."""
    count = len(found.equations)
    return frozenset(place for index in apart for place in (index, index + 1) if 0 < place < count)


def _free_places(minima: Sequence[int], live: Bytes, forced: Collection[int] = ()) -> list[int]:
    """Where a program may be cut, and both its ends."""
    return _sorted(0, *_thinned(minima, live), *forced, len(live))


def choose_cuts(found: Profile, apart: Collection[int] = (), *, keeps_last: bool = False) -> Cuts:
    """Where to cut a program.

    Args:
        found: its profile.
        apart: indices of equations that are segments of their own.
        keeps_last: whether the forward and the backward pass are one program: nothing is between the last segments and
            their adjoints, which need not compute anything again.
    """
    count, forced = len(found.equations), _forced(found, apart)
    live = _live_bytes(found)
    minima = _local_minima(live)
    free = problem_at(found, _free_places(minima, live, forced), forced, keeps_last=keeps_last)
    only = problem_at(found, _sorted(0, *forced, count), forced, keeps_last=keeps_last)
    least = least_bound(free)
    whole = least_bound(only) if forced else only.whole
    if not _is_worth_it(least, whole):
        return _with_kept(only, whole, keeps_last)
    regular = _regular(found, minima, live, forced, keeps_last=keeps_last)
    if regular is not None:
        bound = least_bound(regular)
        more = max(_OF_SEGMENTS * least, _OF_ALL * (float(found.saved.sum()) + least)) if count >= _LARGE else 0.0
        if bound <= least + more:
            return _with_kept(regular, bound, keeps_last)
    return _with_kept(free, least, keeps_last)


def choose_cuts_of_step(found: Profile, steps: int) -> tuple[int, ...]:
    """The same for the body of a loop, all of whose steps save what crosses.

    The backward pass is in one step at a time, and holds what all steps before it have saved.
    """
    live = _live_bytes(found)
    problem = problem_at(found, _free_places(_local_minima(live), live))
    if len(problem.places) < 3:
        return ()
    cuts = _least_together(problem, steps=steps, worth=_WORTH * problem.whole)
    return tuple([problem.places[index] for index in cuts])


def _least_together(problem: Problem, *, steps: int = 1, worth: float = 0.0) -> Sequence[int]:
    """The cuts for which what crosses and the largest stage are least together; none where that is not worth it.

    `steps` and `worth` are those of `cheapest`.
    """
    found = cheapest_together(problem, steps=steps, worth=worth)
    return found[0] if found is not None and _is_worth_it(found[1], problem.whole) else ()


def _sorted(*places: int) -> list[int]:
    return sorted(set(places))


def _is_worth_it(least: float, whole: float) -> bool:
    return least <= min((1 - _GAIN) * whole, whole - LEAST_GAIN)


def _with_kept(problem: Problem, least: float, keeps_last: bool) -> Cuts:
    """The fewest places to cut at that need hardly more than the least memory, and from where on all is kept.

    Where the last segment is what takes the memory, the others are cut as if they did: XLA may do more of what a stage
    computes again at once than the profile knows.
    """
    last = least * (1 + _ALIKE)
    of_others = least_bound(problem, last) if keeps_last else least
    if not keeps_last:
        last = least * (1 + _WORTH)
    worth = _WORTH * of_others
    relaxed = of_others * (1 + _WORTH) + worth * len(problem.places) ** 0.5
    chosen = cheapest(problem, relaxed, last=max(last, relaxed), worth=worth)
    chosen = chosen or cheapest(problem, of_others, last=max(last, of_others))
    cuts = [] if chosen is None else chosen[0]
    kept = len(problem.places) - 1
    if keeps_last and cuts:
        held = np.cumsum([problem.crossing[a, b] for a, b in itertools.pairwise([0, *cuts])])
        most = max(last, float(held[-1] + problem.kept[cuts[-1]]))
        kept = next(start for start, one in zip(cuts, held + problem.kept[cuts], strict=True) if one <= most)
    return Cuts(tuple([problem.places[index] for index in cuts]), problem.places[kept])


def _regular(
    found: Profile, minima: Sequence[int], live: Bytes, forced: frozenset[int], *, keeps_last: bool
) -> Problem | None:
    """The problem whose layers are all cut alike; None for a program that does not repeat itself."""
    count = len(found.equations)
    repetitions: list[Repetition] = []
    cuts: list[int] = []
    for begin, end in itertools.pairwise(_sorted(0, *forced, count)):
        inside, chosen = regular_cuts(found, minima, live[begin:], begin, end)
        repetitions.extend(inside)
        cuts.extend(chosen)
    if not cuts:
        return None
    outside = [low for low in minima if not any(run.begin <= low <= run.end for run in repetitions)]
    places = _sorted(0, *cuts, *_thinned(outside, live), *forced, count)
    return problem_at(found, places, forced.union(cuts), keeps_last=keeps_last)


def _live_bytes(found: Profile) -> Bytes:
    """For each index of an equation, the bytes that cross a cut before it."""
    count = len(found.equations)
    change = np.zeros(count + 1)
    for index, eqn in enumerate(found.equations):
        for value in eqn.results:
            last = found.last_use.get(value, -1)
            if value in found.crossing and last > index:
                change[index + 1] += found.crossing[value]
                change[last + 1] -= found.crossing[value]
    return np.cumsum(change)[:-1]


def _local_minima(live: Bytes) -> list[int]:
    """Where fewer bytes cross than on either side."""
    return [
        index
        for index in range(1, len(live))
        if live[index] < live[index - 1] or (live[index] == live[index - 1] and index + 1 < len(live))
        if index + 1 == len(live) or live[index] <= live[index + 1]
    ]


def _thinned(minima: Sequence[int], live: Bytes) -> list[int]:
    """Of too many places the one where least crosses in each stretch."""
    if len(minima) <= _CANDIDATES:
        return list(minima)
    edges = np.linspace(0, len(minima), _CANDIDATES + 1).astype(int)
    return [min(minima[a:b], key=lambda low: float(live[low])) for a, b in itertools.pairwise(edges) if b > a]
