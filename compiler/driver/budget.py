"""A budget of temporary memory: plan, compile, read what XLA takes, and plan again until it fits."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar, cast

from rematc.compiler.driver.lowered import Compiled, Lowered
from rematc.compiler.functions.policies import check_kept_names
from rematc.compiler.reports.budget import BudgetReport, log_plan
from rematc.compiler.reports.slices import asked_of
from rematc.compiler.tracing.user_location import user_location
from rematc.ir.errors import CompileError
from rematc.lowering.pipeline import make_program
from rematc.lowering.planning import (
    Amount,
    Budget,
    GraphPlanner,
    UnreachableBudgetError,
    budget_bytes,
    having_another_way,
    scaled,
)
from rematc.lowering.slicing import AUTO, NEEDED, Slices, fitting_slices, too_large_whole
from rematc.passes.planning.constraints import FREE, Constraints
from rematc.passes.planning.plan import Plan

T = TypeVar("T")

COMPILATIONS = 5
#: Of how many of them XLA is expected to take what its model says; the others leave room for what it took of these.
_AS_EXPECTED = 2
#: What part of the budget stays free where the first plan did not fit.
_MARGIN = 50
#: How often numbers of slices are tried where none, or `auto`, did not fit, and how many times as many there are each.
_MORE, _STEP = 2, 4


class Planner(GraphPlanner):
    """Plans of a function that was lowered without one."""

    def __init__(self, lowered: Lowered, seconds: float | None = None, constraints: Constraints = FREE) -> None:
        graph, donated = lowered.traced.graph, lowered.donated
        super().__init__(
            graph,
            lowered.target,
            seconds=seconds,
            constraints=constraints,
            donated=donated,
            shardings=lowered.shardings,
            slices=asked_of(lowered.slices),
        )
        check_kept_names(constraints.keep, self.before.graph, lowered.program.name)
        self._lowered = lowered

    def free(self) -> int:
        """As of any graph; arguments that are on no device yet are going to take some of it."""
        return max(0, super().free() - self._lowered.bytes_to_place())

    def lower(self, plan: Plan, budget: int) -> Lowered:
        """The function with a plan of its own, for a budget of so many bytes."""
        passed, lowered = self.passed(plan), self._lowered
        program = make_program(passed.graph, lowered.traced.constants, lowered.target, lowered.traced.choice)
        timings = (*lowered.timings, *self.before.records, *passed.records)
        report = BudgetReport(plan, budget)
        return dataclasses.replace(lowered, graph=passed.graph, program=program, timings=timings, budget=report)


def budget_argument(budget: object, policy: object) -> Budget | None:
    """The budget that users give a derivative. Raises CompileError, at their line, for what is none, or both."""
    if budget is None:
        return None
    if policy is not None:
        raise CompileError(
            "a derivative has a policy or a budget: a budget decides itself what is computed again. Leave out one of "
            "them; a policy on a part of the function is checkpoint(part, policy=...)",
            user_location(),
        )
    with at_users_line():
        return Budget.of(cast("Budget | Amount", budget))


def plan_part(planner: GraphPlanner, budget: Budget, function: str) -> BudgetReport:
    """A plan for a derivative that may be a part of a program: by the prediction alone, with room for its error.

    It is logged to `rematc.plans` at level INFO. Raises CompileError, at the user's line, where none fits.
    """
    with at_users_line(), looking_for_slices(planner):
        check_kept_names(budget.keep, planner.before.graph, function)
        wanted = planner.wanted(budget)
        report = BudgetReport(planner.predicted_within(wanted), wanted, function=function)
    log_plan(report)
    return report


@contextmanager
def at_users_line() -> Iterator[None]:
    """Errors without a place have the user's line that is running."""
    try:
        yield
    except CompileError as error:
        error.loc = error.loc or user_location()
        raise


@contextmanager
def looking_for_slices(planner: GraphPlanner) -> Iterator[None]:
    """The error of a budget that no plan meets can tell with how many slices one is predicted to."""
    try:
        yield
    except UnreachableBudgetError as error:
        error.find_slices = functools.partial(fitting_slices, planner, error.budget)
        error.is_constrained, error.is_in_slices = planner.is_constrained, planner.is_in_slices
        raise


def with_more_slices(slices: Slices, make: Callable[[Slices], T]) -> T:
    """What `make` gives for these slices, or for more of them where it is said that they are chosen, and none fits.

    `needed` is none at first, and then `auto` where no plan was expected to fit. `auto` is chosen by what is predicted.
    Where no plan fits so, there are as many slices as are predicted to help, and then four times as many, `_MORE` times
    in all. Where no plan without slices is near the budget, the smallest one is looked for after all that.

    Raises the error with fewest bytes where none of that helps, and for a number of slices, or none, and where the
    plan must not repeat something, one that says how many would.
    """
    try:
        with having_another_way(slices == NEEDED):
            return make(slices)
    except UnreachableBudgetError as error:
        first = error
    errors = [] if first.is_far else [first]
    for further in _further(slices, first):
        try:
            with too_large_whole(further != slices):
                return make(further)
        except UnreachableBudgetError as error:
            errors.append(error)
            if first.is_far and not error.is_in_slices:
                break  # the smallest plan was looked for
        except CompileError:
            if further == slices:
                raise  # it has no slices, and something else is wrong
            # So many slices are none, or save nothing.
    raise min(errors, key=lambda one: one.reached)


