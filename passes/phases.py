"""Analysis: which equations of a program are of the forward pass, which recompute, which are of the backward pass.

Before:  %0 = sine %x   %1 = optimization_barrier %x, %ct   %2 = sine %1   %3 = multiply %2, %1#1
After:   %0 forward; %2 recompute, in stage 1; %3 backward

Locations say what is of the backward pass (`Location.is_backward`); so is what reads any of that, as an optimizer
does. Of the backward pass, what computes the same as an equation before it recomputes: by value numbering that sees
through barriers and other names, unlike `rematc.passes.cse`, which must not. A step of a loop computes the same as one
of another loop over the same stacks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rematc.ir.core import Equation, Graph
from rematc.ir.facts import Storage
from rematc.ir.ops.case.op import Case
from rematc.ir.ops.mapped import ManualComputation
from rematc.ir.ops.regions import Call, Checkpoint
from rematc.ir.ops.scan.op import Scan
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.ir.values import Value
from rematc.passes.memory_timeline import BACKWARD, FORWARD, RECOMPUTED


@dataclass(frozen=True, slots=True)
class Phase:
    """What an equation is there for.

    Attributes:
        name: `FORWARD`, `RECOMPUTED` or `BACKWARD`.
        stage: of what recomputes, the part of the backward pass that it is for, from 1 in program order; else 0.
    """

    name: str
    stage: int = 0

    def __str__(self) -> str:
        """`forward`, `recompute/2`, `backward`; `recompute` where several stages have it in common."""
        name = "recompute" if self.name == RECOMPUTED else self.name
        return f"{name}/{self.stage}" if self.stage else name


#: For equations their phase, and those of the equations in their regions.
Phases = Mapping[Equation, "Phased"]


@dataclass(frozen=True, slots=True)
class Phased:
    """An equation's phase, and those of the equations in its regions."""

    phase: Phase
    inside: Phases


_FORWARD, _BACKWARD = Phase(FORWARD), Phase(BACKWARD)
_NOTHING: Phases = {}


def phases_of(graph: Graph) -> Phases:
    """The phases of all equations; none for a program without a backward pass.

    The equations of functions that XLA puts in the place of their calls have none: they are as the call.
    """
    if not any(map(_is_marked, graph.equations)):
        return _NOTHING
    analysis = _Analysis()
    return analysis.graph(graph, [analysis.fresh(is_variable=True) for _ in graph.params], None)[1]


_Found = dict[Equation, Phased]


