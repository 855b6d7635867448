"""Analysis: where a program repeats itself, as a network does whose layers are alike.

Before:  %0 = dot_general %x, %w0   %1 = tanh %0   %2 = dot_general %1, %w1   %3 = tanh %2   ...   reduce_sum
After:   from the first equation on, 2 equations come 12 times

Equations are alike if their ops are of one kind and their operands and results have the same types: what layers differ
by is their parameters. Layers may hold repetitions of their own (heads, experts): of several periods that one counts
which covers most of the program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rematc.ir.core import Equation

#: Fewer times are no repetition.
_TIMES = 3
#: How many equations in a row have to be alike for their distance to be tried as a period.
_WINDOW = 6
#: How many distances are tried, those that are met most often.
_TRIED = 8


@dataclass(frozen=True, slots=True)
class Repetition:
    """Equations that come several times in a row.

    Attributes:
        begin: index of the first equation.
        period: how many equations come again.
        count: how often they come.
    """

    begin: int
    period: int
    count: int

    @property
    def end(self) -> int:
        """The index after the last equation that belongs to it."""
        return self.begin + self.period * self.count


def find_repetitions(equations: Sequence[Equation], begin: int, end: int) -> tuple[Repetition, ...]:
    """The repetitions in `equations[begin:end]`, in order; none overlaps with another."""
    kinds: dict[object, int] = {}
    row = np.asarray([kinds.setdefault(_kind(eqn), len(kinds)) for eqn in equations[begin:end]], np.int64)
    by_period = [(period, list(_runs(row, period))) for period in _distances(row)]
    by_period.sort(key=lambda found: (-sum(run.end - run.begin for run in found[1]), found[0]))
    taken: list[Repetition] = []
    for _, runs in by_period:
        taken.extend(run for run in runs if all(run.end <= one.begin or one.end <= run.begin for one in taken))
    taken.sort(key=lambda run: run.begin)
    return tuple([Repetition(begin + run.begin, run.period, run.count) for run in taken])


def _kind(eqn: Equation) -> object:
    return (type(eqn.op), eqn.operand_types, tuple([value.type for value in eqn.results]))


def _distances(row: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[int]:
    """How far from each other the same equations stand, the most frequent distances first."""
    last: dict[tuple[int, ...], int] = {}
    met: Counter[int] = Counter()
    numbers = row.tolist()
    for index in range(len(numbers) - _WINDOW + 1):
        window = tuple(numbers[index : index + _WINDOW])
        if window in last:
            met[index - last[window]] += 1
        last[window] = index
    return [distance for distance, _ in met.most_common(_TRIED)]


def _runs(row: np.ndarray[tuple[int], np.dtype[np.int64]], period: int) -> Iterator[Repetition]:
    same = np.concatenate([[False], row[:-period] == row[period:], [False]])
    (edges,) = np.nonzero(same[1:] != same[:-1])
    for start, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        count = (stop - start) // period + 1
        if count >= _TIMES:
            yield Repetition(start, period, count)
