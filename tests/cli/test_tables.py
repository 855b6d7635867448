"""Tables on terminals of every width: nothing is lost, and no figure is cut."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from rematc.cli.tables import folded, print_tables, table_lines
from rematc.ir.tables import Table, plain_text

COMPARISON = Table(
    "model.py: gradient of loss with respect to params",
    ("policy", "saved", "temporary memory", "predicted", "FLOPs", "run time", "check"),
    (False, True, True, True, True, True, False),
    (
        ("none", "192.0 KiB", "768.0 KiB", "744.0 KiB (0.97x)", "25.2 MFLOP", "412 us", "no product recomputed"),
        ("dots+names=attention", "1023.9 MiB", "1023.9 MiB", "1023.9 MiB (12.34x)", "999 GFLOP", "99.9 ms", "kept"),
        ("offload-dots-no-batch", "-", "-", "-", "-", "-", "-"),
    ),
    "memory and FLOPs as XLA on cpu reports them; run time: median of 30, in turns",
)
RESIDUALS = Table(
    "saved for the backward pass: 2 values, 48.0 KiB",
    ("", "", ""),
    (False, True, False),
    (
        ("f32[64,64]", "16.0 KiB", "output of dot_general from a/long/path/to/the/users/model.py:812 (attention)"),
        ("f32[128,64]", "32.0 KiB", "named 'hidden' from model.py:8 (layer), 12 steps"),
    ),
)
FIGURE = re.compile(r"\d[\d.]*(?: (?:[KMG]i)?B| [kMG]?FLOP| [um]?s|x)(?!\w)")
WIDTHS = (10, 20, 40, 60, 79, 80, 81, 100, 120, 200)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("table", [COMPARISON, RESIDUALS])
def test_no_figure_is_cut_and_nothing_is_lost(table: Table, width: int) -> None:
    lines = [line.text for line in table_lines(table, width)]
    shown = [figure for line in lines for figure in FIGURE.findall(line)]
    assert sorted(shown) == sorted(FIGURE.findall(plain_text([table])))
    words = [word for cells in (table.columns, *table.rows) for cell in cells for word in cell.split()]
    found = " ".join(lines).split()
    assert all(found.count(word) >= words.count(word) for word in words if word not in table.columns)
    longest = max(len(word) for word in (*found, "1023.9 MiB", "median of 30,"))
    assert max(map(len, lines)) <= max(width, longest + 4), "but for words that are wider than the terminal"


@pytest.mark.parametrize(("width", "is_table"), [(40, False), (60, False), (100, True), (120, True), (200, True)])
def test_rows_become_records_where_columns_do_not_fit(width: int, is_table: bool) -> None:
    lines = [line.text for line in table_lines(COMPARISON, width)]
    assert any(line.startswith("policy ") for line in lines) == is_table
    assert ("  saved  192.0 KiB" in lines) == (not is_table)
    assert all(len(line) <= width for line in lines)


def test_eighty_columns_have_a_table_of_short_policies() -> None:
    few = Table(COMPARISON.title, COMPARISON.columns, COMPARISON.right, COMPARISON.rows[:1], COMPARISON.note)
    assert [line.text for line in table_lines(few, 80)][1:] == [
        "                   temporary                                    run",
        "policy      saved     memory          predicted       FLOPs    time  check",
        "───────────────────────────────────────────────────────────────────────────────",
        "none    192.0 KiB  768.0 KiB  744.0 KiB (0.97x)  25.2 MFLOP  412 us  no product",
        "                                                                     recomputed",
        "memory and FLOPs as XLA on cpu reports them; run time: median of 30, in turns",
    ]


def test_a_console_prints_the_lines_with_their_colours() -> None:
    stream = io.StringIO()
    print_tables(Console(file=stream, width=80, force_terminal=True, color_system="standard"), [RESIDUALS, RESIDUALS])
    assert "\x1b[36mf32[64,64]" in stream.getvalue()
    plain = re.sub(r"\x1b\[[\d;]*m", "", stream.getvalue()).splitlines()
    once = [line.text for line in table_lines(RESIDUALS, 80)]
    assert [line.rstrip() for line in plain] == [*once, "", *once]


def test_numbers_stay_with_their_units() -> None:
    assert folded("saved 3.0 MiB of 12 FLOP", 9) == ["saved", "3.0 MiB", "of", "12 FLOP"]
    assert folded("", 9) == []


def test_names_do_not_reach_the_terminal_as_they_are() -> None:
    table = Table("a\nb", ("", ""), (False, False), (("\x1b[31mred", "x\ty"),), "é")
    expected = ["a\\nb", "\\x1b[31mred  x\\ty", "é"]
    assert plain_text([table]).splitlines() == expected == [line.text for line in table_lines(table, 80)]