def _further(slices: Slices, error: UnreachableBudgetError) -> Iterator[Slices]:
    """What is tried where these slices fail. Raises the error, with a way out, where no others may be chosen."""
    if error.is_far:
        yield AUTO
    count = error.find_slices()
    if count is not None:
        # What runs in slices may run again, whatever the plan of it may not repeat.
        if slices not in (AUTO, NEEDED) or (slices == NEEDED and error.is_constrained):
            message = f"{error.message}\nWith slices={count} a plan is predicted to fit: add that, or slices='auto'"
            raise UnreachableBudgetError(message, error.budget, error.expected, error.reached, error.loc)
        if slices == NEEDED and not error.is_far and error.expected > error.budget:
            yield AUTO
        for power in range(_MORE):
            yield count * _STEP**power
    if error.is_far:
        yield slices


def lower_within(lowered: Lowered, budget: Budget, seconds: float | None = None) -> Lowered:
    """A function that was lowered, with a plan that is predicted to be within a budget.

    After so many seconds of planning no plan is improved any more.

    Raises CompileError where none was found.
    """
    planner = Planner(lowered, seconds, budget.constraints)
    wanted = planner.wanted(budget)
    with looking_for_slices(planner):
        return planner.lower(planner.predicted_within(wanted), wanted)


def compile_within(lowered: Lowered, budget: Budget, seconds: float | None = None) -> Compiled:
    """Compile a function that was lowered so that the memory that XLA takes is within a budget; see `first_within`.

    After so many seconds of planning no plan is improved any more.
    """
    planner = Planner(lowered, seconds, budget.constraints)

    def compiled(plan: Plan, wanted: int) -> tuple[Compiled, int]:
        made = planner.lower(plan, wanted).compile()
        return made, made.memory().temp_bytes

    with looking_for_slices(planner):
        made, report = first_within(planner, budget, lambda: lowered.compile().memory().temp_bytes, compiled)
    return with_figures(made, report.compilations)


def first_within(
    planner: GraphPlanner,
    budget: Budget,
    whole: Callable[[], int],
    compiled: Callable[[Plan, int], tuple[T, int]],
) -> tuple[T, BudgetReport]:
    """The first program of which XLA takes no more than a budget, and its plan.

    At most `COMPILATIONS` plans are compiled, each for less than the one before it. A percentage is of what XLA takes
    for the function without a plan, which is compiled once more for that.

    Args:
        planner: makes the plans.
        budget: what is asked for.
        whole: compiles the program without a plan; the bytes that XLA takes.
        compiled: compiles a plan for a budget of so many bytes; what it gives, and the bytes that XLA takes.

    Raises CompileError where none of them fits.
    """
    actual = planner.peak

    def measured_whole() -> int:
        nonlocal actual
        actual = whole()
        planner.measured_whole(actual)
        return actual

    wanted = budget_bytes(budget.amount, measured_whole, planner.free)
    planner.refuse_far(wanted)
    target = scaled(wanted, planner.peak, actual)
    attempts: list[_Attempt] = []
    ratio = 1.0
    for count in range(1, COMPILATIONS + 1):
        aim = wanted if count == 1 else wanted - wanted // _MARGIN
        plan = planner.expected_within(target, aim, ratio)
        if _is_tried(plan, attempts):
            ratio = _more_than_expected(attempts)
            plan = planner.expected_within(target, aim, ratio)
        if _is_tried(plan, attempts):
            plan = planner.smallest
            if _is_tried(plan, attempts):
                break
        expected = planner.expected(plan)
        made, measured = compiled(plan, wanted)
        if measured <= wanted:
            return made, BudgetReport(plan, wanted, measured, count)
        attempts.append(_Attempt(plan, expected, measured))
        planner.measured(plan, measured)
        # Of one plan XLA may take more than its model says, and of the next not.
        if count >= _AS_EXPECTED:
            ratio = _more_than_expected(attempts)
        target = scaled(plan.peak, aim, measured)
    nearest = min(attempts, key=lambda attempt: attempt.measured)
    raise planner.unreachable(wanted, nearest.plan, nearest.expected, nearest.measured)


@dataclasses.dataclass(frozen=True, slots=True)
class _Attempt:
    """A plan that was compiled: the bytes of temporary memory that were expected of it, and those that XLA takes."""

    plan: Plan
    expected: int
    measured: int


def _is_tried(plan: Plan, attempts: Sequence[_Attempt]) -> bool:
    return any(plan.does_as(attempt.plan) for attempt in attempts)


def _more_than_expected(attempts: Sequence[_Attempt]) -> float:
    """How many times what is expected of it XLA took for a plan, at most."""
    return max(attempt.measured / max(1, attempt.expected) for attempt in attempts)


def with_figures(compiled: Compiled, compilations: int) -> Compiled:
    """What was compiled with a plan, its report with what XLA takes; so many plans were compiled."""
    report = compiled.lowered.budget
    assert report is not None, "the planner gave it"
    report = dataclasses.replace(report, measured=compiled.memory().temp_bytes, compilations=compilations)
    return dataclasses.replace(compiled, lowered=dataclasses.replace(compiled.lowered, budget=report))
