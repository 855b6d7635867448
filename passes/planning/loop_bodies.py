"""Recomputation in the step of one loop: the body of a loop runs in stages, as a program does.

Before:  scan %x {body: %1 = tanh (dot %c, %w)   ...   %8 = dot %7, %1}
Stages:  one begins at %8 and runs %1 again
After:   scan %x {body: %1 = tanh (dot %c, %w)   ...   %8 = checkpoint %c, %w, %7 {is_scheduled, body: %1 again}}

A step that differentiates, as of a loop over parts of a batch whose gradients are summed, holds in itself what its own
backward pass reads. Nothing is stacked: what `rematc.passes.planning.loops` plans is not there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rematc.ir.core import Graph
from rematc.ir.ops.scan.op import Scan
from rematc.passes.planning.addressing import program_of
from rematc.passes.planning.apply import apply
from rematc.passes.planning.budget import plan_for_budget
from rematc.passes.planning.constraints import FREE, Constraints
from rematc.passes.planning.device import CPU
from rematc.passes.planning.loops import LoopDecision, of_another_program, with_decisions
from rematc.passes.planning.planned_program import Kernel
from rematc.passes.planning.problem import Stages, simulate
from rematc.passes.planning.shards import Machine
from rematc.passes.planning.translation import Translation, translate


@dataclass(frozen=True, slots=True)
class LoopBody:
    """That each step of a loop runs in stages.

    Attributes:
        path: the loops in whose bodies the loop stands, from the outside, each by the place of its equation.
        forward: the place of the loop.
        stages: where in the body what runs again.
        constraints: what the plan must not do, which says what of the body is in memory.
    """

    path: tuple[int, ...]
    forward: int
    stages: Stages
    constraints: Constraints = FREE

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
        return translate(op.body, Machine(CPU), self.constraints)  # the kernels are those of any device


def body_levels(
    graph: Graph, first: Sequence[LoopDecision], machine: Machine, constraints: Constraints, least: int, count: int
) -> Iterator[tuple[LoopDecision, ...]]:
    """These decisions, and then stages in the bodies of all loops, within so many sizes evenly from small to large.

    There are none where no body takes as much as `least` bytes in a step.
    """
    start = with_decisions(graph, first)
    machine.shards.follow(start)
    places = sorted(_loops(start), key=lambda place: -len(place[0]))  # what is inside is part of what is around it
    peaks = [simulate(translate(_at(start, *place).body, machine, constraints).problem).peak for place in places]
    most = max(peaks, default=0)
    if most < least:
        return
    bodies, smallest = _within(start, places, 0, machine, constraints)
    found = [bodies]
    for step in range(1, count):
        found.append(_within(start, places, smallest + (most - smallest) * step // count, machine, constraints)[0])
    yield from dict.fromkeys([(*first, *bodies) for bodies in reversed(found) if bodies])


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


def _within(
    graph: Graph, places: Sequence[tuple[tuple[int, ...], int]], size: int, machine: Machine, constraints: Constraints
) -> tuple[tuple[LoopBody, ...], int]:
    """Stages for the loops of which a step takes more than so many bytes, and what the largest step takes then."""
    decisions: list[LoopBody] = []
    peaks = [0]
    for path, place in places:
        planned = with_decisions(graph, decisions)
        machine.shards.follow(planned)
        problem = translate(_at(planned, path, place).body, machine, constraints).problem
        if simulate(problem).peak <= size:
            continue
        found = plan_for_budget(problem, size)
        peaks.append(found.run.peak)
        if found.stages.begins:
            decisions.append(LoopBody(path, place, found.stages, constraints))
    return tuple(decisions), max(peaks)
