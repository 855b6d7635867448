"""The search for a plan by what it is expected to take."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rematc.lowering.planning import GraphPlanner


class Plans:
    """Plans that take what they are asked to, from the smallest on, and XLA so much more."""

    def __init__(self, smallest: int, peak: int, more: int) -> None:
        self.smallest, self.peak, self.more = smallest, peak, more

    def plan(self, budget: int, *, in_small_steps: bool = False) -> Any:
        """Less time for more memory."""
        peak = min(max(budget, self.smallest), self.peak)
        time = 2 * self.peak - peak
        return SimpleNamespace(peak=peak, time=time, is_feasible=peak <= budget, more=self.more_of(budget))

    def has_small_steps(self, budget: int) -> bool:
        """No step is planned by itself."""
        return False

    def more_of(self, budget: int) -> int:
        """Always so much more than the model says."""
        return self.more


class Known(GraphPlanner):
    """Such plans, and others, where there are any; no program stands behind them that could be arranged otherwise."""

    def __init__(self, plans: Any, others: Any = None) -> None:
        self._planner, self._other_planner, self._plans, self._slices = plans, others, {}, 1
        self._graphs: Any = SimpleNamespace(
            expected=_expected, expected_before_held=_expected, is_known=lambda plan: True
        )
        self.peak = plans.peak

    def _arranged_within(self, limit: float) -> None:
        return None


def _expected(plan: Any) -> int:
    return int(plan.peak + plan.more)


@given(st.integers(1, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 3 * 10**6))
def test_a_plan_is_found_wherever_the_smallest_one_fits(smallest: int, room: int, more: int, aim: int) -> None:
    planner = Known(Plans(smallest, smallest + room, more))
    plan = planner.expected_within(aim, aim, 1.0)
    fits = smallest + more <= aim
    assert (planner.expected(plan) <= aim) == fits
    assert fits or plan.peak == smallest


def test_what_a_budget_leaves_is_used_where_the_model_says_too_little() -> None:
    planner = Known(Plans(1406, 1966, 940))
    assert planner.expected_within(2374, 2374, 1.0).peak in range(1425, 1435)
    assert planner.expected_within(1300, 2400, 1.0).peak in range(1436, 1461), "guessed too low"


class Crowded(Plans):
    """Of the smallest plan, of many stages, XLA makes more than of one as large that is faster."""

    def more_of(self, budget: int) -> int:
        return self.more if budget < self.smallest else 0


def test_the_fastest_plan_as_small_as_the_smallest_is_tried() -> None:
    planner = Known(Crowded(64, 584, 32))
    assert planner.expected(planner.expected_within(64, 64, 1.0)) == 64
    assert planner.expected(planner.expected_within(58, 64, 1.0)) == 64


def test_plans_that_fuse_what_a_reduction_shares_are_tried_where_no_other_fits() -> None:
    planner = Known(Plans(64, 584, 0), Plans(44, 500, 4))
    for aim, expected in ((100, 100), (64, 64), (50, 50), (48, 48), (20, 48)):
        assert planner.expected(planner.expected_within(aim, aim, 1.0)) == expected
    assert planner.expected(planner.smallest) == 48


def test_what_xla_takes_besides_is_aimed_at_once() -> None:
    """So many bytes more, of plans of which a share would come near only by and by."""
    planner = Known(Plans(1_000, 300_000, 17_000))
    plan = planner.expected_within(132_000, 132_000, 1.0)
    assert 131_000 <= planner.expected(plan) <= 132_000
    assert len(planner._plans) == 3, "the first guess, this one, and the one without recomputation"
