"""Reports tell what the policy saves from what is saved because it crosses from one segment to the next."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rematc
from rematc.compiler.driver.lowered import Lowered
from rematc.compiler.reports.derivative import DerivativeReport
from rematc.compiler.reports.residuals import SavedResidual
from rematc.ir.policy import RECOMPUTE, SAVE

WIDTH, BATCH = 64, 512


def chain(weights: Any, x: Any) -> Any:
    for w in weights:
        x = x + np.tanh(np.tanh(x @ w) @ w)
    return np.mean(x * x)


def roll_out(w: Any, x: Any) -> Any:
    last, _ = rematc.scan(lambda c, _: (c + np.tanh(c @ w), None), x, None, 16)
    return np.mean(last * last)  # type: ignore[operator]


def report_on(loss: Any, weights: Any, policy: Any) -> DerivativeReport:
    x = np.ones((BATCH, WIDTH), np.float32)
    lowered: Lowered = rematc.lower(rematc.value_and_grad(loss, policy=policy), weights, x)
    (one,) = lowered.derivatives
    return one


def _made_by(row: SavedResidual) -> str:
    return row.provenance.partition(" from ")[0].removeprefix("output of ")


def layers(count: int) -> list[Any]:
    return [np.eye(WIDTH, dtype=np.float32)] * count


def test_under_nothing_all_that_is_saved_crosses() -> None:
    one = report_on(chain, layers(8), "nothing")
    assert one.crossing == one.residuals
    assert len(one.crossing) >= 2
    assert all(str(row).endswith(", crosses between segments or is in the last one") for row in one.crossing)
    assert not any("@crossing" in row.provenance for row in one.residuals)


def test_under_dots_the_products_are_the_policys() -> None:
    one = report_on(chain, layers(8), "dots")
    assert {_made_by(row) for row in one.by_policy} == {"dot_general"}
    made = [_made_by(row) for row in one.crossing]
    in_the_last = made.count("tanh")
    assert in_the_last == 2, "of each layer's two products, the last segment keeps a tanh as it is"
    assert len(one.by_policy) == 2 * (8 - in_the_last)
    assert set(made) == {"add", "tanh", "multiply"}
    assert one.saved_bytes == sum(row.bytes for row in (*one.by_policy, *one.crossing))


def test_without_a_policy_nothing_crosses() -> None:
    assert report_on(chain, layers(8), None).crossing == ()


def test_names_are_the_policys_and_shown() -> None:
    def loss(weights: Any, x: Any) -> Any:
        for w in weights:
            x = rematc.checkpoint_name(x + np.tanh(np.tanh(x @ w) @ w), "layer")
        return np.mean(x * x)

    one = report_on(loss, layers(8), "names=layer")
    assert [row.label for row in one.by_policy] == ["layer"] * 8
    assert {row.label for row in one.crossing} <= {None}


@pytest.mark.parametrize("policy", ["nothing", "dots", "auto"])
def test_carries_of_a_loop_cross_from_step_to_step(policy: str) -> None:
    one = report_on(roll_out, layers(1)[0], policy)
    carries = [row for row in one.crossing if ", 16 steps" in row.provenance or ", 4 steps" in row.provenance]
    assert carries, [str(row) for row in one.residuals]
    saved = {row.provenance.partition(" from ")[0] for row in one.by_policy}
    assert "output of add" not in saved


def test_a_users_policy_is_asked_about_the_value_itself() -> None:
    def products(op: Any, operands: Any, name: str | None) -> Any:
        assert name != "@crossing"
        return SAVE if op.name == "dot_general" else RECOMPUTE

    one, expected = (report_on(chain, layers(8), policy) for policy in (products, "dots"))
    assert [str(row) for row in one.residuals] == [str(row) for row in expected.residuals]


def test_what_several_segments_repeat_is_said() -> None:
    def loss(weights: Any, x: Any) -> Any:
        time = np.exp(x[0, :1])
        for w in weights:
            x = x + np.tanh(np.tanh(x @ w) @ w) * time
        return np.mean(x * x)

    one = report_on(loss, layers(8), "nothing")
    (row,) = [row for row in one.repeated if row.op == "exponential"]
    assert row.segments >= 2 and str(row.type) == "f32[1]"
    assert "test_crossing.py" in row.place
    assert row.op in one.recomputed
    assert report_on(chain, layers(8), "nothing").repeated == ()
