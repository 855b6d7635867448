"""`--profile`: the time of phases and lines, in the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command import Command, WriteModel

MODEL = str(Path(__file__).parents[2] / "examples/sin_chain.py")


@pytest.mark.parametrize("args", [(MODEL, "--profile"), ("--profile", MODEL), ("--profile", "-q", MODEL)])
def test_without_a_directory_nothing_is_kept(command: Command, tmp_path: Path, args: tuple[str, ...]) -> None:
    result = command(*args, "--policy", "dots", "-q")
    assert result.exit_code == 0, result.stderr
    report = result.stdout.partition("profile: 5 runs of ")[2].splitlines()
    assert [line.split()[0] for line in report[2:4]] == ["forward", "backward"]
    assert any(line.startswith("line") for line in report)
    assert "trace:" not in result.stdout


def test_the_trace_stays_in_a_directory(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = command(MODEL, "--profile", "trace", "-q", "--json")
    assert result.exit_code == 0, result.stderr
    profile = json.loads(result.stdout)["profile"]
    assert all(Path(file).is_file() and Path(file).is_relative_to(tmp_path / "trace") for file in profile["files"])
    assert {Path(file).name.partition(".")[2] for file in profile["files"]} == {"trace.json.gz", "xplane.pb"}
    assert profile["parts"]["forward"] > 0
    assert json.loads(command(MODEL, "-q", "--json").stdout)["profile"] is None


def test_behind_two_hyphens_it_is_the_models(command: Command, write_model: WriteModel) -> None:
    model = write_model(
        "import sys\n"
        "def loss(x): return np.sum(x)\n"
        "def example_args():\n    print(sys.argv[1:])\n    return (np.ones(2, np.float32),)"
    )
    assert "['--profile']" in command(str(model), "-q", "--", "--profile").stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--emit", "ir"), "leave out --emit or --profile"),
        (("--compare", "none,dots"), "leave out --compare or --profile"),
        (("--pareto",), "leave out --pareto or --profile"),
        (("--target", "h100"), "leave out --profile, or --target"),
    ],
)
def test_it_is_about_one_program_that_runs_here(command: Command, options: tuple[str, ...], message: str) -> None:
    result = command(MODEL, "--profile", *options)
    assert result.exit_code == 2 and message in result.stderr


def test_a_file_is_no_directory(command: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = command(MODEL, f"--profile={tmp_path / 'file'}")
    assert result.exit_code == 1 and "it is no directory" in result.stderr
