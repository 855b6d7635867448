"""The report on one screen: what is alike is one row, and all of it fits 40 lines of 80 columns."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import rematc
from rematc.cli.report import terminal_tables
from rematc.cli.tables import table_lines
from rematc.compiler.reports.overview import COLUMNS, overview_tables
from rematc.compiler.reports.report import Report
from rematc.compiler.reports.sparkline import sparkline
from rematc.ir.tables import plain_text

LAYERS = 6
ARGUMENTS = np.full((LAYERS, 3, 64, 64), 1e-2, np.float32), np.ones((256, 64), np.float32)


def layer(weights: Any, x: Any) -> Any:
    gate = x @ weights[0]
    hidden = np.tanh(x @ weights[1])
    mixed = gate * hidden / (1 + np.exp(-gate))
    normal = mixed - np.mean(mixed, axis=-1, keepdims=True)
    return x + normal @ weights[2]


def loss(layers: Any, x: Any) -> Any:
    for weights in layers:
        x = layer(weights, x)
    return np.mean(x * x)


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    baseline = rematc.compile(rematc.value_and_grad(loss), *ARGUMENTS)
    dots = rematc.compile(rematc.value_and_grad(loss, policy="dots"), *ARGUMENTS)
    within = rematc.compile(rematc.value_and_grad(loss), *ARGUMENTS, budget="60%")
    return {"none": baseline.report(), "dots": dots.report(baseline), "budget": within.report(baseline)}


@pytest.mark.slow
@pytest.mark.parametrize("which", ["none", "dots", "budget"])
def test_it_fits_a_screen(reports: dict[str, Report], which: str) -> None:
    tables = terminal_tables("model.py: gradient", which, reports[which], None, is_complete=False, has_blocks=True)
    lines = [line.text for table in tables for line in [*table_lines(table, 80)]]
    most = 40 if which != "budget" else 50  # with the figures of the plan
    assert len(lines) + len(tables) - 1 < most
    assert max(map(len, lines)) <= 80


def test_what_is_alike_is_one_row_and_nothing_is_lost(reports: dict[str, Report]) -> None:
    report = reports["dots"]
    text = plain_text(overview_tables(report, "dots", has_blocks=True))
    assert f"{LAYERS} x 64.0 KiB" in text
    kept = [one for one in report.decisions if one.is_kept]
    rest = sum(one.count for one in kept[4:])
    assert f"and {rest} more" in text and "-v shows all" in text
    assert f"kept for the backward pass: {sum(one.count for one in kept)} values" in text
    assert "test_overview.py:" in text and "(layer)" in text
    assert "check: " in text and "memory: " in text


def test_the_picture_of_memory_is_as_long_as_its_columns(reports: dict[str, Report]) -> None:
    for has_blocks, top in ((True, "█"), (False, "#")):
        tables = overview_tables(reports["dots"], "dots", has_blocks=has_blocks)
        (drawn,) = [table for table in tables if table.title.startswith("planned temporary memory")]
        (heights,), (below,) = drawn.rows
        assert len(heights) == COLUMNS and top in heights
        assert below.startswith("forward") and below.index("|") == len(below) - len("|backward")
        assert heights.isascii() is not has_blocks


def test_verbose_has_everything_and_the_memory(reports: dict[str, Report]) -> None:
    report = reports["dots"]
    tables = terminal_tables("m", "dots", report, None, is_complete=True, has_blocks=True)
    text = plain_text(tables)
    products = [row for row in report.derivatives[0].residuals if "dot_general" in row.provenance]
    shown = [line for line in text.splitlines() if "output of dot_general from" in line]
    counts = [int(found[1]) if (found := re.search(r" (\d+) x ", line)) else 1 for line in shown]
    assert sum(counts) == len(products) > len(shown), "what is alike is there once"
    assert "more" not in text
    assert "at the peak, step" in text


def test_sparkline() -> None:
    assert sparkline([0, 1, 4, 8]) == "▁▂▅█"
    assert sparkline([0, 1, 4, 8], has_blocks=False) == "_.+#"
    assert sparkline([]) == "" and sparkline([0, 0]) == "▁▁"
