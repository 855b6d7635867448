"""Plans of one graph: how much its loops compute again, and in which stages the program around them runs."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import monotonic

from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.passes.accounting import products_of
from rematc.passes.planning.addressing import program_of
from rematc.passes.planning.apply import apply
from rematc.passes.planning.bound import bound
from rematc.passes.planning.budget import Chained, Found, fitting_plan, plan_for_budget, whole_curve
from rematc.passes.planning.constraints import FREE, Constraints, Form
from rematc.passes.planning.loop_levels import (
    Decisions,
    chains,
    drops_in_loops,
    ends,
    in_same_chunks,
    least_step,
    loop_levels,
)
from rematc.passes.planning.loops import LoopDecision, with_decisions
from rematc.passes.planning.narrow_products import hold_narrow
from rematc.passes.planning.plan import Bound, Plan, WithoutRecomputation
from rematc.passes.planning.planned_loops import planned_loops
from rematc.passes.planning.planned_program import PlannedProgram
from rematc.passes.planning.problem import Stages, least_peak, simulate
from rematc.passes.planning.shards import Machine
from rematc.passes.planning.staged_bodies import BodyPlans
from rematc.passes.planning.summary import backward_begin
from rematc.passes.planning.translation import Regions, Translation, translate


@dataclass(frozen=True)
class _Way:
    """The graph with what its loops compute again."""

    decisions: tuple[LoopDecision, ...]
    constraints: Constraints
    graph: Graph
    translation: Translation

    @functools.cached_property
    def program(self) -> PlannedProgram:
        return program_of(self.translation)

    @functools.cached_property
    def time(self) -> int:
        """Nanoseconds in which nothing outside of loops runs again."""
        return int(self.translation.problem.cost.sum())

    @functools.cached_property
    def chained(self) -> Chained:
        """The chained plans, which all budgets share."""
        return Chained(self.translation.problem)

    @functools.cached_property
    def least_peak(self) -> int:
        """Bytes that every plan takes: some kernel needs them by itself."""
        return least_peak(self.translation.problem)

    @property
    def nearest(self) -> int:
        """Bytes of the smallest plan that was looked at; those that every plan takes where none was."""
        return self.least_peak if self.chained.nearest is None else self.chained.nearest


class Planner:
    """Plans of a flat graph, forward and backward in one, on a device, or on several.

    Attributes:
        peak: bytes that the graph takes without a plan, simulated.
    """

    def __init__(
        self,
        graph: Graph,
        machine: Machine,
        seconds: float | None = None,
        constraints: Constraints = FREE,
        forms: Mapping[Form, Graph] | None = None,
    ) -> None:
        """After so many `seconds` of planning, in all, no plan is improved any more; `constraints` are its plans'.

        `forms` are others of the graph, of the same values.
        """
        self._graphs = {Form.NONE: graph, **(forms or {})}
        self._machine, self._seconds, self._constraints = machine, seconds, constraints
        self._regions = Regions(machine)
        self._deadline: float | None = None
        self._levels: dict[Form, list[Decisions]] = {}
        self._staged_levels: dict[tuple[Form, Decisions, int, int], list[Decisions]] = {}
        self._ways: dict[tuple[tuple[LoopDecision, ...], Constraints], _Way] = {}
        self._smallest: dict[bool, tuple[_Way, Found]] = {}
        self._least_fitting: dict[bool, int] = {}
        self.peak = simulate(self._way((), constraints).translation.problem).peak

    @functools.cached_property
    def _without_recomputation(self) -> WithoutRecomputation:
        """What the program takes then; of its own checkpoints taken apart as far as they can be."""
        *_, form = [form for form in self._graphs if form not in (Form.IN_STEPS, Form.BRANCHES)]
        translation = self._way((), replace(self._constraints, form=form)).translation
        run = simulate(translation.problem)
        flops = translation.flops(range(len(translation.problem.cost)))
        return WithoutRecomputation(run.peak, run.time, flops, products_of(translation.graph))

    def plan(self, budget: int, *, in_small_steps: bool = False) -> Plan:
        """The fastest plan for so many bytes, or the one with the smallest peak.

        Steps of loops that take little of what the program takes may take much of a budget. They run in stages only if
        they may `in_small_steps`: backends know less of what that takes.
        """
        with self._taking_time():
            best = self._fastest_within(budget, in_small_steps)
            if best is None:
                way, found = self._smallest.get(in_small_steps) or self._found_smallest(in_small_steps)
                if self._seconds is None:  # without time for more this one may be larger than that of another try
                    self._smallest[in_small_steps] = way, found
                best = way, replace(found, budget=budget, known=None)
        return self._as_plan(*best)

    def fitting(self, budget: int, *, in_small_steps: bool = False) -> Plan | None:
        """`plan`, but None where none fits: the one with the smallest peak is not looked for, which takes long."""
        with self._taking_time():
            best = self._fastest_within(budget, in_small_steps)
        return None if best is None else self._as_plan(*best)

    @property
    def nearest(self) -> int:
        """Bytes that the smallest of all plans takes that were looked at so far, or more than which each must take."""
        return min(way.nearest for way in self._ways.values())

    @contextmanager
    def _taking_time(self) -> Iterator[None]:
        self._deadline = None if self._seconds is None else monotonic() + self._seconds
        yield
        if self._deadline is not None:
            self._seconds = max(0.0, self._deadline - monotonic())

    def _fastest_within(self, budget: int, in_small_steps: bool) -> tuple[_Way, Found] | None:
        """What is fastest within so many bytes; None, at once, where that was known to be too little."""
        known = self._smallest.get(in_small_steps)
        least = self._least_fitting.get(in_small_steps, 1) if known is None else known[1].run.peak
        if budget < least:
            return None
        best = self._fastest_for(budget, in_small_steps)
        if best is None and self._seconds is None:
            self._least_fitting[in_small_steps] = budget + 1
        return best

    def has_small_steps(self, budget: int) -> bool:
        """Whether there are steps that take much of a budget, and little of what the program takes."""
        least, most = least_step(min(self.peak, budget)), least_step(self.peak)
        graphs = [self._way(self._levels_of(mode)[-1], mode).graph for mode in self._modes]
        return any(self._bodies.has_levels(graph, least, most) for graph in graphs)

    def _fastest_for(self, budget: int, in_small_steps: bool) -> tuple[_Way, Found] | None:
        """What is fastest within so many bytes; None where nothing is."""
        best: tuple[_Way, Found] | None = None
        for constraints in self._modes:
            for alike in in_same_chunks(self._levels_of(constraints)):
                for chain in chains(alike):
                    best = self._fastest_of_levels(constraints, chain, budget, best)
        is_found = best is not None
        whole = min(self.peak, budget) if in_small_steps else self.peak
        for constraints in self._modes:
            for alike in in_same_chunks(self._levels_of(constraints)):
                # What fits without stages fits as well where no loop drops anything: stages in steps hardly help there.
                levels = [level for level in alike if not is_found or drops_in_loops(level)]
                if levels:
                    best = self._fastest_staged(constraints, levels, budget, best, least_step(whole))
        return best

    @functools.cached_property
    def _modes(self) -> tuple[Constraints, ...]:
        """What is in memory: as kernels have it, and with partial sums, where there are any.

        And of the program as it is, and in its other forms.
        """
        first = [replace(self._constraints, form=form) for form in self._graphs]
        modes = [mode for one in first for mode in (one, replace(one, sums=True))]
        return tuple([mode for mode in modes if not mode.sums or self._way((), mode).translation.pinned])

    def _graph_of(self, constraints: Constraints) -> Graph:
        """The graph in the form that the constraints say."""
        found = self._graphs.get(constraints.form)
        if found is None:
            raise CompileError("the plan is of another program: it is planned in a form that this one has not")
        return found

    def _levels_of(self, constraints: Constraints) -> list[Decisions]:
        found = self._levels.get(constraints.form)
        if found is None:
            graph = self._graph_of(constraints)
            found = self._levels[constraints.form] = loop_levels(graph, self._machine, self._constraints)
        return found

    def _fastest_of_levels(
        self, constraints: Constraints, levels: Sequence[Decisions], budget: int, best: tuple[_Way, Found] | None
    ) -> tuple[_Way, Found] | None:
        """As `_fastest_of`, of levels each of which drops more than the one before it.

        The more is dropped, the less is held, and the more runs again. So the one that drops least of those that fit is
        looked for by halving; and then what is faster of those that drop more: around their loops less runs again, and
        fewer bytes are moved. If neither end fits, nothing between is tried: whatever holds the peak up is outside of
        the loops, or in a kernel of theirs.
        """
        tried = dict.fromkeys([levels[-1], levels[0]])
        best, failed = self._fastest_of(constraints, tried, budget, best)
        first, last = 1, len(levels) - 2
        if failed == len(tried):
            return best
        while first <= last:
            place = (first + last) // 2
            tried[levels[place]] = None
            # What takes more time than the best so far drops too much, too.
            best, failed = self._fastest_of(constraints, [levels[place]], budget, best)
            first, last = (place + 1, last) if failed else (first, place - 1)
        further = [level for level in levels[first:] if level not in tried]
        return self._fastest_of(constraints, further, budget, best)[0]

    def _fastest_staged(
        self,
        constraints: Constraints,
        levels: Sequence[Decisions],
        budget: int,
        best: tuple[_Way, Found] | None,
        least: int,
    ) -> tuple[_Way, Found] | None:
        """As `_fastest_of`, with stages in bodies, of `least` bytes and more, of loops that drop more and more.

        The less they drop, the less is left for a step, and the more runs again in it. Where one of the ends fits, what
        drops least of what is before it is looked for by halving.
        """
        begin = 0
        for end in ends(levels):
            first, last = begin, levels.index(end)
            begin = last + 1
            place = last
            while first <= last:
                way = self._way(levels[place], constraints)
                is_enough = best is not None and best[1].run.time <= way.time
                if not is_enough:
                    staged = self._staged(constraints, levels[place], budget, least)
                    best, failed = self._fastest_of(constraints, staged, budget, best)
                    is_enough = failed < len(staged)
                if place == begin - 1 and not is_enough:
                    break
                first, last = (first, place - 1) if is_enough else (place + 1, last)
                place = (first + last) // 2
        return best

    def _fastest_of(
        self, constraints: Constraints, levels: Iterable[Decisions], budget: int, best: tuple[_Way, Found] | None
    ) -> tuple[tuple[_Way, Found] | None, int]:
        """What is fastest within so many bytes of these levels and what was found before; None where nothing is.

        And of how many levels no plan is within them.
        """
        failed = 0
        for decisions in levels:
            if self._left == 0:
                break
            way = self._way(decisions, constraints)
            if best is not None and best[1].run.time <= way.time:
                continue
            if way.least_peak > budget:
                failed += 1
                continue
            found = fitting_plan(way.translation.problem, budget, seconds=self._left, chained=way.chained)
            failed += found is None
            if found is not None and (best is None or _merit(found) < _merit(best[1])):
                best = way, found
        return best, failed

    def _found_smallest(self, in_small_steps: bool) -> tuple[_Way, Found]:
        """What takes least memory of all levels.

        Of each further one, first a plan is looked for that takes less than the best so far.
        """
        best: tuple[_Way, Found] | None = None
        for constraints in self._modes:
            # The last level frees most: where no time is left, it is the only one.
            levels = self._levels_of(constraints)
            staged = (
                self._smallest_staged(constraints, level, in_small_steps)
                for one in in_same_chunks(levels)
                for level in ends(one)
            )
            for decisions in itertools.chain(reversed(levels), *staged):
                best = self._smaller(self._way(decisions, constraints), best)
        assert best is not None, "there is a level without recomputation"
        return best

    def _smaller(self, way: _Way, best: tuple[_Way, Found] | None) -> tuple[_Way, Found] | None:
        """What takes least memory of one way and what was found before."""
        problem, chained = way.translation.problem, way.chained
        if best is not None:
            less = best[1].run.peak - 1
            if self._left == 0 or way.least_peak > less:
                return best
            if fitting_plan(problem, less, seconds=self._left, chained=chained) is None:
                return best
        found = plan_for_budget(problem, 0, seconds=self._left, chained=chained)
        return (way, found) if best is None or _merit(found) < _merit(best[1]) else best

    @property
    def seconds_left(self) -> float | None:
        """Seconds of planning that no plan has taken yet; None where there is no end."""
        return self._seconds

    @property
    def _left(self) -> float | None:
        """Seconds that are left; None where there is no end."""
        return None if self._deadline is None else max(0.0, self._deadline - monotonic())

    def _staged(self, constraints: Constraints, level: Decisions, budget: int, least: int) -> list[Decisions]:
        """A level with stages in bodies of `least` bytes and more for a budget: the same for each mode of one form."""
        key = constraints.form, level, budget, least
        if key not in self._staged_levels or self._seconds is not None:
            graph = self._graph_of(constraints)
            self._staged_levels[key] = list(self._bodies.levels(graph, level, least, budget))
        return self._staged_levels[key]

    def _smallest_staged(self, constraints: Constraints, level: Decisions, in_small_steps: bool) -> list[Decisions]:
        """A level with stages in bodies that are as small as they can be."""
        way = self._way(level, constraints)
        whole = simulate(way.translation.problem).peak if in_small_steps else self.peak
        return self._staged(constraints, level, 0, least_step(whole))

    @functools.cached_property
    def _bodies(self) -> BodyPlans:
        return BodyPlans(self._regions, self._constraints, lambda: self._left)

    @functools.cached_property
    def _is_flat(self) -> bool:
        """Whether nothing is computed again in loops, and there is one mode."""
        is_staged = self._bodies.has_levels(self._graphs[Form.NONE], least_step(self.peak))
        return len(self._levels_of(self._constraints)) == 1 and not is_staged and len(self._modes) == 1

    def curve(self, count: int) -> list[Plan]:
        """Plans from the smallest peak to that without recomputation, so many or fewer."""
        if self._is_flat:
            start, problem = monotonic(), self._way((), self._constraints).translation.problem
            found = whole_curve(problem, count, seconds=self._seconds)
            if self._seconds is not None:
                self._seconds = max(0.0, self._seconds - (monotonic() - start))
            return [self._as_plan(self._way((), self._constraints), each) for each in found]
        least, most = self.plan(0).peak, max(self.peak, self._without_recomputation.peak)
        budgets = [least + (most - least) * point // max(1, count - 1) for point in range(count)]
        plans = [self.plan(budget) for budget in dict.fromkeys(budgets)]
        # What was found for less is there for more.
        for index in range(1, len(plans)):
            if plans[index - 1].time < plans[index].time:
                plans[index] = replace(plans[index - 1], budget=plans[index].budget)
        return plans

    @functools.cached_property
    def _fastest(self) -> int:
        ways = [self._way(decisions, mode) for mode in self._modes for decisions in self._levels_of(mode)]
        return min(way.time for way in ways)

    def _bound(self, found: Found) -> int:
        """That of a plan without loops: none is faster within its budget in any mode."""
        least = found.bound
        for way in [self._way((), mode) for mode in self._modes]:
            problem = way.translation.problem
            if problem is not found.problem and way.time < least:
                is_fitting = simulate(problem).peak <= found.budget
                least = way.time if is_fitting else min(least, bound(problem, found.budget))
        return least

    def own(self, plan: Plan) -> Plan:
        """A plan that was made before as one of this graph. Raises CompileError for one of another program."""
        return plan.of(self._way(plan.decisions, plan.constraints).program)

    def applied(self, plan: Plan) -> Graph:
        """The graph that runs as planned, its recomputation in regions. Raises CompileError as `own` does."""
        own = self.own(plan)
        stages = own.stages
        begin = backward_begin(own.program)
        if plan.loops and not stages.begins and 0 < begin < len(own.program.kernels):
            # One barrier in the middle: the program around the loops is arranged as programs are that recompute.
            stages = Stages((begin,), ((),))
        graph = apply(self._way(plan.decisions, plan.constraints).translation, stages)
        is_widened_once = plan.recomputes and not self._machine.device.fusion.repeats_work
        return hold_narrow(graph) if is_widened_once else graph

    def _way(self, decisions: tuple[LoopDecision, ...], constraints: Constraints) -> _Way:
        key = decisions, constraints
        if key not in self._ways:
            graph = with_decisions(self._graph_of(constraints), decisions)
            self._ways[key] = _Way(decisions, constraints, graph, translate(graph, self._regions, constraints))
        return self._ways[key]

    def _as_plan(self, way: _Way, found: Found) -> Plan:
        def least() -> int:
            # Of loops no bound is known but that all must run once, in one of these ways.
            has_levels = any(len(self._levels_of(mode)) > 1 for mode in self._modes)
            return min(self._fastest, way.time) if has_levels or way.decisions else self._bound(found)

        loops = planned_loops(self._graph_of(way.constraints), way.decisions)
        whole = self._without_recomputation if loops or len(self._graphs) > 1 else None
        return Plan(
            found.budget,
            self._machine.device.name,
            Bound(least),
            found.stages,
            way.program,
            loops,
            whole,
            way.constraints,
        )


def _merit(found: Found) -> tuple[int, int, int]:
    """Less is better: within the budget by time, then by memory; else by memory."""
    run = found.run
    return (0, run.time, run.peak) if found.is_feasible else (1, run.peak, run.time)
