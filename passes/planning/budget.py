"""The fastest way to run a problem whose peak is within a budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rematc.passes.planning.eviction import Eviction
from rematc.passes.planning.problem import Problem, Run, Simulator, Stages
from rematc.passes.planning.refinement import drop, merge
from rematc.passes.planning.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Found:
    """A plan for a budget.

    Attributes:
        budget: the bytes that were asked for.
        stages: the plan; where none was found that fits, the one with the smallest peak.
        run: what it takes.
        bound: nanoseconds below which no plan for the budget is.
        held: the values that are live at the peak.
    """

    budget: int
    stages: Stages
    run: Run
    bound: int
    held: tuple[int, ...]

    @property
    def is_feasible(self) -> bool:
        """Whether the plan is within the budget."""
        return self.run.peak <= self.budget

    @property
    def gap(self) -> float:
        """How far from the optimum the plan is at most, as a part of the bound."""
        return self.run.time / self.bound - 1 if self.bound else 0.0


def plan_for_budget(
    problem: Problem,
    budget: int,
    *,
    seconds: float | None = None,
    progress: Callable[[str], None] | None = None,
) -> Found:
    """The fastest plan that was found whose simulated peak is at most the budget, in bytes.

    Without `seconds` the same problem gives the same plan.
    """
    return curve(problem, [budget], seconds=seconds, progress=progress)[0]


def curve(
    problem: Problem,
    points: Sequence[int],
    *,
    seconds: float | None = None,
    progress: Callable[[str], None] | None = None,
) -> list[Found]:
    """A plan for each of these budgets, in bytes; more budget never costs more time."""
    simulator = Simulator(problem)
    plans: list[tuple[Run, Stages]] = []
    found: dict[int, Found] = {}
    for budget in sorted(set(points)):
        stages = _evicted(problem, budget)
        plans.append((simulator.run(stages), stages))
        fitting = [plan for plan in plans if plan[0].peak <= budget]
        run, stages = min(fitting or plans, key=lambda plan: plan[0].time if fitting else plan[0].peak)
        found[budget] = Found(budget, stages, run, int(problem.cost.sum()), Timeline(problem, stages).held(run.at))
        if progress is not None:
            progress(f"{budget} bytes: {run.peak} bytes in {run.time} ns, {len(stages.begins)} stages")
    return [found[budget] for budget in points]


def _evicted(problem: Problem, budget: int) -> Stages:
    timeline = Timeline(problem)
    if not Eviction(timeline).fit(budget):
        return timeline.stages()
    drop(timeline, budget)
    merge(timeline)
    return timeline.stages()
