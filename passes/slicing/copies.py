"""What a stage gives too late for one loop is computed again by those that read it: two stages that can be cut.

Before:  %3: f32[8,100] = dot_general %x, %w   %4 = exponential %3   %5: f32[8,4] = dot_general %4, %v
         ... what needs all of %5, and gives %9: f32[8,4]
         %10: f32[8,100] = dot_general %9, %v   %11 = multiply %10, %4   %12: f32[100,4] = dot_general %11, %x
After:   the same, with %13 = dot_general %x, %w   %14 = exponential %13   %11 = multiply %10, %14   before %11

Attention in a block is the example: its backward pass reads scores, and depends on all of the block's output. Of what
is large nothing crosses from the one stage to the other any more; each becomes a loop (`rematc.passes.slicing.loop`),
and compilers merge nothing between two loops.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from rematc.ir.core import Equation, Graph
from rematc.ir.values import Value
from rematc.passes.slicing.stages import Stage, Stages, bytes_of


def with_copies(stages: Stages, stage: Stage, more_than: int) -> tuple[Graph, dict[Value, Value]] | None:
    """The graph in which no equation outside of a stage reads what it makes of more than so many bytes, and the copies.

    None where there is nothing of that size, or where something cannot be repeated or is a result of the graph.
    """
    large = {value for value in stage.made if bytes_of(value.type) > more_than}
    read = {value for value in large if stages.is_read_outside(stage, value)}
    if not read or not read.isdisjoint(stages.graph.results):
        return None
    if not all(eqn.op.is_repeatable for eqn in _giving(stage, read, large)):
        return None
    names: dict[Value, Value] = {}
    equations: list[Equation] = []
    for eqn in stages.graph.equations:
        if eqn not in stage.slicings and not read.isdisjoint(eqn.operands):
            equations += _copied(_giving(stage, read.intersection(eqn.operands), large), names)
            equations.append(Equation(eqn.op, _renamed(eqn.operands, names), eqn.results, eqn.loc))
        else:
            equations.append(eqn)
    graph = stages.graph
    return Graph(graph.name, graph.params, tuple(equations), graph.results), names


def _giving(stage: Stage, wanted: Set[Value], large: Set[Value]) -> list[Equation]:
    """The equations of the stage, in order, that give these of what in it is small."""
    needed = set(wanted)
    found = []
    for eqn in reversed(tuple(stage.slicings)):
        if not needed.isdisjoint(eqn.results):
            found.append(eqn)
            needed.update(value for value in eqn.operands if value in large)
    return found[::-1]


def _copied(eqns: Iterable[Equation], names: dict[Value, Value]) -> Iterable[Equation]:
    """Copies of those that have none yet."""
    for eqn in eqns:
        if not names.keys().isdisjoint(eqn.results):
            continue
        results = tuple([Value(value.type, value.name) for value in eqn.results])
        yield Equation(eqn.op, _renamed(eqn.operands, names), results, eqn.loc)
        names.update(zip(eqn.results, results, strict=True))


def _renamed(values: tuple[Value, ...], names: dict[Value, Value]) -> tuple[Value, ...]:
    return tuple([names.get(value, value) for value in values])
