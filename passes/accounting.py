"""Analysis: how much work a graph is, and which part of a backward graph is recomputation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rematc.ir.core import Equation, Graph, Op
from rematc.ir.ops.case.op import Case
from rematc.ir.ops.custom_call import CustomCall
from rematc.ir.ops.custom_derivatives import CustomDerivative
from rematc.ir.ops.regions import Call, Checkpoint
from rematc.ir.ops.scan.op import Scan
from rematc.ir.ops.while_.op import While
from rematc.ir.ops.while_.trip_count import known_integers
from rematc.ir.values import Value


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


@dataclass(frozen=True, slots=True)
class Iterated:
    """An equation inside loops.

    Attributes:
        eqn: the equation.
        times: how often it is evaluated.
    """

    eqn: Equation
    times: int

    @property
    def op(self) -> Op:
        return self.eqn.op

    @property
    def flops(self) -> int:
        return self.eqn.flops * self.times


Counted = Equation | Iterated


def total_work(equations: Iterable[Counted]) -> Work:
    """All equations together, those in loops as often as they are evaluated."""
    count = flops = 0
    for eqn in equations:
        count += eqn.times if isinstance(eqn, Iterated) else 1
        flops += eqn.flops
    return Work(count, flops)


def uncounted_calls(equations: Iterable[Counted]) -> dict[str, int]:
    """How often functions of libraries are called, whose floating-point operations nobody knows, by their names."""
    table: dict[str, int] = {}
    for eqn in equations:
        if isinstance(eqn.op, CustomCall):
            times = eqn.times if isinstance(eqn, Iterated) else 1
            table[eqn.op.target] = table.get(eqn.op.target, 0) + times
    return dict(sorted(table.items()))


def work_by_op(equations: Iterable[Counted]) -> dict[str, Work]:
    """Work of each op, most FLOPs first, then by name."""
    table: dict[str, Work] = {}
    for eqn in equations:
        times = eqn.times if isinstance(eqn, Iterated) else 1
        table[eqn.op.name] = table.get(eqn.op.name, Work()) + Work(times, eqn.flops)
    return dict(sorted(table.items(), key=lambda row: (-row[1].flops, row[0])))


def flat_equations(graph: Graph, times: int = 1) -> list[Counted]:
    """The equations of a graph, and of the graphs that its equations evaluate, in program order.

    Those of a loop count as often as it has steps, once where that is not known; of branches those of the dearest one
    count. `times` is how often the graph is evaluated.
    """
    found: list[Counted] = []
    known = known_integers(graph, (None,) * len(graph.params))
    for eqn in graph.equations:
        parts = _evaluated(eqn, known)
        if not parts:
            found.append(_counted(eqn, times))
        for part in parts:
            found.extend(flat_equations(part.graph, times * part.times))
    return found


def products_of(graph: Graph) -> int:
    """How many products a graph runs, counted as `flat_equations` does."""
    return sum((eqn.times if isinstance(eqn, Iterated) else 1) * eqn.op.is_product for eqn in flat_equations(graph))


@dataclass(frozen=True, slots=True)
class _Evaluated:
    """A graph that an equation evaluates.

    Attributes:
        graph: the graph.
        operands: for each of its parameters the index of the equation's operand.
        times: how often.
    """

    graph: Graph
    operands: Sequence[int]
    times: int = 1


def _evaluated(eqn: Equation, known: dict[Value, int]) -> list[_Evaluated]:
    """What an equation evaluates; nothing for one that is work itself. `known` are integers of the graph around it."""
    places = range(len(eqn.operands))
    match eqn.op:
        case Scan(body=body, length=length):
            return [_Evaluated(body, places, length)]
        case While() as loop:
            return _of_while(loop, loop.trip_count([known.get(value) for value in eqn.operands]))
        case Case(branches=branches):
            return [_Evaluated(max(branches, key=_dearness), places[1:])]
        case Checkpoint(body=body) | Call(body=body) | CustomDerivative(body=body):
            return [_Evaluated(body, places)]
    return []


def _of_while(loop: While, steps: int | None) -> list[_Evaluated]:
    of_cond, of_body, carry = loop.parts(range(len(loop.cond.params) + loop.body_consts))
    tests = 1 if steps is None else steps + 1
    body = _Evaluated(loop.body, (*of_body, *carry), 1 if steps is None else steps)
    return [_Evaluated(loop.cond, (*of_cond, *carry), tests), body]


def _dearness(branch: Graph) -> tuple[int, int]:
    work = total_work(flat_equations(branch))
    return work.flops, work.equations


def _counted(eqn: Equation, times: int) -> Counted:
    return eqn if times == 1 else Iterated(eqn, times)


@dataclass(frozen=True, slots=True)
class Effects:
    """Equations that print, or call functions of the user's for their effect.

    Attributes:
        all: how many there are.
        in_regions: how many of them stand in checkpoint regions, where recomputation leaves them out.
    """

    all: int = 0
    in_regions: int = 0


def count_effects(graph: Graph) -> Effects:
    """The effects of a graph and its regions: those of a loop or of a function called often count once."""
    every = in_regions = 0
    stack = [(graph, False)]
    while stack:
        one, is_inside = stack.pop()
        for eqn in one.equations:
            if not eqn.op.effect:
                continue
            # A rule of the user's takes the place of the function that it is the rule of.
            regions = (eqn.op.body,) if isinstance(eqn.op, CustomDerivative) else eqn.op.regions()
            if not regions:
                every += 1
                in_regions += is_inside
            stack.extend((region, is_inside or isinstance(eqn.op, Checkpoint)) for region in regions if region.effect)
    return Effects(every, in_regions)


@dataclass(frozen=True, slots=True)
class BackwardWork:
    """The two parts of a backward graph.

    Attributes:
        recomputed: equations that repeat a part of the forward graph: they follow from residuals alone.
        adjoint: equations that cotangents reach.
    """

    recomputed: tuple[Counted, ...]
    adjoint: tuple[Counted, ...]


def split_backward(graph: Graph, is_ct: Sequence[bool]) -> BackwardWork:
    """Tell recomputation from differentiation in a backward graph; `is_ct` marks the parameters that are cotangents.

    What follows from constants alone is neither.
    """
    parts = _Parts([], [])
    parts.split(graph, is_ct, (True,) * len(graph.params), 1)
    return BackwardWork(tuple(parts.recomputed), tuple(parts.adjoint))


@dataclass(slots=True)
class _Parts:
    recomputed: list[Counted]
    adjoint: list[Counted]

    def split(self, graph: Graph, is_ct: Sequence[bool], is_variable: Sequence[bool], times: int) -> None:
        reached: set[Value] = {value for value, is_set in zip(graph.params, is_ct, strict=True) if is_set}
        variable: set[Value] = {value for value, is_set in zip(graph.params, is_variable, strict=True) if is_set}
        known = known_integers(graph, (None,) * len(graph.params))
        for eqn in graph.equations:
            cts = [value in reached for value in eqn.operands]
            variables = [value in variable for value in eqn.operands]
            if any(cts):
                reached.update(eqn.results)
            if any(variables):
                variable.update(eqn.results)
            parts = _evaluated(eqn, known)
            if parts:
                self._split_inside(eqn.op, parts, cts, variables, times)
            elif any(cts):
                self.adjoint.append(_counted(eqn, times))
            elif any(variables):
                self.recomputed.append(_counted(eqn, times))

    def _split_inside(
        self, op: Op, parts: Sequence[_Evaluated], cts: Sequence[bool], variables: Sequence[bool], times: int
    ) -> None:
        cts, variables = op.over_steps(cts), op.over_steps(variables)
        for part in parts:
            of_cts = [cts[index] for index in part.operands]
            of_variables = [variables[index] for index in part.operands]
            self.split(part.graph, of_cts, of_variables, times * part.times)
