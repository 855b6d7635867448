"""The report: as text that programs can read, as JSON, on a run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rematc.cli.measurement import norms_of
from rematc.ir.units import counted, format_flops, format_ratio, format_seconds
from rematc.lowering.validation import validate
from rematc.passes.linearize import VJP
from tests.support.command import Command, WriteModel

ROOT = Path(__file__).parents[2]
ALL = ("--argnums", "0,1,2,3")


@pytest.fixture
def report(command: Command, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The report on examples/sin_chain.py."""
    monkeypatch.chdir(ROOT)

    def run(*args: str) -> str:
        result = command("examples/sin_chain.py", *args)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    return run


KEPT = """\
kept without a copy: 4 arguments, 384 B
f32[5,4]   80 B  from the argument W1
f32[6,5]  120 B  from the argument W2
f32[7,6]  168 B  from the argument W3
f32[4]     16 B  from the argument x
"""


def test_report_without_policy(report: Any) -> None:
    text = report(*ALL)
    assert text.startswith(f"""\
examples/sin_chain.py: gradient of loss with respect to W1, W2, W3, x
policy none

saved for the backward pass: 5 values, 116 B
f32[7]  28 B  output of cosine from examples/sin_chain.py:8 (g)
f32[6]  24 B  output of sine from examples/sin_chain.py:8 (g)
f32[6]  24 B  output of cosine from examples/sin_chain.py:8 (g)
f32[5]  20 B  output of sine from examples/sin_chain.py:8 (g)
f32[5]  20 B  output of cosine from examples/sin_chain.py:8 (g)

{KEPT}
recomputed: nothing

work       equations     FLOPs
forward           10 """)
    assert "no policy" not in text, "there is nothing to compare with"


def test_report_with_policy(report: Any) -> None:
    text = report(*ALL, "--policy", "dots")
    assert text.startswith(f"""\
examples/sin_chain.py: gradient of loss with respect to W1, W2, W3, x
policy dots

saved for the backward pass: 3 values, 72 B
f32[7]  28 B  output of dot_general from examples/sin_chain.py:8 (g)
f32[6]  24 B  output of dot_general from examples/sin_chain.py:8 (g)
f32[5]  20 B  output of dot_general from examples/sin_chain.py:8 (g)

{KEPT}
recomputed in the backward pass: 5 equations, """)
    recomputed = text.partition("recomputed in")[2].partition("\n\n")[0].splitlines()[1:]
    assert [line.split()[:2] for line in recomputed] == [["cosine", "3"], ["sine", "2"]]
    assert re.search(r"^XLA on cpu +policy dots +no policy +ratio$", text, re.MULTILINE)
    assert re.search(r"^temporary memory +\d+ B +\d+ B +\d\.\d\dx$", text, re.MULTILINE)
    assert re.search(r"^FLOPs +\d+ FLOP +\d+ FLOP +\d\.\d\dx$", text, re.MULTILINE)


def test_report_with_names(command: Command, write_model: WriteModel) -> None:
    source = """
    import rematc

    def loss(w, x):
        hidden = rematc.checkpoint_name(np.sin(np.dot(w, x)), "hidden")
        return np.sum(np.sin(hidden))
    """
    model = write_model(source)
    result = command(model, "--arg", "f32[5,4]", "--arg", "f32[4]", "--policy", "names=hidden", "-q")
    assert "f32[5]  20 B  named 'hidden' from model.py:6 (loss)\n" in result.stdout


def test_quiet_leaves_out_the_baseline(report: Any) -> None:
    assert "no policy" not in report("--policy", "dots", "-q")


def test_piped_report_is_plain(report: Any) -> None:
    text = report(*ALL, "--policy", "dots", "--run")
    assert text.isascii() and "\x1b" not in text
    assert not [line for line in text.splitlines() if line != line.rstrip()]


def test_piped_report_has_all_residuals_and_what_is_alike_once(command: Command, write_model: WriteModel) -> None:
    source = """
    def a_function_with_a_name_that_makes_its_lines_longer_than_eighty_columns(x):
        for _ in range(60):
            x = np.sin(x)
        %s
        return np.sum(x)
    """
    source %= "\n        ".join(["x = np.sin(x)"] * 30)
    text = command(write_model(source), "--arg", "f32[8]").stdout
    rows = [line for line in text.splitlines() if line.startswith("f32[8]")]
    assert len(rows) == 31 and "more" not in text
    assert ["60 x 32 B" in row for row in rows] == [True] + [False] * 30
    assert all(len(row) > 80 for row in rows)


def test_several_derivatives_are_told_apart(command: Command, write_model: WriteModel) -> None:
    source = """
    import rematc

    def energy(x):
        return np.sum(np.sin(x))

    def loss(x):
        return np.sum(np.square(rematc.grad(energy)(x)))
    """
    text = command(write_model(source), "--arg", "f32[8]", "--entry", "loss").stdout
    assert "derivative of energy, policy none" in text
    assert "derivative of loss, policy none" in text


# -- running ---------------------------------------------------------------------------------------------------------


def test_run_prints_loss_norms_and_time(command: Command, write_model: WriteModel) -> None:
    source = """
    def loss(params, x):
        return np.sum(params["w"] * x) + 3 * params["b"]

    def example_args():
        x = np.array([3.0, 4.0], np.float32)
        return {"w": np.ones(2, np.float32), "b": np.float32(0)}, x
    """
    text = command(write_model(source), "--run").stdout
    assert re.search(r"\nrun\nloss +7\ngradient norm +5\.83095\nrun time +[\d.]+ [um]?s \(median of \d+\)\n", text)
    assert re.search(r"\ngradient +type +norm\nparams\['b'\] +f32\[\] +3\nparams\['w'\] +f32\[2\] +5\n$", text)


