"""Which tests run where not all of them are asked for: every op and every feature's file, once.

- Of the tests of a file, one in eight, from the first one on.
- Of a test with many cases, the first ones in which each word stands: each op, each element type, each policy. A word
  is a name in what pytest shows of the case. Of cases without names, only numbers, one in eight.
- All of a test, or a file, that is marked `each_case`.
- None of what is marked `slow`.

So it holds for tests that are not written yet, and the choice is the same each time.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

#: Of the tests of a file, one in so many runs.
ONE_TEST_IN = 8
#: Tests of so few cases run with all of them.
FEW = 3
#: Of cases without a word, one in so many runs.
ONE_CASE_IN = 8
_WORD = re.compile(r"[A-Za-z_][\w.]*")


@dataclass(frozen=True, slots=True)
class Case:
    """A case of a test.

    Attributes:
        file: where the test stands.
        test: its name.
        id: what tells its cases apart; None for a test of one case.
        is_wanted: whether it runs in any case.
        is_slow: whether it does not, unless it is wanted.
    """

    file: str
    test: str
    id: str | None = None
    is_wanted: bool = False
    is_slow: bool = False


def chosen(cases: Iterable[Case]) -> list[bool]:
    """For each case, in the order of the files, whether it is one of those that run by default."""
    given: Sequence[Case] = list(cases)
    tests: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for case in given:
        if not (case.is_wanted or case.is_slow):
            tests[case.file].setdefault(case.test, len(tests[case.file]))
    count = Counter((case.file, case.test) for case in given if not case.is_slow)
    of_each: defaultdict[tuple[str, str], _Cases] = defaultdict(_Cases)
    return [
        case.is_wanted
        or (
            not case.is_slow
            and tests[case.file][case.test] % ONE_TEST_IN == 0
            and (
                case.id is None or count[case.file, case.test] <= FEW or of_each[case.file, case.test].is_news(case.id)
            )
        )
        for case in given
    ]


class _Cases:
    """What was seen of the cases of one test."""

    def __init__(self) -> None:
        self._words: set[str] = set()
        self._wordless = 0

    def is_news(self, id: str) -> bool:
        """Whether a case has a word that none before it has."""
        words = set(_WORD.findall(id))
        if not words:
            self._wordless += 1
            return self._wordless % ONE_CASE_IN == 1
        is_news = not words <= self._words
        self._words |= words
        return is_news
