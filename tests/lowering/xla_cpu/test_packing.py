"""The block in which XLA on the CPU lays what lives at different times."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rematc
from rematc.lowering.xla_cpu.packing import packed
from rematc.passes.liveness import Allocation, LiveRange

UNIT = 64
RANGES = st.lists(
    st.builds(
        lambda size, begin, length: LiveRange(size * UNIT, begin, begin + length),
        *(st.integers(1, 9), st.integers(0, 20), st.integers(0, 12)),
    ),
    max_size=24,
)


def _alone(ranges: list[LiveRange]) -> list[list[LiveRange]]:
    """Each in a place of its own."""
    return [[one] for one in ranges]


def test_what_meets_both_neighbours_lies_above_them() -> None:
    ranges = [LiveRange(size * UNIT, *steps) for size, *steps in ((5, 0, 2), (4, 1, 4), (4, 4, 6), (5, 6, 7))]
    assert Allocation(ranges, [0] * 8).peak() == 9 * UNIT
    assert packed(_alone(ranges)) == 13 * UNIT


def test_nothing_takes_nothing() -> None:
    assert packed([]) == 0


def test_a_place_is_as_long_lived_as_its_first_buffer() -> None:
    """With what follows there it would be the first of five alike, and the one before it would meet two others."""
    steps = [[(1, 4)], [(4, 5)], [(5, 7)], [(6, 8)], [(8, 12), (12, 18)]]
    assert packed([[LiveRange(UNIT, *one) for one in place] for place in steps]) == 2 * UNIT


@given(RANGES)
def test_the_block_is_no_smaller_than_what_lives_at_once_and_no_larger_than_all(ranges: list[LiveRange]) -> None:
    peak = Allocation(ranges, [0] * 40).peak()
    assert peak <= packed(_alone(ranges)) <= sum(one.size for one in ranges)


@given(RANGES)
def test_what_never_lives_at_once_lies_in_one_place(ranges: list[LiveRange]) -> None:
    apart = [LiveRange(one.size, 2 * step, 2 * step + 1) for step, one in enumerate(ranges)]
    assert packed(_alone(apart)) == max((one.size for one in apart), default=0)


@pytest.mark.parametrize("policy", ["nothing", "dots"])
def test_a_head_that_leaves_one_row_out_takes_what_is_predicted(policy: str) -> None:
    def loss(w: Any, x: Any, y: Any) -> Any:
        logits = jnp.tanh(x @ w) @ w.T
        return -jnp.take_along_axis(jax.nn.log_softmax(logits[:, :-1]), y[:, 1:, None], -1).mean()

    arguments = np.ones((2000, 64), np.float32), np.ones((2, 64, 2000), np.float32), np.zeros((2, 64), np.int32)
    lowered = rematc.lower(rematc.value_and_grad(rematc.from_jax(loss), policy=policy), *arguments)
    assert lowered.predicted_peak() == pytest.approx(lowered.compile().memory().temp_bytes, rel=0.05)
