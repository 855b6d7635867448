"""The schedule of snapshots is right and takes the fewest steps."""

from __future__ import annotations

from functools import cache

import pytest

from rematc.passes.revolve import schedule


@cache
def fewest(steps: int, snapshots: int) -> int:
    """By trying every place for the next snapshot."""
    if steps <= 1:
        return 0
    if snapshots == 1:
        return steps * (steps - 1) // 2
    return min(m + fewest(steps - m, snapshots - 1) + fewest(m, snapshots) for m in range(1, steps))


@pytest.mark.parametrize(("steps", "snapshots", "extra"), [(35, 4, 84), (100, 6, 280), (200, 9, 534)])
def test_takes_the_binomial_number_of_steps(steps: int, snapshots: int, extra: int) -> None:
    assert schedule(steps, snapshots).advances == extra


@pytest.mark.parametrize("snapshots", range(1, 8))
def test_takes_every_adjoint_from_its_carry_with_the_fewest_steps(snapshots: int) -> None:
    for steps in range(1, 36):
        plan = schedule(steps, snapshots)
        rows, at_hand, adjoints = {0: 0}, -1, []
        for is_adjoint, step, source, target in zip(plan.is_adjoint, plan.step, plan.source, plan.target, strict=True):
            carry = at_hand if source == snapshots else rows[source]
            assert carry == step
            assert max(source, target) <= snapshots
            if target < snapshots:
                rows[target] = carry
            at_hand = carry if is_adjoint else carry + 1
            if is_adjoint:
                adjoints.append(step)
        assert adjoints == list(reversed(range(steps)))
        assert plan.advances == fewest(steps, snapshots)
