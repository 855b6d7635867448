"""`--budget`: a plan for so much memory."""

from __future__ import annotations

import json

import pytest

from tests.support.command import Command, WriteModel

CHAIN = """
import numpy as np

def loss(weights, x):
    for weight in weights:
        x = np.tanh(x @ weight)
    return np.sum(x * x)

def example_args():
    return [np.eye(64, dtype=np.float32)] * 6, np.ones((512, 64), np.float32)
"""


def test_the_report_says_what_the_plan_takes(command: Command, write_model: WriteModel) -> None:
    model = write_model(CHAIN)
    result = command(model, "--budget", "60%", "-q")
    assert result.exit_code == 0, result.output
    for text in ("none within 60%", "budget", "measured", "computed again", "no plan is below"):
        assert text in result.stdout
    document = json.loads(command(model, "--budget", "60%", "-q", "--json").stdout)
    assert document["budget"]["measured"] == document["xla"]["temp_bytes"] <= document["budget"]["budget"]
    assert json.loads(command(model, "-q", "--json").stdout)["budget"] is None


def test_a_budget_that_cannot_be_met_is_an_error_of_the_model(command: Command, write_model: WriteModel) -> None:
    result = command(write_model(CHAIN), "--budget", "1KiB", "-q")
    assert result.exit_code == 1
    assert "no plan was found for 1.0 KiB" in result.stderr


@pytest.mark.parametrize(
    "others", [("--compare", "none"), ("--emit", "ir"), ("--strict",), ("--passes", "dce"), ("--barrier", "call")]
)
def test_what_a_budget_excludes(command: Command, write_model: WriteModel, others: tuple[str, ...]) -> None:
    result = command(write_model(CHAIN), "--budget", "1GiB", *others)
    assert result.exit_code == 2
    assert f"leave out --budget or {others[0]}" in " ".join(result.stderr.split())


def test_what_is_no_budget(command: Command, write_model: WriteModel) -> None:
    result = command(write_model(CHAIN), "--budget", "much")
    assert result.exit_code == 2
    assert "'much' is no budget" in result.stderr
