"""`--compare`: one table over policies."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rematc.cli.measurement import MIN_RUNS, median_times
from tests.support.command import Command

SIN_CHAIN = Path(__file__).parents[2] / "examples" / "sin_chain.py"
ALL = ("--argnums", "0,1,2,3")


def test_one_row_a_policy(command: Command) -> None:
    result = command(SIN_CHAIN, *ALL, "--compare", "none,dots,nothing")
    assert result.exit_code == 0, result.stderr
    title, head, *rows, note, in_vain = result.stdout.splitlines()
    assert title.endswith("sin_chain.py: gradient of loss with respect to W1, W2, W3, x")
    columns = ["policy", "saved", "temporary memory", "predicted", "FLOPs", "run time", "check"]
    assert re.split(r" {2,}", head) == columns
    assert [re.split(r" {2,}", row)[:2] for row in rows] == [["none", "116 B"], ["dots", "72 B"], ["nothing", "0 B"]]
    assert all(len(re.split(r" {2,}", row)) == 7 for row in rows)
    assert rows[0].endswith("no product recomputed")
    # What there is to save is less than what these few bytes are padded to.
    assert all(row.endswith((", costs memory", ", saves nothing")) for row in rows[1:])
    assert in_vain == "dots, nothing: no memory is saved; --barrier call may, or another policy"
    assert note.startswith("memory and FLOPs as XLA on cpu reports them; run time: median of ")


def test_json(command: Command) -> None:
    document = json.loads(command(SIN_CHAIN, *ALL, "--compare", "none,nothing", "--json").stdout)
    assert document["target"] == "cpu" and document["runs"] >= MIN_RUNS
    assert [row["policy"] for row in document["policies"]] == ["none", "nothing"]
    assert [row["saved_bytes"] for row in document["policies"]] == [116, 0]
    for row in document["policies"]:
        assert row["error"] is None and row["median_seconds"] > 0 and row["flops"] > 0 and row["temp_bytes"] >= 0
        assert row["predicted_bytes"] > 0 and row["check"]["predicted_bytes"] == row["predicted_bytes"]
        assert row["check"]["verdict"] in ("no product recomputed", "cannot tell")


def test_policy_that_cannot_run_here_has_an_empty_row_and_the_others_do_not(command: Command) -> None:
    result = command(SIN_CHAIN, "--compare", "none,offload-dots-no-batch", "--target", "cpu")
    assert result.exit_code == 1
    rows = result.stdout.splitlines()[2:4]
    assert re.match(r"none +72 B +\d+ B +\d+ B \([\d.]+x\) +\d+ FLOP +[\d.]+ us  no product recomputed$", rows[0])
    assert rows[1].split() == ["offload-dots-no-batch", *["-"] * 6]
    assert "error: policy offload-dots-no-batch has no figures: " in result.stderr


def test_no_table_where_no_policy_can_be_compiled(command: Command, small_model: Path) -> None:
    result = command(small_model, "--compare", "none,dots", "--arg", "f32[2]", "--arg", "f32[3]")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("model.py:4:")


def test_functions_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr("rematc.cli.measurement.SECONDS", 0.0)
    _, count = median_times([lambda: calls.append("a"), lambda: calls.append("b")])
    assert count == MIN_RUNS
    assert calls == ["a", "b"] * (1 + MIN_RUNS), "one run of each to warm up, then in turns"


def test_the_median_is_of_the_function_it_stands_for(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, *(float(tick) for turn in range(MIN_RUNS) for tick in (0, 1, 0, 5)), *[99.0] * 9])
    monkeypatch.setattr("rematc.cli.measurement.MAX_RUNS", MIN_RUNS)
    monkeypatch.setattr("rematc.cli.measurement.time.perf_counter", lambda: next(clock))
    times, _ = median_times([lambda: None, lambda: None])
    assert times == [1.0, 5.0]
