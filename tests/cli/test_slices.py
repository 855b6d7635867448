"""`--slices`: the head in one loop, forward and backward."""

from __future__ import annotations

import json
import re

import pytest

from tests.support.command import Command, WriteModel

HEAD = """
import numpy as np

def loss(w, x):
    logits = x @ w
    scaled = np.exp(logits - np.max(logits, -1, keepdims=True))
    return np.sum(np.log(np.sum(scaled, -1)))

def example_args():
    return np.ones((16, 512), np.float32), np.ones((64, 16), np.float32)
"""

WHOLE = """
import numpy as np

def loss(w, x):
    logits = x @ w
    return np.sum(np.sort(logits.reshape(-1)) * np.arange(logits.size))

def example_args():
    return np.ones((16, 512), np.float32), np.ones((64, 16), np.float32)
"""


def test_the_report_says_what_runs_in_slices(command: Command, write_model: WriteModel) -> None:
    model = write_model(HEAD)
    text = command(model, "--slices", "4", "-v").stdout
    line = "f32[64,512] of 'dot_general' at model.py:6 (loss) in 4 slices of 16 along dimension 0"
    assert re.search(rf"sliced, of [\d.]+ KiB that are predicted without slices\n{re.escape(line)}\n", text)
    document = json.loads(command(model, "--slices", "4", "-q", "--json").stdout)
    assert document["slices"][0]["count"] == 4
    whole = json.loads(command(model, "-q", "--json").stdout)
    assert whole["slices"] is None
    assert document["xla"]["temp_bytes"] < whole["xla"]["temp_bytes"]


def test_the_curve_has_slices_beside_plans(command: Command, write_model: WriteModel) -> None:
    document = json.loads(command(write_model(HEAD), "--pareto", "--slices", "4", "-q", "--json").stdout)
    assert {point["slices"] for point in document["points"]} == {1, 4}
    assert "4 slices" in {point["name"] for point in document["points"]}


def test_a_budget_takes_slices_where_it_needs_them(command: Command, write_model: WriteModel) -> None:
    model = write_model(HEAD)
    document = json.loads(command(model, "--budget", "50%", "-q", "--json").stdout)
    assert document["xla"]["temp_bytes"] <= document["budget"]["budget"]
    assert document["slices"][0]["count"] > 1
    refused = command(model, "--budget", "50%", "--slices", "off", "-q")
    assert refused.exit_code == 1
    assert "no plan was found" in refused.stderr and "a plan is predicted to fit" in refused.stderr
    plan = model.parent / "plan.json"
    command(model, "--budget", "50%", "-q", "--save-plan", plan)
    again = json.loads(command(model, "--plan", plan, "-q", "--json").stdout)
    assert again["xla"]["temp_bytes"] == document["xla"]["temp_bytes"]


def test_what_cannot_be_cut_is_an_error_of_the_model(command: Command, write_model: WriteModel) -> None:
    result = command(write_model(WHOLE), "--slices", "4", "-q")
    assert result.exit_code == 1
    assert "nothing can run in 4 slices" in result.stderr
    assert "'scatter_add' at model.py:7 (loss) needs it whole" in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--slices", "some"), "'some' is no number of slices"),
        (("--slices", "0"), "is no number of slices"),
        (("--slices", "4", "--emit", "backward"), "leave out --slices"),
    ],
)
def test_what_excludes_slices(
    command: Command, write_model: WriteModel, options: tuple[str, ...], message: str
) -> None:
    result = command(write_model(HEAD), *options)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
