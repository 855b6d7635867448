"""Loop-invariant code motion: what is the same in all steps of a loop is computed before it.

Before:  %1 = scan %w, %x {body=graph @step(%w, %c) { %0 = tanh %w   %1 = dot_general %c, %0   return %1 }}
After:   %0 = tanh %w   %1 = scan %0, %x {body=graph @step(%0, %c) { %1 = dot_general %c, %0   return %1 }}

XLA does so for CPUs and TPUs (`WhileLoopInvariantCodeMotion`): what a plan wants to compute again in each step it holds
through all of them. So a plan and a prediction have to see the program as it will be. What only rearranges or repeats
an array stays in the loop, as it is fused there, unless what reads it is moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from rematc.ir.core import Equation, Graph
from rematc.ir.facts import Storage
from rematc.ir.ops.placement import has_placements
from rematc.ir.ops.scan.op import Scan
from rematc.ir.ops.shape import BroadcastInDim, Reverse, Slice, Transpose
from rematc.ir.ops.structural import Constant, Iota, OptimizationBarrier, ToMemory
from rematc.ir.ops.while_.op import While
from rematc.ir.splicing import reading
from rematc.ir.values import Value
from rematc.passes.manager import Pass, register_pass
from rematc.passes.regions import EquationRewriter

#: What stays where it is unless something else is moved that reads it.
_FUSED = (Constant, Iota, BroadcastInDim, Reverse, Slice, Transpose)


@register_pass
@dataclass(frozen=True, slots=True)
class Hoist(Pass):
    """Move what is the same in all steps out of `scan` and `while`, from the inner loops to the outer ones."""

    name: ClassVar[str] = "hoist"

    def run(self, graph: Graph) -> Graph:
        return EquationRewriter(lambda _: _moved).graph(graph)


@dataclass(frozen=True, slots=True)
class _Loop:
    """A loop of which something may be moved.

    Attributes:
        first: how many operands come before those of the body.
        consts: how many consts the body has.
        same: for parameters of the body that are the same in all steps, what they are before the loop.
        varying: carries and slices, some of which may be the same in all steps.
    """

    first: int
    consts: int
    same: dict[Value, Value]
    varying: tuple[Value, ...]

    @classmethod
    def of(cls, eqn: Equation, op: Scan | While) -> _Loop | None:
        """None for one of which nothing is moved."""
        if isinstance(op, Scan) and (op.is_unrolled or op.snapshots):
            return None
        if has_placements(op.body) or any(isinstance(inner.op, ToMemory) for inner in op.body.equations):
            return None
        first, consts = (0, op.consts) if isinstance(op, Scan) else (op.cond_consts, op.body_consts)
        carries = op.carry if isinstance(op, Scan) else len(op.body.results)
        operands, params = eqn.operands[first:], op.body.params
        same = dict(zip(params[:consts], operands[:consts], strict=True))
        for place in range(carries):
            if op.body.results[place] is params[consts + place]:
                same[params[consts + place]] = operands[consts + place]
        return cls(first, consts, same, params[consts:])


def _moved(eqn: Equation) -> list[Equation] | None:
    """A loop behind what is the same in all of its steps; None for what stays as it is."""
    op = eqn.op
    if not isinstance(op, Scan | While) or (loop := _Loop.of(eqn, op)) is None:
        return None
    moving = _Moving(loop.same)
    left = [inner for inner in op.body.equations if not moving.takes(inner)]
    if not moving.equations:
        return None
    consts, params, end = loop.consts, op.body.params, loop.first + loop.consts
    read = {*op.body.results}.union(*[inner.operands for inner in left])
    moved = [(value, outside) for value, outside in moving.moved.items() if value in read]
    given = (*params[:consts], *[value for value, _ in moved], *params[consts:])
    body = Graph(op.body.name, given, tuple(left), op.body.results)
    count = consts + len(moved)
    new = replace(op, body=body, consts=count) if isinstance(op, Scan) else replace(op, body=body, body_consts=count)
    operands = (*eqn.operands[:end], *[outside for _, outside in moved], *eqn.operands[end:])
    return [*moving.equations, Equation(new, operands, eqn.results, eqn.loc)]


class _Moving:
    """What of a loop's body is the same in all steps.

    Attributes:
        equations: what is computed before the loop.
        moved: for values that the body does not compute any more what they are before the loop.
        sources: the equations of the body that these copy.
    """

    def __init__(self, same: dict[Value, Value]) -> None:
        self.equations: list[Equation] = []
        self.moved: dict[Value, Value] = {}
        self.sources: set[Equation] = set()
        self._outside = dict(same)
        self._fused: dict[Value, Equation] = {}

    def takes(self, eqn: Equation) -> bool:
        """Move an equation, if it is to be moved."""
        op = eqn.op
        if not all(value in self._outside or value in self._fused for value in eqn.operands):
            return False
        if op.effect or op.is_opaque or op.axes or not eqn.results:
            return False
        if isinstance(op, _FUSED) or op.storage in (Storage.ALIAS, Storage.BITCAST):
            self._fused.update(dict.fromkeys(eqn.results, eqn))
            return False
        self._add(eqn)
        self.moved |= {value: self._outside[value] for value in eqn.results}
        return True

    def _add(self, eqn: Equation) -> None:
        for value in eqn.operands:
            if value not in self._outside:
                self._add(self._fused[value])
        self.sources.add(eqn)
        results: Sequence[Value] = [Value(value.type, value.name) for value in eqn.results]
        operands = tuple([self._outside[value] for value in eqn.operands])
        self.equations.append(Equation(eqn.op, operands, tuple(results), eqn.loc))
        self._outside |= dict(zip(eqn.results, results, strict=True))


def held_in_steps(graph: Graph) -> Graph:
    """The graph in which each step computes what `Hoist` would move; the graph itself where that is nothing.

    What it reads waits behind a barrier for what is new in each step, so that XLA does not move it either.
    """
    return EquationRewriter(lambda _: _held).graph(graph)


def _held(eqn: Equation) -> list[Equation] | None:
    """A loop whose steps compute what is the same in all of them; None for what stays as it is."""
    op = eqn.op
    if not isinstance(op, Scan | While) or (loop := _Loop.of(eqn, op)) is None:
        return None
    moving = _Moving(loop.same)
    for inner in op.body.equations:
        moving.takes(inner)
    read = {value for inner in moving.sources for value in inner.operands}
    params = [param for param in op.body.params if param in read]
    new = next((param for param in loop.varying if param not in loop.same), None)
    if not params or new is None:
        return None
    behind = {param: Value(param.type, param.name) for param in params}
    barrier = Equation(OptimizationBarrier(), (*params, new), (*behind.values(), Value(new.type, new.name)), eqn.loc)
    equations = [reading(inner, behind) if inner in moving.sources else inner for inner in op.body.equations]
    body = Graph(op.body.name, op.body.params, (barrier, *equations), op.body.results)
    return [replace(eqn, op=replace(op, body=body))]
