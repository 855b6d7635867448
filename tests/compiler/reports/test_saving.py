"""What a policy saves, beside the program without one: the verdict and the sentence."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import rematc
from rematc.compiler.reports.check import KEPT
from rematc.compiler.reports.saving import COSTS, LITTLE, SAVES, SAVES_NOTHING, Saving

MIB = 1 << 20


@pytest.mark.parametrize(
    ("temp", "without", "given_up", "verdict", "is_in_vain"),
    [
        (10, 100, 100, SAVES, False),
        (10, 100, 5000, SAVES, False),  # XLA held less than the residuals to begin with
        (51, 100, 100, LITTLE, False),
        (99, 100, 10, LITTLE, False),
        (99, 100, 2, SAVES, False),
        (99, 100, None, SAVES, False),
        (100, 100, 100, SAVES_NOTHING, True),
        (101, 100, 0, COSTS, True),
        (0, 0, 0, SAVES_NOTHING, True),
    ],
)
def test_verdicts(temp: int, without: int, given_up: int | None, verdict: str, is_in_vain: bool) -> None:
    saving = Saving(temp, without, given_up)
    assert (saving.verdict, saving.is_in_vain) == (verdict, is_in_vain)
    assert saving.as_dict()["verdict"] == verdict


def test_the_sentence_has_the_figures() -> None:
    assert Saving(9 * MIB, 10 * MIB, 30 * MIB).message == (
        "the policy saves little: 9.0 MiB instead of 10.0 MiB without a policy (0.90x); residuals fell by 30.0 MiB"
    )
    assert Saving(2 * MIB + 1, 2 * MIB).message == (
        "the policy costs memory: 2097153 B instead of 2097152 B without a policy (1.00x)"
    )
    assert Saving(0, 0).message == "the policy saves nothing: 0 B instead of 0 B without a policy"


def loss(weights: Any, x: Any) -> Any:
    for w in weights:
        x = np.sin(np.dot(w, x))
    return np.sum(x)


def test_a_compiled_function_is_checked_beside_another() -> None:
    shapes: list[Any] = [(5, 4), (6, 5), (7, 6), 4]
    *weights, x = [np.ones(shape, np.float32) for shape in shapes]
    plain = rematc.compile(rematc.value_and_grad(loss, (0, 1)), weights, x)
    frugal = rematc.compile(rematc.value_and_grad(loss, (0, 1), policy="dots"), weights, x)
    alone = frugal.check()
    assert alone.saving is None, "nothing is compared unasked"
    kept = dataclasses.replace(alone, verdict=KEPT)
    assert str(kept).endswith("not compared with the program without a policy: check(baseline) says what is saved")
    check = frugal.check(plain)
    assert check.saving is not None
    assert (check.saving.temp_bytes, check.saving.without_bytes) == (
        frugal.memory().temp_bytes,
        plain.memory().temp_bytes,
    )
    assert check.is_in_vain and check.in_short.endswith(f", {check.saving.verdict}")
    assert check.faults == (f"{check.saving.message}; {check.saving.way_out}",)
    assert check.saving.message in str(check) and check.saving.message in str(frugal.report(plain))
    assert plain.check(frugal).saving is None, "what recomputes nothing has nothing to save"
