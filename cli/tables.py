"""Tables on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.table import Table as RichTable
from rich.text import Text

from rematc.compiler.reports.tables import Table


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
