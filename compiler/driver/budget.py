"""A budget of temporary memory: plan, compile, read what XLA takes, and plan again until it fits."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

from rematc.compiler.driver.lowered import Compiled, Lowered
from rematc.compiler.reports.budget import BudgetReport
from rematc.ir.errors import CompileError
from rematc.ir.units import format_bytes
from rematc.lowering.pipeline import BEFORE_PLAN, default_pipeline, make_program, run_passes
from rematc.passes.planning.addressing import program_of
from rematc.passes.planning.apply import apply
from rematc.passes.planning.budget import plan_for_budget
from rematc.passes.planning.device import device_of_platform
from rematc.passes.planning.plan import Plan
from rematc.passes.planning.problem import simulate
from rematc.passes.planning.translation import translate

#: Bytes, `2GiB`, or `50%` of what the program needs without recomputation.
Budget = int | str
COMPILATIONS = 3
#: How many plans are made for each compilation, by what is expected of them; and what part of the budget stays free
#: where the first one did not fit.
_GUESSES, _MARGIN = 4, 50

_UNITS = {"b": 1} | {
    f"{prefix}{unit}".lower(): base ** (power + 1)
    for unit, base in (("iB", 1024), ("B", 1000))
    for power, prefix in enumerate("KMGT")
}
_AMOUNT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(%|[a-z]*)\s*", re.IGNORECASE)


def budget_bytes(budget: Budget, whole: Callable[[], int]) -> int:
    """A budget in bytes; `whole` is asked for what a percentage is of.

    Raises CompileError for what is no budget.
    """
    match = None if isinstance(budget, int) else _AMOUNT.fullmatch(budget)
    if isinstance(budget, int) and not isinstance(budget, bool) and budget >= 0:
        return budget
    if match is not None:
        number, unit = float(match[1]), match[2].lower()
        if unit == "%":
            return int(whole() * number / 100)
        if unit in _UNITS or not unit:
            return int(number * _UNITS.get(unit, 1))
    raise CompileError(f"{budget!r} is no budget; write bytes as a number, '2GiB', '500MB', or '50%'")


class Planner:
    """Plans of a function that was lowered without one."""

    def __init__(self, lowered: Lowered) -> None:
        self._lowered = lowered
        self._passed = run_passes(lowered.traced.graph, BEFORE_PLAN)
        self._device = device_of_platform(lowered.target.platform)
        self._translation = translate(self._passed.graph, self._device)
        self._program = program_of(self._translation)
        self.peak = simulate(self._translation.problem).peak

    def plan(self, budget: int) -> Plan:
        """The fastest plan for so many bytes, or the one with the smallest peak."""
        found = plan_for_budget(self._translation.problem, budget)
        return Plan(budget, self._device.name, found.bound, found.stages, self._program)

    def expected(self, plan: Plan) -> int:
        """Bytes that XLA is expected to take for a plan: on the CPU by a model of what it does with the program."""
        if self._lowered.target.platform != "cpu":
            return plan.peak
        return self.lower(plan, plan.budget).predicted_peak()

    def expected_within(self, target: int, aim: int, ratio: float) -> Plan:
        """The plan for a target, or for less as long as what is expected, times a ratio, is more than is aimed at."""
        for _ in range(_GUESSES):
            plan = self.plan(target)
            expected = int(self.expected(plan) * ratio)
            if expected <= aim or not plan.is_feasible:
                return plan
            target = _scaled(min(target, plan.peak), aim, expected)
        return plan

    def lower(self, plan: Plan, budget: int) -> Lowered:
        """The function with a plan, for a budget of so many bytes.

        Raises CompileError for a plan of another program.
        """
        if plan.program is not self._program:
            plan.check_for(self._program)
        graph = apply(self._translation, plan.stages)
        passed = run_passes(graph, default_pipeline("optimization_barrier"))
        traced = self._lowered.traced
        program = make_program(passed.graph, traced.constants, self._lowered.target, traced.choice)
        report = BudgetReport(plan, budget)
        timings = (*self._lowered.timings, *self._passed.records, *passed.records)
        return dataclasses.replace(self._lowered, graph=passed.graph, program=program, timings=timings, budget=report)

    def unreachable(self, budget: int, plan: Plan, measured: int | None) -> CompileError:
        """The error for a budget that no plan meets, of which this one came nearest."""
        smallest = f"predicted {format_bytes(plan.peak)}"
        if measured is not None:
            smallest = f"{format_bytes(measured)}, {smallest}"
        return CompileError(
            f"no plan was found for {format_bytes(budget)} of temporary memory; the smallest that was reached is "
            f"{smallest}. At its peak it holds\n{plan.describe_held()}"
        )


def lower_within(lowered: Lowered, budget: Budget) -> Lowered:
    """A function that was lowered, with a plan whose predicted memory is within a budget.

    Raises CompileError where none was found.
    """
    planner = Planner(lowered)
    wanted = budget_bytes(budget, lambda: planner.peak)
    plan = planner.plan(wanted)
    if not plan.is_feasible:
        raise planner.unreachable(wanted, plan, None)
    return planner.lower(plan, wanted)


def compile_within(lowered: Lowered, budget: Budget, platform: str | None = None) -> Compiled:
    """Compile a function that was lowered so that the memory that XLA takes is within a budget.

    At most `COMPILATIONS` plans are compiled, each for less than the one before it. A percentage is of what XLA takes
    for the function without a plan, which is compiled once more for that.

    Raises CompileError where none of them fits.
    """
    planner = Planner(lowered)
    actual = planner.peak

    def whole() -> int:
        nonlocal actual
        actual = lowered.compile(platform).memory().temp_bytes
        return actual

    wanted = budget_bytes(budget, whole)
    target = _scaled(wanted, planner.peak, actual)
    attempts: list[tuple[int, Plan]] = []
    ratio = 1.0
    for count in range(1, COMPILATIONS + 1):
        aim = wanted if count == 1 else wanted - wanted // _MARGIN
        plan = planner.expected_within(target, aim, ratio)
        if any(plan.stages == tried.stages for _, tried in attempts):
            plan = planner.plan(0)  # the smallest that there is
            if any(plan.stages == tried.stages for _, tried in attempts):
                break
        compiled = planner.lower(plan, wanted).compile(platform)
        measured = compiled.memory().temp_bytes
        if measured <= wanted:
            return with_figures(compiled, count)
        attempts.append((measured, plan))
        ratio = measured / max(1, planner.expected(plan))
        target = _scaled(min(target, plan.peak), aim, measured)
    smallest, plan = min(attempts, key=lambda attempt: attempt[0])
    raise planner.unreachable(wanted, plan, smallest)


def _scaled(amount: int, part: int, whole: int) -> int:
    return amount * part // whole if whole else amount


def with_figures(compiled: Compiled, compilations: int) -> Compiled:
    """What was compiled with a plan, its report with what XLA takes; so many plans were compiled."""
    report = compiled.lowered.budget
    assert report is not None, "the planner gave it"
    report = dataclasses.replace(report, measured=compiled.memory().temp_bytes, compilations=compilations)
    return dataclasses.replace(compiled, lowered=dataclasses.replace(compiled.lowered, budget=report))
