"""Chains: as few steps again as there can be."""

from __future__ import annotations

from math import comb

import pytest

from rematc.passes.planning.budget import plan_for_budget
from rematc.passes.planning.chain import Programme, chain_of
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


def dear_and_cheap(blocks: int) -> Problem:
    """Blocks of a node that takes long, one that does not, and whose value is four times as large, and one whose small
    value goes to the next block; backwards both values of each are read.
    """
    forward: list[list[int]] = []
    for block in range(blocks):
        first = 3 * block
        before = [first - 1] if block else []
        forward += [before, [first], [first + 1, *before]]
    backward = [[3 * block, 3 * block + 1] for block in reversed(range(blocks))]
    return problem_of(
        cost=[100, 1, 1] * blocks + [1] * blocks,
        reads=forward + backward,
        size=[4, 16, 1] * blocks + [0] * blocks,
        producer=range(4 * blocks),
        results=range(3 * blocks, 4 * blocks),
    )


def test_of_a_block_what_takes_long_for_its_bytes_is_kept_and_the_rest_run_again() -> None:
    problem = dear_and_cheap(8)
    chain = chain_of(problem)
    assert chain is not None and len(chain.cuts) == 9, "blocks are not cut inside"
    programme = Programme(problem, chain)
    plans = [programme.plan(amount) for amount in programme.amounts()]
    again = [{node for row in plan.again for node in row} for plan in plans]
    assert any(len(nodes) > 4 and all(problem.cost[node] == 1 for node in nodes) for nodes in again)
