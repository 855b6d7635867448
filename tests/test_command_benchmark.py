"""What benchmarks/command.py draws, and what it calls a fault."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from benchmarks.command import Run, differing, drawn_flags, drawn_runs, judged
from rematc.cli.checks import checked
from rematc.cli.main import main
from rematc.cli.options import Options

MODEL = Path(__file__)
GRAPH = "graph @f(%x: f32[2]) -> (f32[2]) {\n  %0: f32[2] = sine %x\n  return %0\n}\n"
REFUSED = "model.py:3:4: error: loss returns f32[2], expected one floating-point scalar\n"
TRACEBACK = "Traceback (most recent call last):\n  File 'model.py', line 3\nValueError: error: no\n"


def test_the_same_seed_draws_the_same_runs() -> None:
    models = [("a", MODEL), ("b", MODEL)]
    runs = [list(drawn_runs(models, 20, seed, MODEL)) for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


def test_the_command_takes_what_is_drawn() -> None:
    for seed in range(300):
        flags = drawn_flags(random.Random(seed), Path("out.txt"))
        context = main.make_context("remat-compile", [str(MODEL), *flags])
        with context:
            checked(Options(**context.params))


@pytest.mark.parametrize(
    ("flags", "status", "stdout", "stderr", "fault"),
    [
        ((), 0, "a report", "", ""),
        ((), 0, "", "", "output"),
        ((), 1, "", REFUSED, ""),
        ((), 1, "", "", "traceback"),
        ((), 1, "", TRACEBACK, "traceback"),
        ((), 2, "", "Error: no such option\n", "status"),
        ((), 3, "", "error: internal\n", "status"),
        ((), -11, "", "", "status"),
        (("--json",), 0, '{"check": {"verdict": "kept"}}', "", ""),
        (("--json",), 0, '{"check": NaN}}', "", "output"),
        (("--emit", "ir"), 0, GRAPH, "", ""),
        (("--emit", "ir"), 0, GRAPH.replace("sine", "sin"), "", "output"),
        (("--emit", "stablehlo"), 0, "module {}", "", ""),
        (("-o", "/no/such/file"), 0, "a report", "", "output"),
    ],
)
def test_what_is_a_fault(flags: tuple[str, ...], status: int, stdout: str, stderr: str, fault: str) -> None:
    assert judged(Run("model", MODEL, flags), status, 1.0, stdout, stderr).fault == fault


def test_what_is_emitted_to_a_file_is_read_from_there(tmp_path: Path) -> None:
    output = tmp_path / "graph.txt"
    run = Run("model", MODEL, ("--emit", "ir", "-o", str(output)))
    output.write_text(GRAPH, encoding="utf-8")
    assert not judged(run, 0, 1.0, "", "").fault
    output.write_text(GRAPH[:40], encoding="utf-8")
    assert judged(run, 0, 1.0, "", "").fault == "output"


def test_two_runs_of_a_model_have_the_same_figures() -> None:
    report = {"run": {"loss": 2.0, "gradient_norm": 1.0, "median_seconds": 1e-3}, "check": None}
    figures = judged(Run("model", MODEL, ("--json", "--run")), 0, 1.0, json.dumps(report), "").figures
    assert figures == {"loss": 2.0, "gradient_norm": 1.0}
    assert differing(figures, figures) == ""
    assert differing(figures, {"loss": 2.0, "gradient_norm": 1.1}) == "gradient_norm 1.1, was 1"
