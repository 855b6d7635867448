"""Every program that was compiled wrongly once: its smallest form in tests/regressions, by the law that it broke.

// law: linearize                 a law of tests/support/fuzzing
// seed: 479                      of the arguments
// What was wrong.
graph @main(...) ...
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fuzzing.finds import broken, read

PROGRAMS = sorted((Path(__file__).parent / "regressions").glob("*.ir"))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_the_program_obeys_the_law_now(path: Path) -> None:
    case, law = read(path.read_text(encoding="utf-8"))
    error = broken(case, law)
    if error is not None:
        raise error
