"""What is wanted of a plan: to fit a budget, or to be the one that was made before."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from rematc.compiler.driver.budget import Planner, compile_within, lower_within, with_figures, with_more_slices
from rematc.compiler.driver.lowered import Compiled, Lowered
from rematc.ir.errors import CompileError
from rematc.lowering.planning import Amount, Budget, UnreachableBudgetError
from rematc.lowering.slicing import NEEDED, Slices
from rematc.passes.planning.plan import Plan

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A budget, or a plan; neither for a program that is not planned.

    Attributes:
        budget: the temporary memory that a program may take.
        plan: how it is to run.
        seconds: after how many of planning for the budget no plan is improved any more.

    Raises CompileError for both, and for seconds without a budget.
    """

    budget: Budget | None = None
    plan: Plan | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.budget is not None and self.plan is not None:
            raise CompileError("a plan is for a budget already; leave out budget, or plan")
        if self.seconds is not None and self.budget is None:
            raise CompileError("seconds of planning are spent on a budget; add budget, or leave out plan_seconds")
        if self.seconds is not None and not self.seconds > 0:
            raise CompileError(f"plan_seconds is a number above 0, got {self.seconds}")

    @property
    def is_planned(self) -> bool:
        """Whether there is to be a plan."""
        return self.budget is not None or self.plan is not None

    @classmethod
    def of(
        cls, budget: Budget | Amount | None, plan: Plan | str | os.PathLike[str] | None, seconds: float | None = None
    ) -> Wanted:
        """What users ask for; a plan may be the name of a file that holds its JSON.

        Raises CompileError for what is no plan, and for both.
        """
        if isinstance(plan, (str, os.PathLike)):
            plan = Plan.read(plan)
        if plan is not None and not isinstance(plan, Plan):
            raise CompileError(f"{plan!r} is no plan; pass a rematc.Plan, or the name of a file that holds its JSON")
        return cls(None if budget is None else Budget.of(budget), plan, seconds)

    def slices_for(self, slices: Slices) -> Slices:
        """In how many slices the program is to run: where nobody says, a plan that was made before does."""
        asked = self.plan.slices if slices == NEEDED and self.plan is not None else None
        return slices if asked is None else asked

    def of_bytes(self, amount: int) -> Wanted:
        """The same with a budget of so many bytes."""
        assert self.budget is not None, "a plan is as it is"
        return replace(self, budget=replace(self.budget, amount=amount))

    def lower(self, lowered: Lowered) -> Lowered:
        """A function that was lowered without a plan with the one that is wanted, by the prediction alone.

        Raises CompileError where no plan fits the budget, and for a plan of another program.
        """
        if self.plan is not None:
            planner = Planner(lowered)
            return planner.lower(planner.own(self.plan), self.plan.budget)
        return lowered if self.budget is None else lower_within(lowered, _of(self.budget, lowered), self.seconds)

    def compile(self, lowered: Lowered) -> Compiled:
        """The same compiled, within the budget as XLA takes it; a plan that is given is compiled as it is."""
        if self.budget is not None:
            return compile_within(lowered, _of(self.budget, lowered), self.seconds)
        compiled = self.lower(lowered).compile()
        return compiled if self.plan is None else with_figures(compiled, 1)


def made_in_slices(
    slices: Slices, lower: Callable[[Slices], tuple[Lowered, Wanted]], make: Callable[[Wanted, Lowered], T]
) -> T:
    """What is made of a function that is lowered without a plan, in as many slices as are asked for, or needed.

    What a budget was in bytes where none fitted, it is in each further try.
    """
    unmet: int | None = None

    def made(slices: Slices) -> T:
        nonlocal unmet
        lowered, wanted = lower(slices)
        try:
            return make(wanted if unmet is None else wanted.of_bytes(unmet), lowered)
        except UnreachableBudgetError as error:
            unmet = error.budget
            raise

    return with_more_slices(slices, made)


def _of(budget: Budget, lowered: Lowered) -> Budget:
    """A budget of a program: in percent it is of what the program takes without slices."""
    return budget if lowered.slices is None else budget.of_whole(lowered.slices.whole)
