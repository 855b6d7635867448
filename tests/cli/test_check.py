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


@pytest.mark.parametrize("barrier", ["auto", "call", "conditional"])
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


def test_a_comparison_has_the_verdicts_and_strict_makes_them_errors(command: Command, write_model: WriteModel) -> None:
    model = write_model(CHAIN)
    kept = command(model, "--compare", "none,nothing", "--strict")
    assert kept.exit_code == 0, kept.stderr
    _, head, none, nothing, _ = kept.stdout.splitlines()
    assert head.endswith("check") and none.endswith("nothing recomputed") and nothing.endswith(" kept")
    said = command(model, "--compare", "none,nothing", *WITHOUT)
    assert said.exit_code == 0
    assert said.stdout.splitlines()[3].endswith(" undone")
    failed = command(model, "--compare", "none,nothing", "--strict", *WITHOUT)
    assert failed.exit_code == 1
    assert len(failed.stdout.splitlines()) == 5, "the table comes first"
    assert "policy nothing: " in failed.stderr and "merged with the forward pass" in failed.stderr
    assert "policy none: " not in failed.stderr


def test_the_prediction_stands_beside_what_xla_takes(command: Command, write_model: WriteModel) -> None:
    model = write_model(CHAIN)
    rows = {line.partition("  ")[0]: line.split() for line in command(model, "--policy", "nothing").stdout.splitlines()}
    assert len(rows["predicted"]) == 1 + 2 * 2 + 1, "two amounts with units, and their ratio"
    assert len(rows["predicted / measured"]) == 3 + 2
    document = json.loads(command(model, "--policy", "nothing", "--json").stdout)
    assert document["xla"]["predicted_bytes"] == document["check"]["predicted_bytes"] > 0
    assert document["xla_without_policy"]["predicted_bytes"] > 0


def test_strict_is_about_what_xla_made(command: Command, write_model: WriteModel) -> None:
    result = command(write_model(CHAIN), "--strict", "--emit", "ir")
    assert result.exit_code == 2
    assert "--strict is about what XLA made of the program" in result.stderr
