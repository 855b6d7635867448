"""Where in a program something stands that is inside of loops and branches, and what puts another graph there.

scan {body: ... case {branches: [..., ... scan ...]}}    the path of the inner loop: (place of the outer one, 0),
                                                         (place of the branches, 1)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from rematc.ir.core import Graph, Op
from rematc.ir.errors import CompileError
from rematc.ir.ops.case.op import Case
from rematc.ir.ops.scan.op import Scan
from rematc.ir.ops.while_.op import While
from rematc.passes.regions import with_region


class Inside(NamedTuple):
    """Into a region of an equation.

    Attributes:
        place: that of the equation in its graph.
        region: which of its regions, as `Op.regions` counts them.
    """

    place: int
    region: int = 0


Path = tuple[Inside, ...]


def bodies(op: Op) -> list[tuple[int, Graph]]:
    """The regions of an op whose inside is planned, each with its number: bodies of loops, and branches.

    The condition of a loop differentiates nothing.
    """
    if isinstance(op, Scan):
        return [(0, op.body)]
    if isinstance(op, While):
        return [(1, op.body)]
    return list(enumerate(op.branches)) if isinstance(op, Case) else []


def body_at(graph: Graph, path: Path) -> Graph:
    """The graph that a path leads to. Raises CompileError where there is none."""
    for place, region in path:
        graph = _region(graph, place, region)
    return graph


def with_body(graph: Graph, path: Sequence[Inside], change: Callable[[Graph], Graph]) -> Graph:
    """The graph in which what a path leads to is changed. Raises CompileError where it leads nowhere."""
    if not path:
        return change(graph)
    place, region = path[0]
    changed = with_body(_region(graph, place, region), path[1:], change)
    eqn = graph.equations[place]
    inside = replace(eqn, op=with_region(eqn.op, region, changed))
    equations = (*graph.equations[:place], inside, *graph.equations[place + 1 :])
    return Graph(graph.name, graph.params, equations, graph.results)


def of_another_program() -> CompileError:
    """The error for decisions about loops or branches that a program does not have."""
    return CompileError("the plan is of another program: a loop or a branch that it speaks of is not there")


def _region(graph: Graph, place: int, region: int) -> Graph:
    found = dict(bodies(graph.equations[place].op)) if place < len(graph.equations) else {}
    if region not in found:
        raise of_another_program()
    return found[region]
