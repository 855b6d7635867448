"""The check in reports, and `--strict`."""

from __future__ import annotations

import json

import pytest

from tests.support.command import Command, WriteModel

CHAIN = """
    def loss(weights, x):
        for w in weights:
            x = x + np.sin(np.sin(x @ w) @ w)
        return np.mean(x * x)

    def example_args():
        return [np.ones((16, 16), np.float32)] * 3, np.ones((8, 16), np.float32)
    """
WITHOUT = ("--passes", "barriers{strategy=none},simplify,cse,dce")


@pytest.mark.parametrize("barrier", ["auto", "conditional"])
def test_a_plan_that_is_kept(command: Command, write_model: WriteModel, barrier: str) -> None:
    result = command(write_model(CHAIN), "--policy", "nothing", "-q", "--strict", "--barrier", barrier)
    assert result.exit_code == 0, result.stderr
    assert "check: kept: " in result.stdout


def test_a_broken_plan_is_said_and_fails_under_strict(command: Command, write_model: WriteModel) -> None:
    model = write_model(CHAIN)
    said = command(model, "--policy", "nothing", "-q", *WITHOUT)
    assert said.exit_code == 0
    assert "recomputed products merged with the forward pass" in said.stdout
    failed = command(model, "--policy", "nothing", "-q", "--strict", *WITHOUT)
    assert failed.exit_code == 1
    assert failed.stdout == said.stdout or "check:" in failed.stdout
    assert "merged with the forward pass" in failed.stderr


def test_the_check_is_in_the_json(command: Command, write_model: WriteModel) -> None:
    result = command(write_model(CHAIN), "--policy", "nothing", "-q", "--json")
    check = json.loads(result.stdout)["check"]
    assert check["verdict"] == "kept"
    assert check["comparison"]["merged"] == 0
    assert check["temp_bytes"] > 0


@pytest.mark.parametrize("other", [("--emit", "ir"), ("--compare", "none,dots")])
def test_strict_is_about_a_report(command: Command, write_model: WriteModel, other: tuple[str, ...]) -> None:
    result = command(write_model(CHAIN), "--strict", *other)
    assert result.exit_code == 2
    assert "--strict is about a report" in result.stderr