def test_run_is_the_same_under_every_policy(report: Any) -> None:
    runs = [json.loads(report(*ALL, "--run", "--json", "--policy", policy))["run"] for policy in ("none", "nothing")]
    assert runs[0]["loss"] == pytest.approx(runs[1]["loss"], rel=1e-6)  # float32
    assert runs[0]["gradient_norms"] == pytest.approx(runs[1]["gradient_norms"], rel=1e-5)  # float32


def test_auxiliary_data(command: Command, write_model: WriteModel) -> None:
    model = write_model("def loss(x): return np.sum(x), {'mean': np.mean(x)}\ndef example_args(): return (np.ones(4),)")
    assert command(model).exit_code == 1
    run = json.loads(command(model, "--has-aux", "--run", "--json").stdout)["run"]
    assert run["loss"] == 4 and run["gradient_norms"] == {"x": 2}


def test_run_in_float64_stays_in_float64(command: Command, write_model: WriteModel) -> None:
    model = write_model("def loss(x): return np.sum(x) / 3\ndef example_args(): return (np.full(1, 1.0),)")
    run = json.loads(command(model, "--run", "--json").stdout)["run"]
    assert run["loss"] == 1 / 3


def test_norm_of_large_float32_does_not_overflow() -> None:
    (norm,) = norms_of(lambda x: x, (0,), [np.full(4, 1e30, np.float32)])
    assert norm.norm == pytest.approx(2e30, rel=1e-6)


def test_norms_of_zero_and_of_nothing_finite() -> None:
    def norm(*elements: float) -> float:
        return norms_of(lambda x: x, (0,), [np.array(elements, np.float32)])[0].norm

    assert norm(0, 0) == 0 and norm() == 0
    assert norm(1, float("inf")) == float("inf") and np.isnan(norm(1, float("nan")))


# -- JSON ------------------------------------------------------------------------------------------------------------


def test_json_says_what_the_text_says(report: Any) -> None:
    document = json.loads(report(*ALL, "--policy", "dots", "--run", "--json"))
    assert document["model"] == "examples/sin_chain.py" and document["entry"] == "loss"
    assert document["argnums"] == [0, 1, 2, 3] and document["policy"] == "dots" and document["target"] == "cpu"
    (one,) = document["derivatives"]
    assert one["saved_bytes"] == 72 == sum(row["bytes"] for row in one["residuals"])
    assert one["residuals"][0] == {
        "type": "f32[7]",
        "bytes": 28,
        "provenance": "output of dot_general from examples/sin_chain.py:8 (g)",
        "name": None,
        "crosses": False,
    }
    assert set(one["recomputed"]) == {"sine", "cosine"}
    assert one["recompute"]["equations"] == sum(work["equations"] for work in one["recomputed"].values()) == 5
    assert document["xla"]["temp_bytes"] >= 0 and document["xla_without_policy"]["flops"] > 0
    assert set(document["run"]["gradient_norms"]) == {"W1", "W2", "W3", "x"}
    assert set(document["versions"]) == {"rematc", "jax", "jaxlib", "numpy"}


def test_json_without_run_and_baseline(report: Any) -> None:
    document = json.loads(report("--json"))
    assert document["run"] is None and document["xla_without_policy"] is None


def test_json_has_no_nan(command: Command, write_model: WriteModel) -> None:
    model = write_model("def loss(x): return np.sum(np.log(x))\ndef example_args(): return (-np.ones(2, np.float32),)")
    text = command(model, "--run", "--json").stdout

    def refuse(name: str) -> None:
        raise AssertionError(name)

    assert json.loads(text, parse_constant=refuse)["run"]["loss"] == "nan"


# -- beside the report -----------------------------------------------------------------------------------------------


def test_output_is_stablehlo_beside_the_report(report: Any, tmp_path: Path) -> None:
    text = report("--policy", "dots", "-o", str(tmp_path / "step.mlir"))
    assert text.startswith("examples/sin_chain.py: ")
    validate((tmp_path / "step.mlir").read_text())
    assert [path.name for path in tmp_path.iterdir()] == ["step.mlir"]


def test_time_passes_on_standard_error(command: Command) -> None:
    result = command(ROOT / "examples/sin_chain.py", "--passes", "barriers,cse,dce", "--time-passes", "--json")
    json.loads(result.stdout)
    lines = result.stderr.splitlines()
    assert lines[0].split() == ["policy", "none:", "pass", "equations", "after", "time"]
    assert ",".join([line.split()[0] for line in lines[1:]]) == f"{VJP},barriers,cse,dce"


# -- units -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 FLOP"),
        (999, "999 FLOP"),
        (1000, "1.00 kFLOP"),
        (999_499, "999 kFLOP"),
        (999_500, "1.00 MFLOP"),
        (12_345_678_901, "12.3 GFLOP"),
        (1e15, "1.00 PFLOP"),
        (1e18, "1000 PFLOP"),
    ],
)
def test_format_flops(count: float, text: str) -> None:
    assert format_flops(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.00 us"),
        (1.234e-6, "1.23 us"),
        (9.996e-6, "10.0 us"),
        (99.96e-6, "100 us"),
        (999.6e-6, "1.00 ms"),
        (0.0123, "12.3 ms"),
        (0.9996, "1.00 s"),
        (5.3, "5.30 s"),
        (1234, "1234 s"),
    ],
)
def test_format_seconds(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_format_ratio() -> None:
    assert (format_ratio(1, 2), format_ratio(1, 0)) == ("0.50x", "-")


def test_counted() -> None:
    assert (counted(1, "value"), counted(0, "value")) == ("1 value", "0 values")
