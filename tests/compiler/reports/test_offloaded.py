"""What waits in the host's memory takes none of the device's: in reports, in the plan and in the predicted peak."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rematc
from rematc.compiler.api.text import parse
from rematc.compiler.reports.rendering import derivative_tables
from rematc.lowering.xla_cpu.prediction import allocation
from rematc.passes.policies import parse_policy
from rematc.passes.staging.profile import profile

SIZE = 64 * 64 * 4
X, W = np.ones((64, 64), np.float32), [np.ones((64, 64), np.float32)] * 6


def loss(weights: Any, x: Any) -> Any:
    for one in weights:
        x = np.tanh(rematc.checkpoint_name(x @ one, "a"))
    return np.sum(x)


def lowered(policy: str) -> rematc.Lowered:
    """With a sum beside the region, which so is not the whole, and is not cut."""

    def beside(weights: Any, x: Any) -> Any:
        return rematc.checkpoint(loss, policy=policy)(weights, x) + np.sum(x)

    return rematc.lower(rematc.value_and_grad(beside, 1), W, X)


def test_reports_tell_the_hosts_bytes_from_the_devices() -> None:
    kept, offloaded = [lowered(policy).derivatives[0] for policy in ("names=a", "offload=a")]
    assert kept.host_bytes == 0
    assert offloaded.host_bytes == 6 * SIZE
    assert offloaded.saved_bytes == kept.saved_bytes - 6 * SIZE
    assert offloaded.as_dict()["host_bytes"] == 6 * SIZE
    titles = [table.title for table in derivative_tables(offloaded, is_headed=False)]
    assert any("and 96.0 KiB in the host's memory" in title for title in titles)


def test_sums_of_residuals_tell_them_apart(capsys: pytest.CaptureFixture[str]) -> None:
    rematc.print_saved_residuals(rematc.checkpoint(loss, policy="offload=a"), W, X)
    assert "6 values saved, 0 B and 96.0 KiB in the host's memory" in capsys.readouterr().out


MOVED = """graph @f(%x: f32[64,64]) -> (f32[64,64]) {
  %0: f32[64,64] = dot_general %x, %x {contract=[[1],[0]], batch=[[],[]]}
  %1: f32<host>[64,64] = to_memory %0 {on_host=true}
  %2: f32[64,64] = to_memory %1 {on_host=false}
  %3: f32[64,64] = dot_general %2, %x {contract=[[1],[0]], batch=[[],[]]}
  return %3
}"""


def test_the_predicted_peak_is_the_devices() -> None:
    """The product, and later its copy from the host; not the copy on the host."""
    assert allocation(parse(MOVED)).peak() == SIZE


def test_cuts_count_what_is_saved_on_the_device() -> None:
    graph = rematc.trace(loss, W, X)
    ones = [True] * len(graph.params)
    kept, offloaded = [profile(graph, parse_policy(policy), ones, [True]) for policy in ("names=a", "offload=a")]
    assert (kept.saved.sum(), offloaded.saved.sum()) == (6 * SIZE, 0)
    assert kept.crossing == offloaded.crossing
