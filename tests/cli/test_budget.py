"""`--budget`: a plan for so much memory."""

from __future__ import annotations

import json
import re
from pathlib import Path

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

LOOP = """
import numpy as np
import rematc

def loss(weights, x):
    def step(x, w):
        h = rematc.checkpoint_name(np.tanh(x @ w), "hidden")
        return x + np.sin(h @ w), None

    x, _ = rematc.scan(step, x, weights)
    return np.sum(x * x)

def example_args():
    return np.ones((8, 64, 64), np.float32), np.ones((512, 64), np.float32)
"""


def test_the_report_says_what_the_plan_takes(command: Command, write_model: WriteModel) -> None:
    model = write_model(CHAIN)
    result = command(model, "--budget", "60%", "-q")
    assert result.exit_code == 0, result.output
    for text in ("none within 60%", "budget", "measured", "computed again", "no plan is below"):
        assert text in result.stdout
    assert "saved for the backward pass" not in result.stdout
    document = json.loads(command(model, "--budget", "60%", "-q", "--json").stdout)
    (derivative,) = document["derivatives"]
    assert derivative["is_planned"]
    assert derivative["residuals"] is derivative["recompute"] is None
    budget = document["budget"]
    assert {row["what"] for row in budget["kept"]} == {"output of tanh"}
    assert {row["where"] for row in budget["kept"]} == {"model.py:7"}
    work = budget["work"]
    assert work["again"] == {"kernels": len(budget["computed_again"]), "flops": budget["extra_flops"]}
    assert work["total"]["flops"] == budget["flops"] + budget["extra_flops"]
    assert document["check"]["verdict"] == "kept"
    products = sum(row["what"] == "output of dot_general" for row in budget["computed_again"])
    assert document["check"]["comparison"]["recomputed"] == work["products"] == products > 0
    assert document["budget"]["measured"] == document["xla"]["temp_bytes"] <= document["budget"]["budget"]
    assert json.loads(command(model, "-q", "--json").stdout)["budget"] is None


def test_the_report_speaks_of_the_plan(command: Command, write_model: WriteModel) -> None:
    text = command(write_model(CHAIN), "--budget", "60%", "--strict").stdout
    found = re.search(r"kept by the plan for the backward pass: (\d+) values, (\S+ KiB)", text)
    assert found is not None
    assert 0 < int(found[1]) < 6
    assert re.search(r"computed again by the plan: \d+ kernels, \S+ MFLOP\n", text)
    rows = [re.split("  +", line) for line in text.splitlines()]
    kept = [row for row in rows if row[0] == "f32[512,64]" and row[-1] == "output of tanh from model.py:7"]
    assert re.fullmatch(r"([2-6] x )?128.0 KiB", kept[0][1]), "all alike are one row"
    assert re.search(r"check: kept: (\d+) recomputed products?, \d+ executed in all; the plan runs \1 product", text)
    assert re.search(r"memory: the plan saves memory: .* without a plan", text)


def test_the_report_speaks_of_loops(command: Command, write_model: WriteModel) -> None:
    model = write_model(LOOP)
    text = command(model, "--budget", "65%", "-q").stdout
    assert re.search(r"f32\[8,512,64\] +1.0 MiB +output of add from model.py:9, 8 steps", text)
    assert "named 'hidden' from model.py:8, in each step, 8 steps" in text
    assert re.search(r"computed again by the plan: (\d+ kernels? and )?steps of 1 loop", text)
    work = json.loads(command(model, "--budget", "65%", "-q", "--json").stdout)["budget"]["work"]
    assert work["looped"] % 8 == 0 < work["looped"]
    assert f"the plan runs {work['products'] + work['looped']} products again" in text


def test_a_budget_that_cannot_be_met_is_an_error_of_the_model(command: Command, write_model: WriteModel) -> None:
    result = command(write_model(CHAIN), "--budget", "1KiB", "-q")
    assert result.exit_code == 1
    assert "no plan was found for 1.0 KiB" in result.stderr


@pytest.mark.parametrize(
    "others", [("--compare", "none"), ("--emit", "ir"), ("--passes", "dce"), ("--barrier", "call")]
)
def test_what_a_budget_excludes(command: Command, write_model: WriteModel, others: tuple[str, ...]) -> None:
    result = command(write_model(CHAIN), "--budget", "1GiB", *others)
    assert result.exit_code == 2
    assert f"leave out --budget or {others[0]}" in " ".join(result.stderr.split())


def test_a_plan_is_saved_and_applied(command: Command, write_model: WriteModel, tmp_path: Path) -> None:
    model, file = write_model(CHAIN), tmp_path / "plan.json"
    saved = command(model, "--budget", "60%", "--save-plan", file)
    assert saved.exit_code == 0, saved.output
    assert "wrote the plan to plan.json" in " ".join(saved.stderr.split())
    applied = command(model, "--plan", file, "-q")
    assert "1 compilation" in applied.stdout
    assert "computed again" in applied.stdout
    text = command(model, "--budget", "60%", "--emit", "stablehlo", "-q").stdout
    assert "optimization_barrier" in text
    assert command(model, "--plan", file, "--emit", "stablehlo", "-q").stdout == text
    assert command(model, "--plan", file, "--emit", "plan-json", "-q").stdout == file.read_text()
    shown = command(model, "--plan", file, "--emit", "plan", "-q").stdout
    assert shown == command(model, "--budget", "60%", "--emit", "plan", "-q").stdout
    assert "live at the peak" in shown
    moved = write_model("# A line more.\n" + CHAIN.replace("weight", "matrix"))
    assert "model.py:7" in shown
    assert command(moved, "--plan", file, "--emit", "plan", "-q").stdout == shown.replace(
        "model.py:8", "model.py:9"
    ).replace("model.py:7", "model.py:8")
    assert command(model, "--plan", file, "--emit", "hlo-optimized", "-q").stdout.startswith("HloModule")


