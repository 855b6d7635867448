"""Every program that was compiled wrongly once: its smallest form in tests/regressions, by the law that it broke.

// law: linearize                 a law of tests/support/fuzzing
// seed: 479                      of the arguments
// What was wrong.
graph @main(...) ...

Functions stand there in Python (tests/support/fuzzing/functions/judging.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fuzzing.finds import broken, read
from tests.support.fuzzing.functions.judging import judge_text

FOLDER = Path(__file__).parent / "regressions"
PROGRAMS = sorted(FOLDER.glob("*.ir"))
FUNCTIONS = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_the_program_obeys_the_law_now(path: Path) -> None:
    case, law = read(path.read_text(encoding="utf-8"))
    error = broken(case, law)
    if error is not None:
        raise error


@pytest.mark.filterwarnings("ignore:the policy")  # speaks of a name that no value has
@pytest.mark.parametrize("path", FUNCTIONS, ids=lambda path: path.stem)
def test_the_function_has_its_second_derivative_now(path: Path) -> None:
    judge_text(path.read_text(encoding="utf-8"))