@dataclass(slots=True)
class _Analysis:
    """One walk over a program.

    Attributes:
        count: how many numbers are taken.
        numbers: the numbers of what was computed, by op and the operands' numbers.
        variable: the numbers of what does not follow from constants alone.
        stage: the last stage.
        is_open: whether what recomputes next is of another stage.
        functions: of each function that stays one, the graph that it is written as, and the phases there.
    """

    count: int = 0
    numbers: dict[tuple[object, ...], tuple[int, ...]] = field(default_factory=dict)
    variable: set[int] = field(default_factory=set)
    stage: int = 0
    is_open: bool = True
    functions: dict[Graph, tuple[Graph, _Found]] = field(default_factory=dict)

    def fresh(self, *, is_variable: bool) -> int:
        self.count += 1
        if is_variable:
            self.variable.add(self.count)
        return self.count

    def interned(self, key: tuple[object, ...], results: int, *, is_variable: bool) -> tuple[tuple[int, ...], bool]:
        """The numbers of what a key stands for, and whether it was there."""
        known = self.numbers.get(key)
        if known is not None:
            return known, True
        made = self.numbers[key] = tuple([self.fresh(is_variable=is_variable) for _ in range(results)])
        return made, False

    def graph(self, graph: Graph, params: Sequence[int], around: Phase | None) -> tuple[list[int], _Found]:
        """Go over a graph of these parameters; `around` is the phase of what it stands in. The results' numbers."""
        of: dict[Value, int] = dict(zip(graph.params, params, strict=True))
        found: _Found = {}
        behind: set[Value] = set()
        last: tuple[Value, ...] = ()
        for eqn in graph.equations:
            numbers = [of[value] for value in eqn.operands]
            is_backward = _is_backward(eqn, around) or not behind.isdisjoint(eqn.operands)
            if is_backward:
                behind.update(eqn.results)
            if isinstance(eqn.op, OptimizationBarrier):
                # What is written once for all that read it is behind a barrier of its own.
                self.is_open = self.is_open or not set(eqn.operands).issubset(last)
                of.update(zip(eqn.results, numbers, strict=True))
                found[eqn] = Phased(_BACKWARD if is_backward else _FORWARD, _NOTHING)
                continue
            results, is_again = self._results(eqn, numbers)
            phase = self._phase(is_backward, is_again and eqn.op.storage is not Storage.ALIAS, around)
            results, inside = self._regions(eqn, numbers, results, phase)
            of.update(zip(eqn.results, results, strict=True))
            found[eqn] = Phased(phase, inside)
            last = eqn.results
        return [of[value] for value in graph.results], found

    def _results(self, eqn: Equation, numbers: Sequence[int]) -> tuple[Sequence[int], bool]:
        """The numbers of an equation's results, and whether something before it has computed them."""
        if eqn.op.is_identity:
            return numbers, False
        is_variable = bool(eqn.op.effect) or not self.variable.isdisjoint(numbers)
        if not eqn.op.is_mergeable or eqn.op.effect:
            return [self.fresh(is_variable=True) for _ in eqn.results], False
        ordered = sorted(numbers) if eqn.commutes else numbers
        results, is_again = self.interned((eqn.op, *ordered), len(eqn.results), is_variable=is_variable)
        return results, is_again and is_variable

    def _phase(self, is_backward: bool, is_again: bool, around: Phase | None) -> Phase:
        if around is not None and around.name == RECOMPUTED:
            return around
        if not is_backward:
            return _FORWARD
        if not is_again:
            return _BACKWARD
        self.stage += self.is_open
        self.is_open = False
        return Phase(RECOMPUTED, self.stage)

    # -- regions -------------------------------------------------------------------------------------------------------

    def _regions(
        self, eqn: Equation, numbers: Sequence[int], results: Sequence[int], phase: Phase
    ) -> tuple[Sequence[int], Phases]:
        """The numbers of the results, and the phases inside."""
        regions = eqn.op.regions()
        if not regions:
            return results, _NOTHING
        self.is_open = True  # for what is inside, and for what follows
        match eqn.op:
            case Scan() as op:
                found = results, self._scan(op, numbers, results, phase)
            case Call() as op:
                found = self._call(op, numbers, phase)
            case Checkpoint() as op:
                found = self.graph(op.body, numbers, phase)
            case ManualComputation() as op:
                # It stands where the program is written, around equations of all phases.
                found = results, self.graph(op.body, [self.fresh(is_variable=True) for _ in op.body.params], None)[1]
            case Case():
                branches = [self.graph(branch, numbers[1:], phase) for branch in regions]
                found = branches[-1][0], _joined([inside for _, inside in branches])
            case _:
                params = [[self.fresh(is_variable=True) for _ in region.params] for region in regions]
                parts = [self.graph(region, given, phase)[1] for region, given in zip(regions, params, strict=True)]
                found = results, _joined(parts)
        self.is_open = True
        return found

    def _scan(self, op: Scan, numbers: Sequence[int], results: Sequence[int], phase: Phase) -> Phases:
        """A step reads rows of stacks: two loops over one stack read the same row of it in the same step."""
        consts, _, xs = op.parts(numbers)
        carry = [self.fresh(is_variable=True) for _ in range(op.carry)]
        rows = [self.interned((_ROW, x), 1, is_variable=x in self.variable)[0][0] for x in xs]
        given, inside = self.graph(op.body, [*consts, *carry, *rows], phase)
        for stack, row in zip(results[op.carry :], given[op.carry :], strict=True):
            self.numbers.setdefault((_ROW, stack), (row,))
        return inside

    def _call(self, op: Call, numbers: Sequence[int], phase: Phase) -> tuple[Sequence[int], Phases]:
        given, inside = self.graph(op.body, numbers, phase)
        if op.pinned is None:
            return given, _NOTHING
        first, shared = self.functions.setdefault(op.body, (op.body, inside))
        for one, same in zip(first.equations, op.body.equations, strict=True):
            if one in shared and shared[one].phase != inside[same].phase:
                _share(shared, one, inside[same].phase)
        return given, shared


def _share(phases: _Found, eqn: Equation, other: Phase) -> None:
    """Say of an equation what holds for it, and for the one of another phase that is written as the same."""
    one = phases.pop(eqn)
    if one.phase.name == other.name:
        phases[eqn] = Phased(Phase(other.name), one.inside)


#: The key of a row of a stack.
_ROW = "row"


def _joined(parts: Sequence[Phases]) -> Phases:
    return {eqn: phased for part in parts for eqn, phased in part.items()}


def _is_backward(eqn: Equation, around: Phase | None) -> bool:
    if around is not None:
        return around.name != FORWARD
    return _is_marked(eqn)


def _is_marked(eqn: Equation) -> bool:
    """Whether an equation, or one in its place as a function, comes from a backward pass."""
    if eqn.loc is not None and eqn.loc.is_backward:
        return True
    return isinstance(eqn.op, Call | ManualComputation) and any(map(_is_marked, eqn.op.body.equations))