def test_a_plan_of_another_program_is_an_error_of_the_model(
    command: Command, write_model: WriteModel, tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    command(write_model(CHAIN), "--budget", "60%", "--save-plan", file, "-q")
    result = command(write_model(CHAIN.replace("tanh", "sin")), "--plan", file, "-q")
    assert result.exit_code == 1
    assert "kernel 1: tanh, f32[512,64]" in result.stderr
    assert "; now sine, f32[512,64]" in result.stderr


def test_what_is_no_plan(command: Command, write_model: WriteModel, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text("[]")
    result = command(write_model(CHAIN), "--plan", file)
    assert result.exit_code == 2
    assert "is no plan of rematc's" in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--emit", "plan"), "--emit plan is about a plan, and there is none"),
        (("--save-plan", "x.json"), "--save-plan is about a plan, and there is none"),
        (("--plan-seconds", "1"), "--plan-seconds is about planning; add --budget or --pareto"),
        (("--budget", "60%", "--plan-seconds", "0"), "0.0 is not in the range x>0"),
        (("--budget", "60%", "--save-plan", "-"), "would mix the plan with the report"),
        (("--budget", "60%", "--save-plan", "x", "--emit", "plan"), "leave out --save-plan"),
        (("--keep", "a"), "--keep is about the plan for a budget; add --budget"),
        (("--never-repeat", "tanh"), "--never-repeat is about the plan for a budget; add --budget"),
        (("--budget", "60%", "--never-repeat", "tanhh"), "no op is called so; did you mean"),
        (("--budget", "60%", "--plan", __file__), "leave out --budget or --plan"),
    ],
)
def test_what_plans_exclude(command: Command, write_model: WriteModel, args: tuple[str, ...], message: str) -> None:
    result = command(write_model(CHAIN), *args)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.replace("│", " ").split())


def test_constraints_of_the_plan(command: Command, write_model: WriteModel) -> None:
    model = write_model(LOOP)
    shown = command(model, "--budget", "85%", "--keep", "hidden", "--never-repeat", "tanh,sort", "-q").stdout
    assert "named 'hidden' from model.py:8, 8 steps" in shown
    assert "named 'hidden' from model.py:8, in each step" not in shown
    assert "keeps hidden; never repeats tanh, sort" in shown
    wrong = command(model, "--budget", "85%", "--keep", "hiden", "-q")
    assert wrong.exit_code == 1
    assert "no value has the name 'hiden' (did you mean 'hidden'?)" in " ".join(wrong.stderr.split())


def test_planning_ends_after_so_many_seconds(command: Command, write_model: WriteModel) -> None:
    result = command(write_model(CHAIN), "--budget", "60%", "--plan-seconds", "0.001", "-q")
    assert result.exit_code == 0, result.output
    assert "computed again" in result.stdout


def test_the_cpu_does_not_say_what_it_has_free(command: Command, write_model: WriteModel) -> None:
    result = command(write_model(CHAIN), "--budget", "device", "-q")
    assert result.exit_code == 1
    assert "does not say what memory it has; write bytes" in result.stderr


def test_what_is_no_budget(command: Command, write_model: WriteModel) -> None:
    result = command(write_model(CHAIN), "--budget", "much")
    assert result.exit_code == 2
    assert "'much' is no budget" in result.stderr


def test_the_curve_is_printed_and_drawn(command: Command, write_model: WriteModel, tmp_path: Path) -> None:
    model = write_model(CHAIN)
    result = command(model, "--pareto", "-o", tmp_path / "curve.svg")
    assert result.exit_code == 0, result.output
    for text in ("gradient of loss", "measured", "extra time", "nothing", "everything"):
        assert text in result.stdout
    assert "wrote the picture" in result.stderr
    assert (tmp_path / "curve.svg").read_text().startswith("<svg")
    document = json.loads(command(model, "--pareto", "-q", "--json").stdout)
    assert {point["slices"] for point in document["points"]} == {1}
    everything = next(point for point in document["points"] if point["name"] == "everything")
    assert everything["measured"] == json.loads(command(model, "-q", "--json").stdout)["xla"]["temp_bytes"]


@pytest.mark.parametrize("others", [("--policy", "dots"), ("--budget", "60%"), ("--emit", "ir"), ("--run",)])
def test_what_a_curve_excludes(command: Command, write_model: WriteModel, others: tuple[str, ...]) -> None:
    result = command(write_model(CHAIN), "--pareto", *others)
    assert result.exit_code == 2
    assert f"leave out --pareto or {others[0]}" in " ".join(result.stderr.replace("│", " ").split())
