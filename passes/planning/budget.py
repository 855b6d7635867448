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


@dataclass(frozen=True)
class Found:
    """A plan for a budget.

    Attributes:
        problem: what is planned.
        budget: the bytes that were asked for.
        stages: the plan; where none was found that fits, the one with the smallest peak.
        run: what it takes.
        known: `bound`, where it is known already.
    """

    problem: Problem
    budget: int
    stages: Stages
    run: Run
    known: int | None

    @functools.cached_property
    def bound(self) -> int:
        """Nanoseconds below which no plan for the budget is; where none was found, those without running again."""
        least = int(self.problem.cost.sum())
        if not self.is_feasible or self.run.time <= least:
            return least
        return bound(self.problem, self.budget) if self.known is None else self.known

    @functools.cached_property
    def held(self) -> tuple[int, ...]:
        """The values that are live at the peak."""
        return Timeline(self.problem, self.stages).held(self.run.at) if len(self.run.steps) else ()

    @property
    def is_feasible(self) -> bool:
        """Whether the plan is within the budget."""
        return self.run.peak <= self.budget

    @property
    def gap(self) -> float:
        """How far from the optimum the plan is at most, as a part of the bound."""
        return self.run.time / self.bound - 1 if self.bound else 0.0


class Chained:
    """The chained plans of a problem, for all budgets: they are found once, when the first one asks.

    Attributes:
        problem: what is planned.
        smallest: of all plans the one with the smallest peak that is found, once somebody had the time to look for it.
        nearest: bytes of the smallest peak of all plans that were looked at so far, for any budget.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.smallest: tuple[Run, Stages] | None = None
        self.nearest: int | None = None
        self._simulator = Simulator(problem)
        self._plans: dict[int, tuple[Run, Stages]] = {}

    @functools.cached_property
    def _programme(self) -> Programme | None:
        chain = chain_of(self.problem)
        return Programme(self.problem, chain) if chain else None

    @functools.cached_property
    def _amounts(self) -> list[int]:
        return self._programme.amounts() if self._programme else []

    def around(self, budget: int) -> tuple[list[tuple[Run, Stages]], list[tuple[Run, Stages]]]:
        """The first plan that takes as much as a budget, simulated, and the one after it; all that are looked at."""
        seen: dict[int, tuple[Run, Stages]] = {}

        def peak(level: int) -> int:
            seen[level] = self._plan(level)
            return seen[level][0].peak

        low = bisect_left(self._amounts, budget, key=peak)
        found = {level: self._plan(level) for level in self._amounts[low : low + 2]}
        return list(found.values()), list((seen | found).values())

    def _plan(self, level: int) -> tuple[Run, Stages]:
        if level not in self._plans:
            assert self._programme is not None, "there are levels"
            stages = self._programme.plan(level)
            self._plans[level] = self._simulator.run(stages), stages
        return self._plans[level]


def fitting_plan(
    problem: Problem, budget: int, *, seconds: float | None = None, chained: Chained | None = None
) -> Found | None:
    """`plan_for_budget`, or None where nothing fits; `chained` are the problem's, where another budget had them."""
    search = _Search(problem, seconds, chained)
    search.fit_at(budget)
    return search.fitting(budget)


def plan_for_budget(
    problem: Problem,
    budget: int,
    *,
    seconds: float | None = None,
    progress: Callable[[str], None] | None = None,
    chained: Chained | None = None,
) -> Found:
    """The fastest plan that was found whose simulated peak is at most the budget, in bytes.

    Without `seconds` the same problem gives the same plan; after so many of them nothing more is tried. Where nothing
    fits, the plan is that with the smallest peak that was found.
    """
    return _Search(problem, seconds, chained).along([budget], progress)[0]


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
    search.halve()
    smallest, whole = search.found(0).run.peak, Simulator(problem).run().peak
    budgets = [smallest + (whole - smallest) * place // max(1, count - 1) for place in range(count)]
    return list({found.stages: found for found in search.along(budgets, progress)}.values())


class _Search:
    """Plans of one problem for one budget after another, in so many seconds."""

    def __init__(self, problem: Problem, seconds: float | None, chained: Chained | None = None) -> None:
        self.problem = problem
        self._deadline = None if seconds is None else monotonic() + seconds
        self._simulator = Simulator(problem)
        self._plans: list[tuple[Run, Stages]] = []
        self._bounds: dict[int, int] = {}
        self._chained = Chained(problem) if chained is None else chained
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
        self.fit_at(budget)
        if not self._fitting(budget) and not self._is_over():
            self._plans.append(self._smallest)

    def halve(self) -> None:
        """Look for plans of the smallest peak."""
        self.fit_at(0)
        low = 0
        for _ in range(HALVINGS):
            middle = (low + min(run.peak for run, _ in self._plans)) // 2
            self.fit_at(middle)
            if not self._fitting(middle):
                low = middle
            if self._is_over():
                return
        self._chained.smallest = min(self._plans, key=lambda plan: plan[0].peak)

    @property
    def _smallest(self) -> tuple[Run, Stages]:
        """The plan with the smallest peak that is found, whatever else was looked for: who asks for it, gets it."""
        if self._chained.smallest is not None:
            return self._chained.smallest
        left = None if self._deadline is None else self._deadline - monotonic()
        search = _Search(self.problem, left, self._chained)
        search.halve()
        return min(search._plans, key=lambda plan: plan[0].peak)

    def fit_at(self, budget: int) -> None:
        """Look for plans within a budget."""
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
        found = self.fitting(budget)
        if found is not None:
            return found
        over = self._is_over()
        run, stages = min(self._plans, key=lambda plan: plan[0].peak) if over else self._smallest
        return Found(self.problem, budget, stages, run, None)

    def fitting(self, budget: int) -> Found | None:
        """The best plan so far within a budget; None where there is none."""
        for run, stages in self._fitting(budget)[:1]:
            return Found(self.problem, budget, stages, run, self._bounds.get(budget))
        return None

    def _add(self, stages: Stages) -> tuple[Run, Stages]:
        run = self._simulator.run(stages)
        nearest = self._chained.nearest
        self._chained.nearest = run.peak if nearest is None else min(nearest, run.peak)
        self._plans.append((run, stages))
        return self._plans[-1]

    def _seeds(self, budget: int) -> list[Stages]:
        """What to start from: all kept, the best so far that fits, and chained plans that take a little more."""
        around, seen = self._chained.around(budget)
        known = {stages for _, stages in self._plans}
        self._plans += [plan for plan in seen if plan[1] not in known]
        seeds = [stages for _, stages in around]
        if len(self.problem.cost) > LARGE:
            return [AS_IT_STANDS]
        best = [stages for _, stages in self._fitting(budget)[:1]]
        return list(dict.fromkeys([AS_IT_STANDS, *seeds, *best]))
