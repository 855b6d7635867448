"""What is in memory when, as predicted and as XLA assigned it: the sums are those that both report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rematc
from rematc.compiler.driver.lowered import Compiled
from rematc.lowering.hlo.protobuf import fields, integers, messages, text
from rematc.passes.memory_timeline import BACKWARD, FORWARD, KEPT, RECOMPUTED, MemoryTimeline

X = np.ones((512, 128), np.float32)
WEIGHTS = np.full((5, 2, 128, 128), 1e-3, np.float32)


def layer(weights: Any, x: Any) -> Any:
    return x + np.tanh(x @ weights[0]) @ weights[1]


def chain(layers: Any, x: Any) -> Any:
    for weights in layers:
        x = layer(weights, x)
    return np.mean(x * x)


def loop(layers: Any, x: Any) -> Any:
    x, _ = rematc.lax.scan(lambda carry, weights: (layer(weights, carry), None), x, layers)
    return np.mean(x * x)


def compiled(function: Callable[..., Any], policy: str | None) -> Compiled:
    return rematc.compile(rematc.value_and_grad(function, policy=policy), WEIGHTS, X)


def timelines(one: Compiled) -> tuple[MemoryTimeline, MemoryTimeline]:
    inspection = one.report().inspection
    assert inspection is not None
    predicted, assigned = inspection.predicted, inspection.assigned
    assert predicted is not None and assigned is not None
    return predicted, assigned


@pytest.mark.parametrize("function", [chain, loop])
@pytest.mark.parametrize("policy", [None, "dots", "nothing"])
def test_the_sums_are_the_reported_ones(function: Callable[..., Any], policy: str | None) -> None:
    one = compiled(function, policy)
    predicted, assigned = timelines(one)
    memory = one.memory()
    for timeline, block in ((predicted, one.lowered.predicted_peak()), (assigned, memory.temp_bytes)):
        # What is live is no more than the block, which has gaps, and padding.
        assert timeline.block == block
        assert 0.9 * block <= timeline.peak <= block
        assert timeline.arguments == pytest.approx(memory.argument_bytes, rel=0.01)
        assert timeline.results == pytest.approx(memory.output_bytes, rel=0.01)
        for buffer in timeline.buffers:
            assert 0 <= buffer.begin <= buffer.end < len(timeline.steps)


def test_without_a_policy_nothing_is_recomputed_and_residuals_are_kept() -> None:
    for timeline in timelines(compiled(chain, None)):
        assert RECOMPUTED not in {step.phase for step in timeline.steps}
        standing = timeline.standing(timeline.backward)
        kept = sum(buffer.size for buffer in standing if buffer.role == KEPT)
        assert kept >= 0.9 * (2 * len(WEIGHTS) - 1) * X.nbytes, "two of each layer, but for the first one's argument"


def test_recomputation_is_told_from_the_backward_pass() -> None:
    predicted, assigned = timelines(compiled(chain, "nothing"))
    for timeline in (predicted, assigned):
        phases = [step.phase for step in timeline.steps]
        assert set(phases) == {FORWARD, RECOMPUTED, BACKWARD}
        assert set(phases[: timeline.backward]) == {FORWARD}
        assert RECOMPUTED in {buffer.role for buffer in timeline.buffers}
    of = {step.name: step.phase for step in predicted.steps if step.loc is not None}
    assert {step.loc.function for step in predicted.steps if step.loc is not None} >= {"layer", "chain"}
    assert of


def test_what_is_not_differentiated_has_no_backward_pass() -> None:
    for timeline in timelines(rematc.compile(chain, WEIGHTS, X)):
        assert timeline.backward == len(timeline.steps)
        assert {step.phase for step in timeline.steps} == {FORWARD}


def test_the_wire_format() -> None:
    inner = b"\x08\x96\x01\x12\x03abc"  # field 1: 150; field 2: "abc"
    data = b"\x1a" + bytes([len(inner)]) + inner + b"\x25\x01\x00\x00\x00" + b"\x29" + bytes(8)
    assert list(fields(data)) == [(3, inner), (4, b"\x01\0\0\0"), (5, bytes(8))]
    (found,) = messages(data, 3)
    assert integers(found) == {1: 150} and text(found, 2) == "abc" and text(found, 9) == ""
    for broken in (b"\x1a\x05ab", b"\x08", b"\x0b", b"\x08" + b"\xff" * 11):
        with pytest.raises(ValueError, match="no protocol buffer"):
            list(fields(broken))
