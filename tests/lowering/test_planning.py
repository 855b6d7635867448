"""The search for a plan by what it is expected to take."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rematc.compiler.driver.budget import first_within, with_more_slices
from rematc.ir.errors import CompileError
from rematc.lowering.planning import Budget, GraphPlanner, UnreachableBudgetError
from rematc.lowering.slicing import AUTO, NEEDED, OFF, Slices


class Made(SimpleNamespace):
    """A plan."""

    bound = 0

    def does_as(self, other: Any) -> bool:
        """There is one of so many bytes."""
        return bool(self.peak == other.peak)


class Plans:
    """Plans that take what they are asked to, from the smallest on, and XLA so much more."""

    def __init__(self, smallest: int, peak: int, more: int) -> None:
        self.smallest, self.peak, self.more = smallest, peak, more

    def plan(self, budget: int, *, in_small_steps: bool = False) -> Any:
        """Less time for more memory."""
        peak = min(max(budget, self.smallest), self.peak)
        time = 2 * self.peak - peak
        return Made(budget=budget, peak=peak, time=time, is_feasible=peak <= budget, more=self.more_of(budget))

    def has_small_steps(self, budget: int) -> bool:
        """No step is planned by itself."""
        return False

    def more_of(self, budget: int) -> int:
        """Always so much more than the model says."""
        return self.more


class Known(GraphPlanner):
    """Such plans, and others, where there are any; no program stands behind them that could be arranged otherwise."""

    def __init__(self, plans: Any, others: Any = None) -> None:
        self._planner, self._other_planner, self._plans, self._slices = plans, others, {}, None
        self._graphs: Any = Expectations()
        self.peak = plans.peak

    def _arranged_within(self, limit: float) -> None:
        return None


class Expectations:
    """What is expected of plans: what they take and so much more, or what was measured."""

    def __init__(self) -> None:
        self._measured: dict[int, int] = {}

    def expected(self, plan: Any) -> int:
        """Known of every plan."""
        return self._measured.get(plan.peak, int(plan.peak + plan.more))

    expected_before_held = expected

    def is_known(self, plan: Any) -> bool:
        """Always."""
        return True

    def measured(self, plan: Any, measured: int) -> None:
        """From now on that is expected."""
        self._measured[plan.peak] = measured


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


class Uneven(Plans):
    """Of plans of a few bytes, and of many, XLA takes a quarter less; of those between, a quarter more."""

    def more_of(self, budget: int) -> int:
        peak = min(max(budget, self.smallest), self.peak)
        return peak // 4 if 3_300 < peak < 4_000 else -peak // 4


def test_a_plan_of_more_simulated_bytes_is_taken_where_xla_takes_fewer() -> None:
    planner = Known(Uneven(2_000, 6_000, 0))
    plan = planner.expected_within(3_800, 3_800, 1.0)
    assert plan.peak >= 4_500 and planner.expected(plan) <= 3_800


def test_a_plan_that_was_looked_at_is_compared_with_later_ones() -> None:
    """Once XLA takes more for the best than was expected, the next one is the second best, not one for far less."""
    planner = Known(Plans(100, 10_000, 0))
    first = planner.expected_within(5_000, 5_000, 1.0)
    assert first.peak == 5_000
    planner.expected_within(4_900, 4_900, 1.0)
    planner.measured(first, 5_100)
    assert planner.expected_within(1_000, 5_000, 1.0).peak >= 4_900


class InSteps(Plans):
    """Of which some run in small steps: they take a tenth less time, and XLA so much more."""

    def plan(self, budget: int, *, in_small_steps: bool = False) -> Any:
        plan = super().plan(budget)
        return Made(**{**vars(plan), "time": plan.time * 0.9, "more": self.more}) if in_small_steps else plan

    def has_small_steps(self, budget: int) -> bool:
        return True

    def more_of(self, budget: int) -> int:
        return 0


@pytest.mark.parametrize(("more", "is_faster"), [(0, True), (100_000, False)])
def test_plans_in_small_steps_are_taken_where_xla_takes_no_more_for_them(more: int, is_faster: bool) -> None:
    plan = Known(InSteps(64, 584, more)).expected_within(300, 300, 1.0)
    assert plan.peak == 300
    assert (plan.time < 2 * 584 - 300) == is_faster


class Coarse(Plans):
    """Of which there are few."""

    def plan(self, budget: int, *, in_small_steps: bool = False) -> Any:
        return super().plan(budget - budget % 200)


def test_of_one_plan_alone_xla_may_take_more_than_was_expected() -> None:
    """The next one is the second best, as long as it may be that what is expected of it is right."""
    compiled: list[int] = []

    def measured(plan: Any, _: int) -> tuple[int, int]:
        compiled.append(plan.peak)
        return plan.peak, plan.peak * 11 // 10 if len(compiled) == 1 else plan.peak

    made, report = first_within(Known(Coarse(200, 10_000, 0)), Budget(4_990), lambda: 10_000, measured)
    assert report.compilations == 2 and compiled == [4_800, made] == [4_800, 4_600]


@pytest.mark.parametrize(
    ("asked", "expected", "tried"),
    [
        (OFF, 200, [OFF]),
        (4, 200, [4]),
        (NEEDED, 200, [NEEDED, AUTO, 8, 32]),
        (NEEDED, 90, [NEEDED, 8, 32]),
        (AUTO, 200, [AUTO, 8, 32]),
    ],
)
def test_slices_are_tried_in_this_order(asked: Slices, expected: int, tried: list[Slices]) -> None:
    """`auto` is chosen by the prediction, and so helps only where that says that nothing fits."""
    calls: list[Slices] = []

    def make(slices: Slices) -> None:
        calls.append(slices)
        error = UnreachableBudgetError("no plan was found", 100, expected, 300 - 10 * len(calls))
        error.find_slices = lambda: 8
        raise error

    with pytest.raises(UnreachableBudgetError) as caught:
        with_more_slices(asked, make)
    assert calls == tried
    assert caught.value.reached == 300 - 10 * len(calls)
    assert ("With slices=8 a plan is predicted to fit" in caught.value.message) == (asked in (OFF, 4))


@pytest.mark.parametrize(
    ("is_cut", "slices", "tried"),
    [(True, 8, [NEEDED, AUTO, 8, 32, NEEDED]), (True, None, [NEEDED, AUTO, NEEDED]), (False, 8, [NEEDED, AUTO])],
)
def test_the_smallest_plan_is_looked_for_late_where_none_is_near(
    is_cut: bool, slices: int | None, tried: list[Slices]
) -> None:
    """Unless `auto` cut nothing, so that it was looked for then."""
    calls: list[Slices] = []

    def make(slices: Slices) -> None:
        calls.append(slices)
        error = UnreachableBudgetError("no plan was found", 100, 200, 150 if len(calls) == 1 else 160 + len(calls))
        error.find_slices, error.is_in_slices = lambda: found, is_cut
        error.is_far = len(calls) == 1
        raise error

    found = slices
    with pytest.raises(UnreachableBudgetError) as caught:
        with_more_slices(NEEDED, make)
    assert calls == tried
    assert caught.value.reached == 162


def test_what_is_wrong_without_slices_is_the_error() -> None:
    """Where no plan was near, no slices could be cut, and the program cannot be compiled either."""
    calls: list[Slices] = []

    def make(slices: Slices) -> None:
        calls.append(slices)
        if len(calls) > 1:
            raise CompileError("something else is wrong")
        error = UnreachableBudgetError("no plan was found", 100, 200, 200)
        error.is_far = True
        raise error

    with pytest.raises(CompileError, match="something else is wrong"):
        with_more_slices(NEEDED, make)
    assert calls == [NEEDED, AUTO, NEEDED]


def test_no_slices_are_taken_where_something_must_not_run_again() -> None:
    def make(slices: Slices) -> None:
        error = UnreachableBudgetError("no plan was found", 100, 200, 200)
        error.find_slices, error.is_constrained = lambda: 8, True
        raise error

    with pytest.raises(UnreachableBudgetError, match="With slices=8 a plan is predicted to fit"):
        with_more_slices(NEEDED, make)
