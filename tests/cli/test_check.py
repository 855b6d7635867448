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
        return [np.ones((16, 16), np.float32)] * 4, np.ones((512, 16), np.float32)
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
    assert head.endswith("check") and none.endswith("no product recomputed") and nothing.endswith(" kept")
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


# Nothing to gain: a few numbers, and each segment's results are padded.
VECTORS = """
    def loss(A, B, C, x):
        for w in (A, B, C):
            x = np.sin(np.dot(w, x))
        return np.sum(x)

    def example_args():
        return [np.ones(shape, np.float32) for shape in ((5, 4), (6, 5), (7, 6), 4)]
    """


def test_a_policy_that_saves_no_memory_is_said_everywhere(command: Command, write_model: WriteModel) -> None:
    model = (write_model(VECTORS), "--argnums", "0,1,2,3")
    document = json.loads(command(*model, "--policy", "dots", "--json").stdout)
    temp, without = document["xla"]["temp_bytes"], document["xla_without_policy"]["temp_bytes"]
    assert temp >= without, "or this is no model for the test"
    saving = document["check"]["saving"]
    assert saving["verdict"] == ("costs memory" if temp > without else "saves nothing")
    assert (saving["temp_bytes"], saving["without_bytes"], saving["ratio"]) == (temp, without, temp / without)
    text = command(*model, "--policy", "dots").stdout
    assert f"\nmemory: {saving['message']}\n--barrier call takes " in text
    failed = command(*model, "--policy", "dots", "--strict", "-q")
    assert failed.exit_code == 1
    assert f"error: {saving['message']}; leave out --policy; measure other policies with --compare" in failed.stderr
    table = command(*model, "--compare", "none,dots", "--strict")
    assert table.exit_code == 1
    assert table.stdout.splitlines()[3].endswith(f", {saving['verdict']}")
    assert table.stdout.splitlines()[-1] == "dots: no memory is saved; --barrier call may, or another policy"
    assert f"policy dots: {saving['message']}" in table.stderr


def test_memory_that_is_saved_is_said_too(command: Command, write_model: WriteModel) -> None:
    document = json.loads(command(write_model(CHAIN), "--policy", "nothing", "--json").stdout)
    saving = document["check"]["saving"]
    assert saving["verdict"] == "saves memory" and saving["ratio"] < 1 and saving["way_out"] == ""
    residuals = [one["saved_bytes"] for one in document["derivatives"]]
    assert saving["given_up_bytes"] > 0 and len(residuals) == 1


def test_strict_is_about_what_xla_made(command: Command, write_model: WriteModel) -> None:
    result = command(write_model(CHAIN), "--strict", "--emit", "ir")
    assert result.exit_code == 2
    assert "--strict is about what XLA made of the program" in result.stderr
