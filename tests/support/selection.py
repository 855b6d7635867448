"""Which cases of the tests run where not all of them are asked for.

A test that is run with many arguments runs with the first ones in which each word stands: each op, each element type,
each policy, each function, each document once. A word is a name in what pytest shows of the case. Cases that have no
names, only numbers, are one in eight. So it holds for tests that are not written yet, and the choice is the same each
time.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

#: Tests of so few cases run with all of them.
FEW = 3
#: Of cases without a word, one in so many runs.
ONE_IN = 8
_WORD = re.compile(r"[A-Za-z_][\w.]*")


def chosen(cases: Iterable[tuple[str, str | None]]) -> list[bool]:
    """For each case whether it is one of those that run by default.

    Args:
        cases: the test, and what tells its cases apart; None for a test of one case, or whose cases all run.
    """
    given: Sequence[tuple[str, str | None]] = list(cases)
    count = Counter(test for test, _ in given)
    seen: defaultdict[str, set[str]] = defaultdict(set)
    wordless: Counter[str] = Counter()
    found = []
    for test, case in given:
        if case is None or count[test] <= FEW:
            found.append(True)
            continue
        words = set(_WORD.findall(case))
        found.append(not words <= seen[test] if words else wordless[test] % ONE_IN == 0)
        wordless[test] += not words
        seen[test] |= words
    return found
