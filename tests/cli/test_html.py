"""`--html`: the report as a page, beside what is printed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.support.command import Command

ROOT = Path(__file__).parents[2]
MODEL = "examples/sin_chain.py"
HAS_LIBRARY = importlib.util.find_spec("vl_convert") is not None


@pytest.mark.skipif(not HAS_LIBRARY, reason="vl-convert-python is not installed")
@pytest.mark.parametrize("options", [("--policy", "dots"), ("--pareto",)])
def test_the_page_is_written_and_the_report_is_printed(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: tuple[str, ...]
) -> None:
    monkeypatch.chdir(ROOT)
    file = tmp_path / "report.html"
    result = command(MODEL, *options, "--html", str(file))
    assert result.exit_code == 0, result.stderr
    assert f"wrote the report to {file}" in result.stderr
    assert result.stdout == command(MODEL, *options).stdout or "gradient of loss" in result.stdout
    assert "<title>examples/sin_chain.py: gradient of loss" in file.read_text(encoding="utf-8")


def test_without_the_library_it_is_an_error_before_the_model_is_loaded(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = tmp_path / "model.py"
    model.write_text("raise SystemExit('loaded')\n")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    result = command(str(model), "--html", str(tmp_path / "report.html"))
    assert result.exit_code == 1
    assert "pip install 'rematc[html]'" in result.stderr and "loaded" not in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--emit", "ir"), "leave out one of them"),
        (("--compare", "none,dots"), "leave out one of them"),
    ],
)
def test_it_is_about_one_program(command: Command, options: tuple[str, ...], message: str) -> None:
    result = command(MODEL, "--html", "report.html", *options)
    assert result.exit_code == 2 and message in result.stderr


def test_it_is_not_mixed_with_the_report(command: Command) -> None:
    result = command(MODEL, "--html", "-")
    assert result.exit_code == 2 and "name a file" in result.stderr
