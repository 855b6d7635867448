"""Cuts at the same places of each layer, where a program repeats itself.

Before:  layer layer layer layer layer layer loss      (each of some equations, alike but for parameters)
After:   layer | layer | layer | layer | layer | layer loss

The best cuts differ from layer to layer: the first segments, which the backward pass comes to last, may be larger, for
little is held any more. But segments that are alike make a program that compiles fast: XLA emits one kernel for what
they share, and where segments are functions there is one for all of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from rematc.passes.staging.profile import Bytes, Profile
from rematc.passes.staging.repetition import Repetition, find_repetitions

#: A repetition has to be so much of a program.
_LARGE = 0.25
#: At how many places of a layer cuts are tried, those first where least crosses; and after how many layers.
_PLACES = 4
_EVERY = (1, 2, 3, 4, 6, 8, 12, 16)


def regular_cuts(
    found: Profile, minima: Sequence[int], live: Bytes, begin: int, end: int
) -> tuple[list[Repetition], list[int]]:
    """Where `equations[begin:end]` repeat themselves, and the regular cuts of these that need least memory.

    Args:
        found: the profile of the program.
        minima: indices of equations before which fewer bytes cross than on either side.
        live: for each equation from `begin` on the bytes that cross a cut before it.
        begin: index of the first equation.
        end: index after the last one.
    """
    repetitions: list[Repetition] = []
    cuts: list[int] = []
    for repetition in find_repetitions(found.equations, begin, end):
        if repetition.end - repetition.begin >= _LARGE * (end - begin):
            best = min(_ways(found, repetition, minima, live[repetition.begin - begin :]), default=None)
            if best is not None:
                repetitions.append(repetition)
                cuts.extend(best[-1])
    return repetitions, cuts


def _ways(
    found: Profile, repetition: Repetition, minima: Sequence[int], live: Bytes
) -> Iterator[tuple[float, int, list[int]]]:
    """Ways to cut: the bytes that the backward pass then holds at once, how many cuts there are, and the cuts."""
    period = repetition.period
    of_layer = [
        low - repetition.begin for low in minima if repetition.begin <= low - period < repetition.begin + period
    ]
    of_layer = sorted(of_layer, key=lambda place: (float(live[place]), place))[:_PLACES]
    held = _Held(found, repetition)
    for places in itertools.chain(itertools.combinations(of_layer, 1), itertools.combinations(of_layer, 2)):
        for every in _EVERY if len(places) == 1 else (1,):
            cuts = sorted(
                repetition.begin + place % period + layer * period
                for place in places
                for layer in range(0, repetition.count, every)
            )
            cuts = [cut for cut in cuts if repetition.begin < cut < repetition.end]
            if len(cuts) > 1:
                yield held.most(cuts), len(cuts), cuts


class _Held:
    """What the backward pass of a repetition holds at once, for cuts of it."""

    def __init__(self, found: Profile, repetition: Repetition) -> None:
        self._edges = repetition.begin, repetition.end
        rows = [
            (index, found.last_use[value], found.crossing[value])
            for index in range(*self._edges)
            for value in found.equations[index].results
            if found.crossing.get(value) and found.last_use.get(value, -1) > index
        ]
        self._index, self._last, self._size = np.asarray(rows, np.int64).reshape(-1, 3).T
        again = np.cumsum(found.recomputed[repetition.begin : repetition.end])
        self._before = np.concatenate([[0.0], again])
        of_adjoints = slice(repetition.begin, repetition.end)
        self._at = np.cumsum(found.saved)[of_adjoints] + again + found.adjoint[of_adjoints]

    def most(self, cuts: Sequence[int]) -> float:
        begin, end = self._edges
        edges = np.asarray([begin, *cuts, end])
        segment = np.searchsorted(edges, self._index, side="right") - 1
        crosses = self._last >= edges[segment + 1]
        saved = np.bincount(segment, self._size * crosses, len(edges) - 1)
        before = np.cumsum(saved) - saved
        starts = edges[:-1] - begin
        return float(np.max(before + np.maximum.reduceat(self._at, starts) - self._before[starts]))
