"""Chains: as few steps again as there can be."""

from __future__ import annotations

from math import comb

import pytest

from rematc.passes.planning.budget import plan_for_budget
from rematc.passes.planning.problem import GIVEN, Problem, problem_of
from rematc.passes.revolve import schedule


def equal_steps(count: int) -> Problem:
    """A loop of equal steps backwards: adjoint step i reads carry i, and each carry is written over the one before."""
    reads = [[carry] for carry in range(count - 1)]
    producer = [GIVEN, *range(count - 1)]
    for carry in reversed(range(count)):
        reads.append([carry, *([len(producer) - 1] if carry < count - 1 else [])])
        producer.append(len(reads) - 1)
    return problem_of(
        cost=[1] * (count - 1) + [0] * count,
        reads=reads,
        size=[1] * count + [0] * count,
        producer=producer,
        results=[len(producer) - 1],
        replaces=[-1, *range(count - 1)] + [-1] * count,
    )


@pytest.mark.parametrize(
    ("count", "snapshots"), [(5, 2), (10, 3), (20, 3), (20, 5), (35, 4), (50, 4), (50, 8), (100, 6)]
)
def test_equal_steps_are_run_as_the_binomial_schedule_does(count: int, snapshots: int) -> None:
    found = plan_for_budget(equal_steps(count), snapshots + 1)
    sweeps = next(r for r in range(count) if comb(snapshots + r, snapshots) >= count)
    assert found.is_feasible
    assert found.run.time == sweeps * count - comb(snapshots + sweeps, sweeps - 1)
    assert found.run.time == schedule(count, snapshots).advances
