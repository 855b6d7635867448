"""Analysis: how much work a graph is, and which part of a backward graph is recomputation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rematc.ir.core import Equation, Graph, Op, Value
from rematc.ir.ops.custom_derivatives import CustomDerivative
from rematc.ir.ops.loops import Scan
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


@dataclass(frozen=True, slots=True)
class Repeated:
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


Counted = Equation | Repeated


def total_work(equations: Iterable[Counted]) -> Work:
    """All equations together, those in loops as often as they are evaluated."""
    count = flops = 0
    for eqn in equations:
        count += eqn.times if isinstance(eqn, Repeated) else 1
        flops += eqn.flops
    return Work(count, flops)


def work_by_op(equations: Iterable[Counted]) -> dict[str, Work]:
    """Work of each op, most FLOPs first, then by name."""
    table: dict[str, Work] = {}
    for eqn in equations:
        times = eqn.times if isinstance(eqn, Repeated) else 1
        table[eqn.op.name] = table.get(eqn.op.name, Work()) + Work(times, eqn.flops)
    return dict(sorted(table.items(), key=lambda row: (-row[1].flops, row[0])))


def flat_equations(graph: Graph, times: int = 1) -> list[Counted]:
    """The equations of a graph, of its checkpoint regions and its loops, in program order.

    Calls and branches count as one equation. `times` is how often the graph is evaluated.
    """
    found: list[Counted] = []
    for eqn in graph.equations:
        match eqn.op:
            case Checkpoint(body=body):
                found.extend(flat_equations(body, times))
            case Scan(body=body, length=length):
                found.extend(flat_equations(body, times * length))
            case _:
                found.append(_counted(eqn, times))
    return found


def _counted(eqn: Equation, times: int) -> Counted:
    return eqn if times == 1 else Repeated(eqn, times)


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
        for eqn in graph.equations:
            cts = [value in reached for value in eqn.operands]
            variables = [value in variable for value in eqn.operands]
            if any(cts):
                reached.update(eqn.results)
            if any(variables):
                variable.update(eqn.results)
            match eqn.op:
                case Checkpoint(body=body):
                    self.split(body, cts, variables, times)
                case Scan() as loop:
                    self._split_loop(loop, cts, variables, times)
                case _ if any(cts):
                    self.adjoint.append(_counted(eqn, times))
                case _ if any(variables):
                    self.recomputed.append(_counted(eqn, times))

    def _split_loop(self, loop: Scan, cts: list[bool], variables: list[bool], times: int) -> None:
        for flags in (cts, variables):
            _close_over_steps(loop, flags)
        self.split(loop.body, cts, variables, times * loop.length)


def _close_over_steps(loop: Scan, flags: list[bool]) -> None:
    """Flag the carries that a flagged operand reaches in some step."""
    begin, end = loop.consts, loop.consts + loop.carry
    while True:
        reached = {value for value, is_set in zip(loop.body.params, flags, strict=True) if is_set}
        for eqn in loop.body.equations:
            if not reached.isdisjoint(eqn.operands):
                reached.update(eqn.results)
        pairs = zip(flags[begin:end], loop.body.results, strict=False)
        grown = [is_set or value in reached for is_set, value in pairs]
        if grown == flags[begin:end]:
            return
        flags[begin:end] = grown
