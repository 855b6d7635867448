"""Recomputation in the step of one loop, or in one branch: its body runs in stages, as a program does.

Before:  scan %x {body: %1 = tanh (dot %c, %w)   ...   %8 = dot %7, %1}
Stages:  one begins at %8 and runs %1 again
After:   scan %x {body: %1 = tanh (dot %c, %w)   ...   %8 = checkpoint %c, %w, %7 {is_scheduled, body: %1 again}}

A step that differentiates, as of a loop over parts of a batch whose gradients are summed, or of one that searches along
a line, holds in itself what its own backward pass reads; and so does a branch that differentiates. Nothing is stacked:
what `rematc.passes.planning.loops` plans is not there.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rematc.ir.core import Graph
from rematc.ir.ops.scan.op import Scan
from rematc.passes.kernels import Fusion
from rematc.passes.planning.addressing import kernels_of
from rematc.passes.planning.apply import apply
from rematc.passes.planning.budget import Chained, Found, fitting_plan, plan_for_budget
from rematc.passes.planning.constraints import FREE, Constraints
from rematc.passes.planning.device import CPU
from rematc.passes.planning.loops import LoopDecision, with_decisions
from rematc.passes.planning.planned_program import Kernel, check_stages
from rematc.passes.planning.problem import Problem, Run, Stages, least_peak, simulate
from rematc.passes.planning.region_paths import Inside, Path, bodies, body_at, with_body
from rematc.passes.planning.shards import Machine
from rematc.passes.planning.translation import Regions, Translation, translate

#: How many sizes of steps are tried for a budget.
HALVINGS = 5
#: Where no plan of a step is found for a size, one is looked for that takes less by a part of it: 2 ** -5, then -4, ...
_LESS = (5, 4, 3, 2)


@dataclass(frozen=True, slots=True)
class StagedBody:
    """That each step of a loop runs in stages, or a branch.

    Attributes:
        path: the loops and branches in whose bodies the loop stands, or the branches, from the outside.
        forward: the place of the loop, or of the branches.
        stages: where in the body what runs again.
        constraints: what the plan must not do.
        fusion: that of the device that it is for, which says with the constraints what of the body is in memory.
        region: which of the regions of the loop, or of the branches, the body is.
    """

    path: Path
    forward: int
    stages: Stages
    constraints: Constraints = FREE
    fusion: Fusion = CPU.fusion
    region: int = 0

    @property
    def backward(self) -> int:
        """The place of the loop."""
        return self.forward

    def stacks(self, graph: Graph) -> tuple[int, ...]:
        """None: what runs again is not stacked."""
        return ()

    def how(self, length: int) -> str:
        """How it computes again, in words."""
        return "in stages of each step"

    def again(self, graph: Graph) -> tuple[Kernel, ...]:
        """What each step runs again, of the body that the path leads to, each kernel once."""
        nodes = sorted({place for row in self.stages.again for place in row})
        return kernels_of(self._translation(body_at(graph, self._here)), nodes)

    def applied(self, graph: Graph) -> Graph:
        """The graph, the body that the path leads to, whose loop runs in stages, or one of whose branches.

        Raises CompileError where there is none, or it cannot run in these stages.
        """
        return with_body(graph, self._here, self._staged)

    @property
    def _here(self) -> Path:
        return (Inside(self.forward, self.region),)

    def _staged(self, body: Graph) -> Graph:
        translation = self._translation(body)
        is_repeatable = translation.problem.is_repeatable.tolist()
        check_stages(self.stages, is_repeatable, lambda place: str(*kernels_of(translation, [place])))
        return apply(translation, self.stages)

    def _translation(self, body: Graph) -> Translation:
        return translate(body, Machine(replace(CPU, fusion=self.fusion)), self.constraints)


class BodyPlans:
    """Plans of bodies of loops, and of branches. What has been found of a body is known for all levels that have it."""

    def __init__(
        self, regions: Regions, constraints: Constraints, left: Callable[[], float | None] = lambda: None
    ) -> None:
        """`regions` know what bodies take in which nothing runs again, and learn it of those that are looked at.

        Once no seconds are `left`, no plan is improved any more, and there are no more levels; None is no end.
        """
        self._regions, self._machine = regions, regions.machine
        self._constraints, self._left = constraints, left
        self._bodies: dict[int, _Body] = {}
        #: By identity; what is around the bodies holds the graph, so that no other one gets its id.
        self._around: dict[tuple[int, tuple[LoopDecision, ...]], _Around] = {}

    def levels(
        self, graph: Graph, first: Sequence[LoopDecision], least: int, budget: int
    ) -> Iterator[tuple[LoopDecision, ...]]:
        """Decisions, and then stages in all bodies, so that a step or a branch fits beside all else in so many bytes.

        The more a step may take, the less runs again in it: as much as fits is looked for by halving, from as much as
        is left where all around the loop is kept. For a budget of nothing steps are as small as they can be. There are
        none where no step takes as much as `least` bytes.
        """
        around = self._around_bodies(graph, tuple(first))
        start = around.graph
        if not self.has_levels(start, least):
            return
        if not budget:
            smallest = self._within(around, {})
            if smallest is not None and smallest.decisions:
                yield (*first, *smallest.decisions)
            return
        rooms, found = around.rooms(budget), dict[tuple[StagedBody, ...], Problem]()
        low, high, part = 0.0, 2.0, 1.0
        for _ in range(HALVINGS):
            sizes = {place: max(1, round(part * room)) for place, room in rooms.items()}
            staged = None if self._left() == 0 else self._within(around, sizes)
            is_too_large = False
            if staged is not None:
                problem = around.problem(staged.runs)
                is_too_large = simulate(problem).peak > budget
                if staged.decisions:
                    found[staged.decisions] = problem
            low, high = (low, part) if is_too_large else (part, high)
            part = (low + high) / 2
        # Where bodies take more, what is around them may be computed again; not where some kernel needs too much.
        yield from [(*first, *decisions) for decisions, problem in found.items() if least_peak(problem) <= budget]

    def has_levels(self, graph: Graph, least: int, below: float = math.inf) -> bool:
        """Whether a step of some loop, or some branch, takes as much as `least` bytes, and fewer than others."""
        return any(least <= self._body(body).peak < below for _, body in _bodies(graph))

    def _within(self, around: _Around, sizes: Mapping[int, int]) -> _Staged | None:
        """Stages for the bodies of loops and for branches, so that each takes so many bytes, and what is in it no more.

        `sizes` are by the outermost equation. Without a size they are the smallest that there are. None where one does
        not come down to its size.
        """
        planned = around.graph
        decisions: list[StagedBody] = []
        runs: dict[Inside, Run] = {}
        for inside in around.bodies():
            found = self._at(planned, (inside,), sizes.get(inside.place, 0))
            if found is None:
                return None
            planned, more, runs[inside] = found
            decisions += more
        return _Staged(tuple(decisions), tuple(runs.items()))

    def _at(self, graph: Graph, path: Path, size: int) -> tuple[Graph, list[StagedBody], Run] | None:
        """Stages for the body that a path leads to, and for those in it first, so that it takes so many bytes.

        With the graph in which those in it run so, and what the body takes then. Each gets what is left beside all that
        is around it there, and is as small as it can be where it does not come down to that. Without a size all are.
        """
        own = self._body(body_at(graph, path))
        if own.peak <= size:
            return graph, [], own.run
        decisions: list[StagedBody] = []
        around = self._around_bodies(own.graph) if any(_own_bodies(own.graph)) else None
        rooms = around.rooms(size) if around and size else {}
        for inside in around.bodies() if around else ():
            room = max(0, rooms.get(inside.place, 0))
            found = self._at(graph, (*path, inside), room) or self._at(graph, (*path, inside), 0)
            assert found is not None, "there is a smallest one"
            graph, more, _ = found
            decisions += more
        own = self._body(body_at(graph, path))
        if own.peak <= size:
            return graph, decisions, own.run
        planned = own.plan(size) if size else own.smallest
        if planned is None:
            return None
        if planned.stages.begins:
            *outside, (place, region) = path
            fusion = self._machine.device.fusion
            decision = StagedBody(tuple(outside), place, planned.stages, self._constraints, fusion, region)
            decisions.append(decision)
            if outside:
                graph = with_decisions(graph, [decision])
                self._machine.shards.follow(graph)
        return graph, decisions, planned.run

    def _around_bodies(self, graph: Graph, first: tuple[LoopDecision, ...] = ()) -> _Around:
        """What is around the bodies of a graph, once these decisions are made."""
        found = self._around.get((id(graph), first))
        if found is None:
            start = with_decisions(graph, first)
            self._machine.shards.follow(start)
            found = self._around[id(graph), first] = _Around(start, self._regions, self._constraints, graph)
        return found

    def _body(self, graph: Graph) -> _Body:
        if id(graph) not in self._bodies:
            problem = translate(graph, self._regions, self._constraints).problem
            self._bodies[id(graph)] = _Body(graph, problem, self._left)
        return self._bodies[id(graph)]


@dataclass(frozen=True, slots=True)
class _Staged:
    """Bodies in stages.

    Attributes:
        decisions: which, and how; those inside of others first.
        runs: what each of the outermost bodies takes then.
    """

    decisions: tuple[StagedBody, ...]
    runs: tuple[tuple[Inside, Run], ...]


class _Around:
    """What is around bodies, which are planned: its kernels, of which those with bodies take what these do."""

    def __init__(self, graph: Graph, regions: Regions, constraints: Constraints, before: Graph | None = None) -> None:
        """Of a graph, as decisions made it of another one `before`."""
        self.graph, self.before = graph, before
        self._own = regions
        self._translation = translate(graph, regions, constraints)
        place = {eqn: place for place, eqn in enumerate(graph.equations)}
        owners = enumerate(map(self._translation.own, range(len(self._translation.clusters))))
        self._nodes = {place[eqn]: node for node, eqn in owners if bodies(eqn.op)}

    def bodies(self) -> list[Inside]:
        """The outermost bodies that may run in stages; of a loop whose results nothing reads, none."""
        return [inside for inside, _ in _own_bodies(self.graph) if inside.place in self._nodes]

    def rooms(self, budget: int) -> dict[int, int]:
        """For each equation with bodies, by its place, what of a budget is left for one where all around it is kept."""
        problem = self._translation.problem
        run = simulate(problem)
        live = dict(zip(run.steps.tolist(), run.live.tolist(), strict=True))
        return {place: budget - live[node] + int(problem.workspace[node]) for place, node in self._nodes.items()}

    def problem(self, runs: Iterable[tuple[Inside, Run]]) -> Problem:
        """The problem of what is around bodies that take this."""
        translation = self._translation
        own = [(dict(bodies(translation.own(self._nodes[place]).op))[region], run) for (place, region), run in runs]
        planned, problem = Regions(self._own.machine, (*self._own, *own)), translation.problem
        cost, workspace = problem.cost.copy(), problem.workspace.copy()
        for node in self._nodes.values():
            eqn = translation.own(node)
            workspace[node] += planned.peak(eqn) - self._own.peak(eqn)
            cost[node] = planned.time(translation.clusters[node], ())
        return replace(problem, cost=cost, workspace=workspace)


@dataclass(frozen=True)
class _Body:
    """The body of a loop, or a branch, and what is known of its plans."""

    graph: Graph
    problem: Problem
    left: Callable[[], float | None]
    _known: list[Found] = field(default_factory=list)
    _failed: list[int] = field(default_factory=list)

    @functools.cached_property
    def run(self) -> Run:
        """A step in which nothing runs again, simulated."""
        return simulate(self.problem)

    @property
    def peak(self) -> int:
        """Bytes that it takes."""
        return self.run.peak

    @functools.cached_property
    def _chained(self) -> Chained:
        return Chained(self.problem)

    @functools.cached_property
    def _least_peak(self) -> int:
        return least_peak(self.problem)

    @functools.cached_property
    def smallest(self) -> Found:
        """The plan with the smallest peak."""
        return self._remembered(plan_for_budget(self.problem, 0, seconds=self.left(), chained=self._chained))

    def plan(self, size: int) -> Found | None:
        """The fastest plan within so many bytes, of all that were found for any size; None where there is none.

        Moves of one value at a time may end above a size, and below a smaller one. What was found for a larger size and
        fits is not looked for again.
        """
        is_known = any(found.run.peak <= size <= found.budget for found in self._known)
        if not is_known and size > max(self._failed, default=0):
            self._search(size)
        fitting = [found for found in self._known if found.run.peak <= size]
        return min(fitting, key=lambda found: (found.run.time, found.run.peak), default=None)

    def _search(self, size: int) -> None:
        aims = (size, *[size - (size >> power) for power in _LESS])
        for aim in [aim for aim in aims if aim >= self._least_peak]:
            found = fitting_plan(self.problem, aim, seconds=self.left(), chained=self._chained)
            if found is not None:
                self._remembered(replace(found, budget=size, known=None))
                return
        self._failed.append(size)

    def _remembered(self, found: Found) -> Found:
        self._known.append(found)
        return found


def _bodies(graph: Graph, path: Path = ()) -> Iterator[tuple[Path, Graph]]:
    """The bodies that may run in stages, and the paths to them, outer ones first.

    A loop that stacks snapshots runs its body in two ways.
    """
    for inside, body in _own_bodies(graph):
        yield (*path, inside), body
        yield from _bodies(body, (*path, inside))


def _own_bodies(graph: Graph) -> Iterator[tuple[Inside, Graph]]:
    """The outermost of them."""
    for place, eqn in enumerate(graph.equations):
        for region, body in [] if isinstance(eqn.op, Scan) and eqn.op.snapshots else bodies(eqn.op):
            yield Inside(place, region), body
