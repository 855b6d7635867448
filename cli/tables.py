"""Tables on a terminal of any width: what does not fit beside the rest goes below, and no figure is cut."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from rematc.ir.tables import GAP, Table, legible

#: A number and its unit are one word, and so is what stands in brackets.
_GLUED = re.compile(r"(?<=\d) (?=(?:[KMGT]i)?B\b|[kMGTP]?FLOP\b|(?:[um]?s)\b)|(?<=\d%) |(?<=median) |(?<=median of) ")
_GLUE = "\N{NO-BREAK SPACE}"
_RULE = "─"
#: A cell of more lines than these is hard to follow: then rows are records.
_MOST_LINES = 3
_INDENT = "  "


@dataclass(frozen=True, slots=True)
class Line:
    """A line on the terminal: pieces of text, each with its style."""

    pieces: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        """The line without styles."""
        return "".join(text for text, _ in self.pieces).rstrip()


def has_blocks(console: Console) -> bool:
    """Whether the terminal's characters are more than letters: lines, and blocks of many heights."""
    return console.encoding.startswith("utf")


def print_tables(console: Console, tables: Sequence[Table]) -> None:
    """The tables on a terminal, as wide as it is; characters that its encoding lacks come out escaped."""
    is_plain = not has_blocks(console)
    for index, table in enumerate(tables):
        if index:
            console.print()
        for line in table_lines(table, console.width):
            text = Text()
            for piece, style in line.pieces:
                shown = _spelled(piece, console.encoding) if is_plain else piece
                text.append(shown, style)
            text.rstrip()
            console.print(text, soft_wrap=True)  # the terminal folds a word that is wider than itself


def _spelled(text: str, encoding: str) -> str:
    return text.replace(_RULE, "-").encode(encoding, "backslashreplace").decode(encoding)


def table_lines(table: Table, width: int) -> Iterator[Line]:
    """The lines of a table on a terminal of a width: columns where they fit, folded at blanks; else records."""
    for line in folded(legible(table.title), width):
        yield Line(((line, "bold"),))
    rows = [tuple([legible(cell) for cell in row]) for row in table.rows]
    if rows:
        widths = _widths(table.columns, rows, width)
        yield from _records(table.columns, rows, width) if widths is None else _columns(table, rows, widths)
    for note in table.note.split("\n"):
        for line in folded(legible(note), width):
            yield Line(((line, "dim"),))


def folded(text: str, width: int) -> list[str]:
    """The text in lines of a width, broken at blanks; a word that is wider is a line of its own. [] for no text."""
    lines: list[str] = []
    for word in _GLUED.sub(_GLUE, text).split(" "):
        if lines and cell_len(lines[-1]) + 1 + cell_len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return [line.replace(_GLUE, " ") for line in lines] if text else []


def _extent(text: str, width: int) -> int:
    """How wide the text is, folded at this width."""
    return max(map(cell_len, folded(text, width)), default=0)


# -- columns -----------------------------------------------------------------------------------------------------------


def _widths(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[int] | None:
    """How wide each column is to be; None where they do not fit beside each other.

    Headings are folded first, then the cells of the last column, which is text, then those of the widest.
    """
    cells = [[row[index] for row in rows] for index in range(len(columns))]
    widths = [max(map(cell_len, (*column, heading))) for column, heading in zip(cells, columns, strict=True)]
    room = width - len(GAP) * (len(columns) - 1)
    widest_cells = [max(map(cell_len, column)) for column in cells]
    for index in sorted(range(len(columns)), key=lambda index: widest_cells[index] - widths[index]):
        if sum(widths) > room and widths[index] > widest_cells[index]:
            widths[index] = max(widest_cells[index], _extent(columns[index], widest_cells[index]))
    order = [len(columns) - 1, *sorted(range(len(columns) - 1), key=lambda index: -widths[index])]
    for index in order:
        column = (*cells[index], columns[index])
        while sum(widths) > room:
            narrower = max(_extent(text, widths[index] - 1) for text in column)
            if narrower >= widths[index] or any(len(folded(text, narrower)) > _MOST_LINES for text in column):
                break
            widths[index] = narrower
    return widths if sum(widths) <= room else None


def _columns(table: Table, rows: Sequence[Sequence[str]], widths: Sequence[int]) -> Iterator[Line]:
    if any(table.columns):
        yield from _row(table.columns, widths, table.right, ["dim"] * len(widths), is_heading=True)
        yield Line(((_RULE * (sum(widths) + len(GAP) * (len(widths) - 1)), "dim"),))
    styles = ["cyan", *[""] * (len(widths) - 1)]
    for row in rows:
        yield from _row(row, widths, table.right, styles)


def _row(
    cells: Sequence[str],
    widths: Sequence[int],
    right: Sequence[bool],
    styles: Sequence[str],
    *,
    is_heading: bool = False,
) -> Iterator[Line]:
    parts = [folded(cell, width) for cell, width in zip(cells, widths, strict=True)]
    height = max(map(len, parts))
    if is_heading:
        parts = [[*[""] * (height - len(lines)), *lines] for lines in parts]
    for at in range(height):
        pieces: list[tuple[str, str]] = []
        for lines, width, is_right, style in zip(parts, widths, right, styles, strict=True):
            text = lines[at] if at < len(lines) else ""
            padding = " " * (width - cell_len(text))
            pieces += [(padding + text if is_right else text + padding, style), (GAP, "")]
        yield Line(tuple(pieces[:-1]))


# -- records -----------------------------------------------------------------------------------------------------------


def _records(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[Line]:
    """Each row as a record: its first cell, then a line for each other one, behind its heading if it has one."""
    for first, *others in rows:
        for line in folded(first, width):
            yield Line(((line, "cyan"),))
        for heading, cell in zip(columns[1:], others, strict=True):
            yield from _field(heading, cell, width)


def _field(heading: str, cell: str, width: int) -> Iterator[Line]:
    if heading and cell_len(_INDENT + heading + GAP + cell) <= width:
        yield Line(((_INDENT + heading + GAP, "dim"), (cell, "")))
        return
    inner = _INDENT
    if heading:
        yield Line(((_INDENT + heading, "dim"),))
        inner += _INDENT
    for line in folded(cell, width - len(inner)):
        yield Line(((inner + line, ""),))
