"""Analysis: how much work a graph is, and which part of a backward graph is recomputation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rematc.ir.core import Equation, Graph, Value
from rematc.ir.ops.regions import Checkpoint


@dataclass(frozen=True, slots=True)
class Work:
    """An amount of work.

    Attributes:
        equations: how many equations.
        flops: how many floating-point operations they take.
    """

    equations: int = 0
    flops: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(self.equations + other.equations, self.flops + other.flops)


def total_work(equations: Iterable[Equation]) -> Work:
    """All equations together."""
    count = flops = 0
    for eqn in equations:
        count += 1
        flops += eqn.flops
    return Work(count, flops)


def work_by_op(equations: Iterable[Equation]) -> dict[str, Work]:
    """Work of each op, most FLOPs first, then by name."""
    table: dict[str, Work] = {}
    for eqn in equations:
        table[eqn.op.name] = table.get(eqn.op.name, Work()) + Work(1, eqn.flops)
    return dict(sorted(table.items(), key=lambda row: (-row[1].flops, row[0])))


def flat_equations(graph: Graph) -> list[Equation]:
    """The equations of a graph and of its checkpoint regions, in program order; calls count as one equation."""
    found: list[Equation] = []
    for eqn in graph.equations:
        if isinstance(eqn.op, Checkpoint):
            found.extend(flat_equations(eqn.op.body))
        else:
            found.append(eqn)
    return found


@dataclass(frozen=True, slots=True)
class BackwardWork:
    """The two parts of a backward graph.

    Attributes:
        recomputed: equations that repeat a part of the forward graph: they follow from residuals alone.
        adjoint: equations that cotangents reach.
    """

    recomputed: tuple[Equation, ...]
    adjoint: tuple[Equation, ...]


def split_backward(graph: Graph, is_ct: Sequence[bool]) -> BackwardWork:
    """Tell recomputation from differentiation in a backward graph; `is_ct` marks the parameters that are cotangents.

    What follows from constants alone is neither.
    """
    recomputed: list[Equation] = []
    adjoint: list[Equation] = []
    _split(graph, is_ct, (True,) * len(graph.params), recomputed, adjoint)
    return BackwardWork(tuple(recomputed), tuple(adjoint))


def _split(
    graph: Graph,
    is_ct: Sequence[bool],
    is_variable: Sequence[bool],
    recomputed: list[Equation],
    adjoint: list[Equation],
) -> None:
    reached: set[Value] = {value for value, is_set in zip(graph.params, is_ct, strict=True) if is_set}
    variable: set[Value] = {value for value, is_set in zip(graph.params, is_variable, strict=True) if is_set}
    for eqn in graph.equations:
        cts = [value in reached for value in eqn.operands]
        variables = [value in variable for value in eqn.operands]
        if any(cts):
            reached.update(eqn.results)
        if any(variables):
            variable.update(eqn.results)
        if isinstance(eqn.op, Checkpoint):
            _split(eqn.op.body, cts, variables, recomputed, adjoint)
        elif any(cts):
            adjoint.append(eqn)
        elif any(variables):
            recomputed.append(eqn)
