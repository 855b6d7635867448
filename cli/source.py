"""The user's source lines, as errors show them: the line and a caret under the column."""

from __future__ import annotations

import linecache
from dataclasses import dataclass

from rich.cells import cell_len

from rematc.ir.locations import Location, relative

WIDEST = 160  # characters of a source line that are shown


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A place in the user's source.

    Attributes:
        place: `FILE:LINE:COLUMN`, the file relative to the working directory where it lies below it.
        lines: the source line and the caret; () where the source cannot be read.
    """

    place: str
    lines: tuple[str, ...]


def excerpt(loc: Location) -> Excerpt:
    """The line that a location names. Its column counts bytes in UTF-8 from 1, as Python's own positions do."""
    line = _source_line(loc)
    before = line.encode()[: max(0, loc.column - 1)].decode(errors="ignore")
    return _excerpt(loc, line, len(before) + 1 if loc.column and line else loc.column)


def excerpt_at_character(loc: Location) -> Excerpt:
    """As `excerpt`, for a column that counts characters from 1, as in a SyntaxError."""
    return _excerpt(loc, _source_line(loc), loc.column)


def _source_line(loc: Location) -> str:
    # Python 3.13 keeps the text of `python -c` as the file "<string>": one name for all code made from strings.
    if loc.file.startswith("<"):
        return ""
    linecache.checkcache(loc.file)
    return linecache.getline(loc.file, loc.line).rstrip("\n\r\f")


def _excerpt(loc: Location, line: str, character: int) -> Excerpt:
    place = str(Location(relative(loc.file), loc.line, character))
    if not line.strip():
        return Excerpt(place, ())
    gutter = f"{loc.line:5d} | "
    line, character = _cut(line, character)
    shown = f"{gutter}{line}"
    if not 0 < character <= len(line) + 1:
        return Excerpt(place, (shown,))
    # Tabs stay tabs and wide characters get two blanks, so that the caret stands under its column on a terminal.
    padding = "".join(char if char == "\t" else " " * cell_len(char) for char in line[: character - 1])
    return Excerpt(place, (shown, f"{' ' * (len(gutter) - 2)}| {padding}^"))


def _cut(line: str, character: int) -> tuple[str, int]:
    """A long line around a character, and where the character stands in that."""
    if len(line) <= WIDEST:
        return line, character
    start = min(max(0, character - WIDEST // 2), len(line) - WIDEST)
    head, tail = "... " if start else "", " ..." if start + WIDEST < len(line) else ""
    moved = character - start + len(head) if 0 < character <= len(line) + 1 else character
    return f"{head}{line[start : start + WIDEST]}{tail}", moved
