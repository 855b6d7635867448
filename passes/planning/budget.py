"""The fastest way to run a problem whose peak is within a budget."""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic

from rematc.passes.planning.bound import bound
from rematc.passes.planning.chain import Programme, chain_of
from rematc.passes.planning.eviction import Eviction
from rematc.passes.planning.exact import fastest
from rematc.passes.planning.problem import AS_IT_STANDS, Problem, Run, Simulator, Stages
from rematc.passes.planning.refinement import drop
from rematc.passes.planning.timeline import Timeline

#: From how many nodes on chained plans are taken as they are, and not as starts.
LARGE = 20_000
#: How often the smallest peak is looked for where a budget is too small.
HALVINGS = 4


@dataclass(frozen=True, slots=True)
class Found:
    """A plan for a budget.

    Attributes:
        budget: the bytes that were asked for.
        stages: the plan; where none was found that fits, the one with the smallest peak.
        run: what it takes.
        bound: nanoseconds below which no plan for the budget is; where none was found, those without running again.
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

    Without `seconds` the same problem gives the same plan; after so many of them nothing more is tried. Where nothing
    fits, the plan is that with the smallest peak that was found.
    """
    return curve(problem, [budget], seconds=seconds, progress=progress)[0]


def curve(
    problem: Problem,
    points: Sequence[int],
    *,
    seconds: float | None = None,
    progress: Callable[[str], None] | None = None,
) -> list[Found]:
    """A plan for each of these budgets, in bytes; more budget never costs more time. As `plan_for_budget` otherwise."""
    return _Search(problem, seconds).along(points, progress)


def whole_curve(
    problem: Problem,
    count: int,
    *,
    seconds: float | None = None,
    progress: Callable[[str], None] | None = None,
) -> list[Found]:
    """Plans for so many budgets, evenly from the smallest peak that is found to that without recomputation.

    Each plan is there once, so that there may be fewer. As `curve` otherwise.
    """
    search = _Search(problem, seconds)
    search.fit(0)
    smallest, whole = search.found(0).run.peak, Simulator(problem).run().peak
    budgets = [smallest + (whole - smallest) * place // max(1, count - 1) for place in range(count)]
    return list({found.stages: found for found in search.along(budgets, progress)}.values())


class _Search:
    """Plans of one problem for one budget after another, in so many seconds."""

    def __init__(self, problem: Problem, seconds: float | None) -> None:
        self.problem = problem
        self._deadline = None if seconds is None else monotonic() + seconds
        self._simulator = Simulator(problem)
        self._plans: list[tuple[Run, Stages]] = []
        self._bounds: dict[int, int] = {}
        self._programme: Programme | None = None
        self._amounts: list[int] = []
        self._chained: dict[int, tuple[Run, Stages]] = {}
        self._add(AS_IT_STANDS)

    def along(self, points: Sequence[int], progress: Callable[[str], None] | None) -> list[Found]:
        """The plans of `curve`."""
        found: dict[int, Found] = {}
        for budget in sorted(set(points)):
            self.fit(budget)
            found[budget] = self.found(budget)
            if progress is not None:
                run, stages = found[budget].run, found[budget].stages
                progress(f"{budget} bytes: {run.peak} bytes in {run.time} ns, {len(stages.begins)} stages")
        return [found[budget] for budget in points]

    def fit(self, budget: int) -> None:
        """Look for plans within a budget; where there is none, for that of the smallest peak."""
        self._try(budget)
        if self._fitting(budget) or self._is_over():
            return
        if budget:
            self._plans.append(self._smallest)
            return
        low = 0
        for _ in range(HALVINGS):
            middle = (low + min(run.peak for run, _ in self._plans)) // 2
            self._try(middle)
            if not self._fitting(middle):
                low = middle
            if self._is_over():
                return

    @functools.cached_property
    def _smallest(self) -> tuple[Run, Stages]:
        """The plan with the smallest peak that is found, whatever else was looked for: who asks for it, gets it."""
        search = _Search(self.problem, None if self._deadline is None else self._deadline - monotonic())
        search.fit(0)
        return min(search._plans, key=lambda plan: plan[0].peak)

    def _try(self, budget: int) -> None:
        if self._plans[0][0].peak <= budget:
            return
        answer = fastest(self.problem, budget)
        if answer is not None and answer.stages is not None:
            self._bounds[budget] = self._add(answer.stages)[0].time
        if answer is not None:
            return
        for stages in self._seeds(budget):
            timeline = Timeline(self.problem, stages)
            if Eviction(timeline).fit(budget):
                drop(timeline, budget)
            self._add(timeline.stages())
            if self._is_over():
                return

    def _is_over(self) -> bool:
        return self._deadline is not None and monotonic() > self._deadline

    def _fitting(self, budget: int) -> list[tuple[Run, Stages]]:
        """The plans within a budget, the best one first."""
        plans = [plan for plan in self._plans if plan[0].peak <= budget]
        return sorted(plans, key=lambda plan: (plan[0].time, len(plan[1].begins), plan[0].peak))

    def found(self, budget: int) -> Found:
        """The best plan so far."""
        fitting = self._fitting(budget)
        if fitting:
            run, stages = fitting[0]
        elif budget and not self._is_over():
            run, stages = self._smallest
        else:
            run, stages = min(self._plans, key=lambda plan: plan[0].peak)
        held = Timeline(self.problem, stages).held(run.at) if len(run.steps) else ()
        least = int(self.problem.cost.sum())
        if fitting and run.time > least:
            least = self._bounds[budget] if budget in self._bounds else bound(self.problem, budget)
        return Found(budget, stages, run, least, held)

    def _add(self, stages: Stages) -> tuple[Run, Stages]:
        self._plans.append((self._simulator.run(stages), stages))
        return self._plans[-1]

    def _seeds(self, budget: int) -> list[Stages]:
        """What to start from: all kept, the best so far that fits, and chained plans that take a little more."""
        if self._programme is None:
            chain = chain_of(self.problem)
            self._programme = Programme(self.problem, chain) if chain else None
            self._amounts = self._programme.amounts() if self._programme else []
        low = bisect_left(self._amounts, budget, key=lambda level: self._chain(level)[0].peak)
        seeds = [self._chain(level)[1] for level in self._amounts[low : low + 2]]
        if len(self.problem.cost) > LARGE:
            return [AS_IT_STANDS]
        best = [stages for _, stages in self._fitting(budget)[:1]]
        return list(dict.fromkeys([AS_IT_STANDS, *seeds, *best]))

    def _chain(self, level: int) -> tuple[Run, Stages]:
        if level not in self._chained and self._programme is not None:
            self._chained[level] = self._add(self._programme.plan(level))
        return self._chained[level]
