"""Plans for a budget: the laws they keep."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rematc.passes.planning.bound import bound
from rematc.passes.planning.budget import Chained, _Search, curve, plan_for_budget, whole_curve
from rematc.passes.planning.problem import Problem, problem_of, simulate
from tests.support.exhaustive import least_time
from tests.support.problems import joints, problems

ANY = st.one_of(problems(), joints())


@given(ANY, st.floats(0, 1))
def test_what_is_found_is_what_running_it_takes(problem: Problem, part: float) -> None:
    found = plan_for_budget(problem, int(part * simulate(problem).peak))
    run = simulate(problem, found.stages)
    assert (run.peak, run.time) == (found.run.peak, found.run.time)
    assert found.run.time >= found.bound
    for begin, again in zip(found.stages.begins, found.stages.again, strict=True):
        assert all(problem.is_repeatable[node] and node < begin for node in again)


@given(ANY)
def test_more_budget_never_costs_more_time(problem: Problem) -> None:
    peak = simulate(problem).peak
    founds = curve(problem, [peak * part // 8 for part in range(9)])
    times = [found.run.time for found in founds if found.is_feasible]
    assert times == sorted(times, reverse=True)
    assert times[-1] == sum(problem.cost)


@given(ANY, st.integers(2, 6))
def test_the_whole_curve_ends_without_recomputation_and_has_each_plan_once(problem: Problem, count: int) -> None:
    founds = whole_curve(problem, count)
    assert 1 <= len(founds) <= count
    assert len({found.stages for found in founds}) == len(founds)
    assert all(found.is_feasible for found in founds)
    times = [found.run.time for found in founds]
    assert times == sorted(times, reverse=True)
    assert times[-1] == sum(problem.cost)
    assert founds[0].run.peak <= plan_for_budget(problem, 0).run.peak


@given(st.one_of(problems(7), joints(3)), st.integers(4, 9))
def test_small_problems_are_solved_as_the_exhaustive_search_does(problem: Problem, tenths: int) -> None:
    budget = simulate(problem).peak * tenths // 10
    found = plan_for_budget(problem, budget)
    assert (found.run.time if found.is_feasible else None) == least_time(problem, budget)


@given(st.one_of(problems(7), joints(3)), st.integers(4, 9))
def test_the_bound_is_below_the_exhaustive_search(problem: Problem, tenths: int) -> None:
    budget = simulate(problem).peak * tenths // 10
    least = least_time(problem, budget, is_staged=False)
    assert least is None or bound(problem, budget) <= least


@settings(max_examples=30)
@given(joints(30), st.integers(3, 9))
def test_larger_problems_keep_the_laws(problem: Problem, tenths: int) -> None:
    peak = simulate(problem).peak
    budget = peak * tenths // 10
    first, second = plan_for_budget(problem, budget), plan_for_budget(problem, budget)
    assert first.stages == second.stages
    assert first.run.peak == simulate(problem, first.stages).peak
    assert first.bound <= first.run.time
    assert sum(problem.size[list(first.held)]) >= first.run.peak - max(problem.workspace)
    if not first.is_feasible:
        assert plan_for_budget(problem, first.run.peak).is_feasible


def test_a_budget_that_one_node_exceeds_bounds_nothing() -> None:
    """What it reads and writes is more, whatever else is held: no plan fits, and the bound is the time of all nodes."""
    problem = problem_of(cost=[10, 10, 10], reads=[[], [0], [1]], size=[100, 100, 0], producer=[0, 1, 2], results=[2])
    assert bound(problem, 50) == 30


@pytest.mark.filterwarnings("error")
def test_what_takes_no_time_bounds_nothing() -> None:
    """The first value may run again for nothing where the second one is read."""
    reads = [[], [], [1], [0, 2]]
    problem = problem_of(cost=[0] * 4, reads=reads, size=[100, 100, 10, 0], producer=[0, 1, 2, 3], results=[3])
    assert bound(problem, 120) == 0


def test_the_smallest_plan_of_a_problem_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    halve = _Search.halve

    def counted(search: _Search) -> None:
        looked.append(search)
        halve(search)

    monkeypatch.setattr(_Search, "halve", counted)
    problem = problem_of(cost=[1, 1], reads=[[], [0]], size=[100, 100], producer=[0, 1], results=[1])
    chained = Chained(problem)
    peaks = {plan_for_budget(problem, budget, chained=chained).run.peak for budget in (0, 10, 99)}
    assert len(peaks) == 1 and len(looked) == 1
    whole_curve(problem, 4)
    assert len(looked) == 2, "a curve has plans of its own"
