"""The memory of a program over the schedule in which it stands, by the model of a device that plans are made with.

Before:  %0 = dot_general %x, %w   %1 = tanh %0   %2 = dot_general %1, %w   return %2
After:   step 0 dot_general, forward, step 1 tanh, forward; %0, 4 MiB, [0..1], read by step 1
"""

from __future__ import annotations

from collections.abc import Sequence

from rematc.ir.core import Graph
from rematc.passes.memory_timeline import (
    BACKWARD,
    FORWARD,
    RECOMPUTED,
    LiveBuffer,
    MemoryTimeline,
    Step,
    backward_begin,
    role_of,
)
from rematc.passes.planning.problem import Run, simulate
from rematc.passes.planning.shards import Machine
from rematc.passes.planning.translation import Translation, translate_passed
from rematc.passes.recomputation import recomputed_equations


def simulated(graph: Graph, machine: Machine) -> Run:
    """What a graph after the passes takes, on one of the devices that it runs on."""
    return simulate(translate_passed(graph, machine).problem)


def simulated_timeline(graph: Graph, machine: Machine, *, is_differentiated: bool) -> MemoryTimeline:
    """The memory of a graph after the passes; without a derivative all of it is forward."""
    again = {value for eqn in recomputed_equations(graph) for value in eqn.results}
    translation = translate_passed(graph, machine)
    problem = translation.problem
    own = [translation.own(node) for node in range(len(problem.cost))]
    repeats = [not again.isdisjoint(eqn.results) for eqn in own]
    reads = _readers(translation)
    producer = problem.producer.tolist()
    sizes = problem.size.tolist()
    # What is written over at a node is gone one node earlier.
    ends = [max(nodes, default=producer[value]) for value, nodes in enumerate(reads)]
    for value, old in enumerate(problem.replaces.tolist()):
        if old >= 0 and ends[old] == producer[value] and sizes[old] == sizes[value]:
            ends[old] -= 1
    backward = len(own)
    if is_differentiated:
        losses = [node for node, eqn in enumerate(own) if any(not each.type.shape for each in eqn.results)]
        kept = [value for value in range(len(sizes)) if sizes[value] and ends[value] >= producer[value]]
        first, last, bytes_of = ([of[value] for value in kept] for of in (producer, ends, sizes))
        backward = backward_begin(first, last, bytes_of, len(own), losses)
        backward = min(backward, next((node for node, is_again in enumerate(repeats) if is_again), backward))
    steps = []
    for node, (eqn, is_again) in enumerate(zip(own, repeats, strict=True)):
        phase = RECOMPUTED if is_again else FORWARD if node < backward else BACKWARD
        steps.append(Step(eqn.op.name, phase, eqn.loc, int(problem.workspace[node])))
    buffers = []
    for value, (node, end) in enumerate(zip(producer, ends, strict=True)):
        if sizes[value] and end >= node:
            role = role_of(node, end, steps[node].phase, backward)
            eqn, type = own[node], str(translation.values[value].type)
            buffers.append(LiveBuffer(eqn.op.name, type, sizes[value], node, end, role, tuple(reads[value]), eqn.loc))
    arguments = sum(value.type.bytes for value in graph.params if not value.type.on_host)
    results = sum(value.type.bytes for value in graph.results if not value.type.on_host)
    return MemoryTimeline(tuple(steps), tuple(buffers), backward, arguments, results)


def _readers(translation: Translation) -> Sequence[list[int]]:
    """For each value the nodes that read it."""
    found: list[list[int]] = [[] for _ in translation.values]
    for node, row in enumerate(translation.problem.reads):
        for value in row:
            found[value].append(node)
    return found
