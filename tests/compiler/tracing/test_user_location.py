"""The user's line: the innermost frame outside rematc and the libraries it calls through."""

from __future__ import annotations

import sys
from typing import Any

from rematc.compiler.tracing.user_location import user_location


def _here() -> Any:
    return user_location()


def test_the_calling_line_column_and_function() -> None:
    found = _here()
    assert (found.file, found.column, found.function) == (__file__, 12, "_here")
    assert found.line == _here.__code__.co_firstlineno + 1


def test_frames_of_libraries_are_passed_over() -> None:
    scope: dict[str, Any] = {"__name__": "numpy.something", "user_location": user_location}
    exec(compile("def call():\n    return user_location()\n", "<string>", "exec"), scope)
    line = sys._getframe().f_lineno + 1
    found = scope["call"]()
    assert (found.file, found.line) == (__file__, line)


def test_code_from_a_string_is_judged_by_its_module() -> None:
    scope: dict[str, Any] = {"__name__": "__main__", "user_location": user_location}
    exec(compile("def call():\n    return user_location()\n", "<string>", "exec"), scope)
    found = scope["call"]()
    assert (found.file, found.line, found.column) == ("<string>", 2, 12)


def test_two_places_on_one_line_differ_in_their_column() -> None:
    second = [user_location(), user_location()]
    assert second[0] is not None and second[1] is not None
    assert second[0].line == second[1].line
    assert second[0].column < second[1].column
