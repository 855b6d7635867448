"""Tables: what a report is made of, and their plain text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

GAP = "  "


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a title.

    Attributes:
        title: what the rows are.
        columns: a heading for each column; no headings are shown if all are empty.
        right: whether each column is flush right.
        rows: the cells.
        note: a line below, or several; "" for none.
    """

    title: str
    columns: tuple[str, ...]
    right: tuple[bool, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def legible(text: str) -> str:
    """The text on one line, without what would change the terminal: a name of the user's may have anything in it."""
    return text if text.isprintable() else "".join([c if c.isprintable() else repr(c)[1:-1] for c in text])


def plain_text(tables: Sequence[Table]) -> str:
    """The tables without boxes, colour or wrapping: a row is a line, its columns two blanks apart or more."""
    return "\n\n".join("\n".join(_plain_lines(table)) for table in tables) + "\n"


def _plain_lines(table: Table) -> list[str]:
    rows = [*([table.columns] if any(table.columns) else []), *[tuple(map(legible, row)) for row in table.rows]]
    widths = [max((len(row[index]) for row in rows), default=0) for index in range(len(table.columns))]
    lines = [legible(table.title)] if table.title else []
    for row in rows:
        cells = [
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(row, widths, table.right, strict=True)
        ]
        lines.append(GAP.join(cells).rstrip())
    if table.note:
        lines += map(legible, table.note.split("\n"))
    return lines
