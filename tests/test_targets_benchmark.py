"""What benchmarks/targets.py makes of figures: budgets, cycles of loops, rows that are there, and its document."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from benchmarks import targets
from benchmarks.language import Step, estimated_cycles
from benchmarks.targets import BEGIN, END, Row, budgets, read, tables, write
from rematc.lowering.hlo.parser import parse_hlo

KERNEL = '{"window_config":{"estimated_cycles":"100"}}'
TRIPS = '{"known_trip_count":{"n":"7"}}'
LOOP = f"""HloModule loop

%fused (p: f32[8]) -> f32[8] {{
  %p = f32[8]{{0}} parameter(0)
  ROOT %negated = f32[8]{{0}} negate(%p)
}}

%body (state: (s32[], f32[8])) -> (s32[], f32[8]) {{
  %state = (s32[], f32[8]{{0}}) parameter(0)
  %index = s32[] get-tuple-element(%state), index=0
  %x = f32[8]{{0}} get-tuple-element(%state), index=1
  %y = f32[8]{{0}} fusion(%x), kind=kLoop, calls=%fused, backend_config={KERNEL}
  ROOT %next = (s32[], f32[8]{{0}}) tuple(%index, %y)
}}

%condition (state: (s32[], f32[8])) -> pred[] {{
  %state = (s32[], f32[8]{{0}}) parameter(0)
  ROOT %always = pred[] constant(true)
}}

ENTRY %main (x: f32[8]) -> f32[8] {{
  %x = f32[8]{{0}} parameter(0)
  %zero = s32[] constant(0)
  %before = f32[8]{{0}} fusion(%x), kind=kLoop, calls=%fused, backend_config={KERNEL}
  %start = (s32[], f32[8]{{0}}) tuple(%zero, %before)
  %loop = (s32[], f32[8]{{0}}) while(%start), condition=%condition, body=%body, backend_config={TRIPS}
  ROOT %result = f32[8]{{0}} get-tuple-element(%loop), index=1
}}
"""


def step(temporary: int, predicted: int | None = None, work: int = 1) -> Step:
    return Step(temporary, 0, 0.0, 0.0, predicted, work)


def test_cycles_of_a_loop_count_as_often_as_it_runs() -> None:
    assert estimated_cycles(parse_hlo(LOOP)) == 100 + 7 * 100


def test_budgets_lie_evenly_between_the_ends() -> None:
    rows = [Row("h100", "chain", policy, step(size), step(1)) for policy, size in (("nothing", 100), ("dots", 300))]
    assert [size for _, size, _ in budgets(rows, 3)] == [100, 200, 300]
    assert not list(budgets(rows[:1], 3))


def test_rows_are_read_as_they_were_written_but_failures(tmp_path: Path) -> None:
    row, failed = Row("h100", "chain", "dots", step(4), step(2, 2)), Row("h100", "chain", "auto", error="no")
    file = tmp_path / "rows.json"
    assert not read(file)
    file.write_text(json.dumps([dataclasses.asdict(one) for one in (row, failed)]))
    assert read(file) == {row.key: row}


def test_predictions_are_counted_by_how_close_they_are() -> None:
    rows = [
        Row("v5e", "chain", policy, step(100), step(100, size)) for policy, size in (("nothing", 114), ("dots", 120))
    ]
    text = tables(rows)
    assert "Predicted within 15 %: 1 of 2." in text
    assert "| cycles |" in text
    assert "chain" not in text.partition("Not run:")[2]


def test_the_text_is_put_between_the_marks(tmp_path: Path) -> None:
    file = tmp_path / "document.md"
    file.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write(file, "new\n")
    assert file.read_text() == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    file.write_text("nothing")
    with pytest.raises(ValueError, match="has no"):
        write(file, "new")


def test_models_have_shapes_of_arrays_only() -> None:
    params, x = targets.SIZED["chain"].shapes()
    assert x.shape == (16384, 512)
    assert len(params) == 12
