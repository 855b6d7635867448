"""Recomputation in the step of one loop: the body of a loop runs in stages, as a program does.

Before:  scan %x {body: %1 = tanh (dot %c, %w)   ...   %8 = dot %7, %1}
Stages:  one begins at %8 and runs %1 again
After:   scan %x {body: %1 = tanh (dot %c, %w)   ...   %8 = checkpoint %c, %w, %7 {is_scheduled, body: %1 again}}

A step that differentiates, as of a loop over parts of a batch whose gradients are summed, holds in itself what its own
backward pass reads. Nothing is stacked: what `rematc.passes.planning.loops` plans is not there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rematc.ir.core import Graph
from rematc.ir.ops.scan.op import Scan
from rematc.passes.kernels import Fusion
from rematc.passes.planning.addressing import program_of
from rematc.passes.planning.apply import apply
from rematc.passes.planning.budget import Chained, Found, fitting_plan, plan_for_budget
from rematc.passes.planning.constraints import FREE, Constraints
from rematc.passes.planning.device import CPU
from rematc.passes.planning.loops import LoopDecision, of_another_program, with_decisions
from rematc.passes.planning.planned_program import Kernel
from rematc.passes.planning.problem import Problem, Stages, simulate
from rematc.passes.planning.shards import Machine
from rematc.passes.planning.translation import Translation, translate

#: How many sizes of steps are tried for a budget.
HALVINGS = 5


@dataclass(frozen=True, slots=True)
class LoopBody:
    """That each step of a loop runs in stages.

    Attributes:
        path: the loops in whose bodies the loop stands, from the outside, each by the place of its equation.
        forward: the place of the loop.
        stages: where in the body what runs again.
        constraints: what the plan must not do.
        fusion: that of the device that it is for, which says with the constraints what of the body is in memory.
    """

    path: tuple[int, ...]
    forward: int
    stages: Stages
    constraints: Constraints = FREE
    fusion: Fusion = CPU.fusion

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
        program = program_of(self._translation(graph))
        return tuple(
            [program.kernels[place] for place in sorted({place for row in self.stages.again for place in row})]
        )

    def applied(self, graph: Graph) -> Graph:
        """The graph, the body that the path leads to, whose loop runs in stages.

        Raises CompileError where there is no such loop, or it cannot run in these stages.
        """
        translation = self._translation(graph)
        program_of(translation).check_stages(self.stages)
        eqn = graph.equations[self.forward]
        assert isinstance(eqn.op, Scan), "it has been translated"
        planned = replace(eqn, op=replace(eqn.op, body=apply(translation, self.stages)))
        equations = (*graph.equations[: self.forward], planned, *graph.equations[self.forward + 1 :])
        return Graph(graph.name, graph.params, equations, graph.results)

    def _translation(self, graph: Graph) -> Translation:
        op = graph.equations[self.forward].op if self.forward < len(graph.equations) else None
        if not isinstance(op, Scan):
            raise of_another_program()
        return translate(op.body, Machine(replace(CPU, fusion=self.fusion)), self.constraints)


class BodyPlans:
    """Plans of the bodies of loops. What has been found of a body is known for all levels that have it."""

    def __init__(
        self, machine: Machine, constraints: Constraints, left: Callable[[], float | None] = lambda: None
    ) -> None:
        """Once no seconds are `left`, no plan is improved any more, and there are no more levels; None is no end."""
        self._machine, self._constraints, self._left = machine, constraints, left
        self._bodies: dict[int, _Body] = {}

    def levels(
        self, graph: Graph, first: Sequence[LoopDecision], least: int, budget: int
    ) -> Iterator[tuple[LoopDecision, ...]]:
        """Decisions, and then stages in the bodies of all loops, so that a step fits beside all else in so many bytes.

        The more a step may take, the less runs again in it: as much as fits is looked for by halving, from as much as
        is left where all around the loop is kept. For a budget of nothing steps are as small as they can be. There are
        none where no step takes as much as `least` bytes.
        """
        start = with_decisions(graph, first)
        self._machine.shards.follow(start)
        if not self.has_levels(start, least):
            return
        if not budget:
            yield from [(*first, *bodies) for bodies in [self._within(start, {})] if bodies]
            return
        rooms, found = self._rooms(start, budget), dict[tuple[LoopBody, ...], None]()
        low, high, part = 0.0, 2.0, 1.0
        for _ in range(HALVINGS):
            sizes = {place: max(1, round(part * room)) for place, room in rooms.items()}
            bodies = None if self._left() == 0 else self._within(start, sizes)
            if bodies:
                found[bodies] = None
            is_fitting = bodies is not None and self._peak(with_decisions(start, bodies)) <= budget
            low, high = (part, high) if is_fitting or bodies is None else (low, part)
            part = (low + high) / 2
        yield from [(*first, *bodies) for bodies in found]

    def has_levels(self, graph: Graph, least: int) -> bool:
        """Whether a step of some loop takes as much as `least` bytes."""
        return any(self._body(_at(graph, *place).body).peak >= least for place in _loops(graph))

    def _rooms(self, graph: Graph, budget: int) -> dict[int, int]:
        """For each loop what of a budget is left for a step, where all around it is kept."""
        translation = translate(graph, self._machine, self._constraints)
        run, place = simulate(translation.problem), {eqn: place for place, eqn in enumerate(graph.equations)}
        found = {}
        for node, live in zip(run.steps.tolist(), run.live.tolist(), strict=True):
            eqn = translation.own(node)
            if isinstance(eqn.op, Scan):
                found[place[eqn]] = budget - (live - int(translation.problem.workspace[node]))
        return found

    def _peak(self, graph: Graph) -> int:
        self._machine.shards.follow(graph)
        return simulate(translate(graph, self._machine, self._constraints).problem).peak

    def _within(self, graph: Graph, sizes: Mapping[int, int]) -> tuple[LoopBody, ...] | None:
        """Stages for the steps of loops, so that each takes so many bytes, and what is in it no more.

        Without a size they are the smallest that there are. None where a step does not come down to its size.
        """
        # What is inside is part of what is around it.
        places = sorted(_loops(graph), key=lambda place: -len(place[0]))
        decisions: list[LoopBody] = []
        planned = graph
        for path, place in places:
            body, size = self._body(_at(planned, path, place).body), sizes.get((*path, place)[0], 0)
            if body.peak <= size:
                continue
            found = body.plan(size) if size else body.smallest
            if found is None:
                return None
            if found.stages.begins:
                decisions.append(LoopBody(path, place, found.stages, self._constraints, self._machine.device.fusion))
                planned = with_decisions(planned, decisions[-1:])
                self._machine.shards.follow(planned)
        return tuple(decisions)

    def _body(self, graph: Graph) -> _Body:
        if id(graph) not in self._bodies:
            problem = translate(graph, self._machine, self._constraints).problem
            self._bodies[id(graph)] = _Body(graph, problem, self._left)
        return self._bodies[id(graph)]


@dataclass(frozen=True)
class _Body:
    """The body of a loop, and what is known of its plans."""

    graph: Graph
    problem: Problem
    left: Callable[[], float | None]

    @functools.cached_property
    def peak(self) -> int:
        """Bytes of a step in which nothing runs again."""
        return simulate(self.problem).peak

    @functools.cached_property
    def _chained(self) -> Chained:
        return Chained(self.problem)

    @functools.cached_property
    def smallest(self) -> Found:
        """The plan with the smallest peak."""
        return plan_for_budget(self.problem, 0, seconds=self.left(), chained=self._chained)

    def plan(self, size: int) -> Found | None:
        """The fastest plan within so many bytes; None where there is none."""
        return fitting_plan(self.problem, size, seconds=self.left(), chained=self._chained)


def _loops(graph: Graph, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], int]]:
    """The loops of a graph and of the bodies of its loops: the path to where they stand, and their place."""
    for place, eqn in enumerate(graph.equations):
        if isinstance(eqn.op, Scan) and not eqn.op.snapshots:
            yield path, place
            yield from _loops(eqn.op.body, (*path, place))


def _at(graph: Graph, path: tuple[int, ...], place: int) -> Scan:
    for index in path:
        (graph,) = graph.equations[index].op.regions()
    op = graph.equations[place].op
    assert isinstance(op, Scan), "it leads to a loop"
    return op
