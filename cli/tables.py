"""Tables: what a report is made of, as plain text and for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.table import Table as RichTable
from rich.text import Text

GAP = "  "


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a title.

    Attributes:
        title: what the rows are.
        columns: a heading for each column; no headings are shown if all are empty.
        right: whether each column is flush right.
        rows: the cells.
        note: a line below, "" for none.
    """

    title: str
    columns: tuple[str, ...]
    right: tuple[bool, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def plain_text(tables: Sequence[Table]) -> str:
    """The tables without boxes, colour or wrapping: a row is a line, its columns two blanks apart or more."""
    return "\n\n".join("\n".join(_plain_lines(table)) for table in tables) + "\n"


def _plain_lines(table: Table) -> list[str]:
    rows = [*([table.columns] if any(table.columns) else []), *table.rows]
    widths = [max((len(row[index]) for row in rows), default=0) for index in range(len(table.columns))]
    lines = [table.title] if table.title else []
    for row in rows:
        cells = [
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(row, widths, table.right, strict=True)
        ]
        lines.append(GAP.join(cells).rstrip())
    if table.note:
        lines.append(table.note)
    return lines


def print_tables(console: Console, tables: Sequence[Table]) -> None:
    """The tables on a terminal, as wide as it is; what does not fit continues on the next line of its column."""
    for index, table in enumerate(tables):
        if index:
            console.print()
        console.print(_rich_table(table))


def _rich_table(table: Table) -> Group:
    headed = any(table.columns)
    grid = RichTable(
        box=SIMPLE_HEAD if headed else None, show_header=headed, pad_edge=False, padding=(0, 2, 0, 0), show_edge=False
    )
    for index, (heading, is_right) in enumerate(zip(table.columns, table.right, strict=True)):
        is_last = index == len(table.columns) - 1
        grid.add_column(
            heading,
            justify="right" if is_right else "left",
            header_style="dim",
            no_wrap=not is_last,
            overflow="fold",
            style="cyan" if index == 0 else "",
        )
    for row in table.rows:
        grid.add_row(*(Text(cell) for cell in row))
    parts = [Text(table.title, "bold")] if table.title else []
    note = [Text(table.note, "dim")] if table.note else []
    return Group(*parts, *([grid] if table.rows else []), *note)
