"""What a compiled function and its report show in an interpreter: a line, and the report as text."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import rematc
from rematc.compiler.driver.lowered import Compiled

W, X = np.ones((4, 5), np.float32), np.ones((2, 4), np.float32)


def loss(w: Any, x: Any) -> Any:
    return np.sum(np.tanh(x @ w) ** 2)


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return rematc.compile(rematc.value_and_grad(loss, policy="nothing"), W, X)


def test_shown_in_a_line(compiled: Compiled) -> None:
    assert repr(compiled) == "Compiled('loss', 2 leaves, cpu)"
    assert re.fullmatch(r"Lowered\('loss', 2 leaves, \d+ equations\)", repr(compiled.lowered))
    graph = compiled.lowered.traced.graph
    assert repr(graph) == f"Graph('loss', 2 parameters, {len(graph.equations)} equations, 2 results)"
    assert repr(graph.params[0].type) == "TensorType(f32[4,5])"
    assert repr(graph.params[0].type.dtype) == "DType(f32)"


def test_a_report_prints_what_is_saved_and_what_xla_says(compiled: Compiled) -> None:
    baseline = rematc.compile(rematc.value_and_grad(loss), W, X)
    text = str(compiled.report(baseline))
    assert text.splitlines()[0] == "derivative of loss, policy nothing"
    rows = [re.split("  +", line) for line in text.splitlines()]
    assert ["f32[4,5]", "80 B", "from the argument w"] in rows
    assert ["XLA on cpu", "policy nothing", "no policy", "ratio"] in rows
    assert f"temporary memory {compiled.memory().temp_bytes} B" in " ".join(text.split())
    assert any(row[0].startswith("check: ") for row in rows)
    assert not any(line != line.rstrip() for line in text.splitlines())


def test_a_report_shows_all_of_a_long_list() -> None:
    weights = [W.T @ W] * 30

    def deep(weights: Any, x: Any) -> Any:
        for w in weights:
            x = np.tanh(x @ w)
        return np.sum(x)

    report = rematc.compile(rematc.value_and_grad(deep), weights, np.ones((2, 5), np.float32)).report()
    assert len(report.derivatives[0].residuals) > 20
    saved = len([row for row in report.derivatives[0].residuals if str(row.type) == "f32[2,5]"])
    lines = [line for line in str(report).splitlines() if line.startswith("f32[2,5]")]
    counts = [int(found[1]) if (found := re.search(r" (\d+) x ", line)) else 1 for line in lines]
    assert len(lines) < sum(counts) == saved + 1, "what each layer saves is one line, and the argument"
