"""Partial evaluation of loops: a scan in the loop of what is known and the loop of the rest.

Three loops come out. The known one runs in the forward graph and stacks what the later ones need. The staged one runs
in the backward graph. Where a policy lets only some values be saved, a third one stands before it: it computes again,
from the values that the known loop stacked, what the staged loop reads.

What is the same in all steps crosses as it is: consts, xs, and what consts alone determine, which is computed once,
before the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rematc.ir.core import Equation, Graph, SplitContext, SplitGraph, SplitRegion
from rematc.ir.effects import without_effects
from rematc.ir.ops.batching import with_fields
from rematc.ir.ops.bodies import Inside, chosen, others, settled, spread, without_unused
from rematc.ir.ops.scan.base import ScanBase
from rematc.ir.policy import Policy
from rematc.ir.stacking import Unstacked
from rematc.ir.values import Value


def split_scan(op: ScanBase, b: SplitContext, is_unknown: Sequence[bool], policy: Policy | None) -> SplitRegion:
    """`Scan.split`."""
    part, flags = _settled(op, b, is_unknown)
    if policy is None:
        part = b.split_of_step(op.body, flags, _unstacked(op, part, flags))
    body = _StagedBody.of(op, part, flags)
    operands = tuple([Value(type) for type in op.infer_operands()])
    loop = _KnownLoop.of(op, part, flags, operands)
    loop.hoist([value for value, _ in body.pairs])
    wanted = (*loop.ys, *[value for value, _ in body.pairs if not loop.is_passed(value)])
    if policy is None:
        finals, stacks = loop.run(loop.equations, loop.finals, wanted)
        values = dict(zip(wanted, stacks, strict=True))
        residuals = loop.residuals(operands, is_unknown, stacks[len(loop.ys) :])
        known = loop.around(others(operands, is_unknown), (*loop.results(finals, stacks), *residuals))
        staged = body.graph(loop, values, (*residuals, *chosen(operands, is_unknown)), operands)
        return SplitRegion(known, staged, body.is_unknown)

    split = b.rematerialized(loop.graph(wanted), policy)
    carries, count = len(loop.finals), len(loop.finals) + len(wanted)
    results = split.known.results
    saved = tuple([value for value, source in zip(results[count:], split.sources, strict=True) if source is None])
    finals, stacks = loop.run(split.known.equations, results[:carries], (*results[carries:count], *saved))
    residuals = loop.residuals(operands, is_unknown, stacks[len(wanted) :])
    known = loop.around(others(operands, is_unknown), (*loop.results(finals, stacks), *residuals))
    is_decided = tuple([value in stacks[len(wanted) :] for value in residuals])

    loop.outer.update(zip(saved, stacks[len(wanted) :], strict=True))
    finals, stacks = loop.run(
        split.staged.equations, split.staged.results[:carries], split.staged.results[carries:], saved
    )
    values = dict(zip(wanted, stacks, strict=True))
    held = set(residuals)
    recomputed = tuple(dict.fromkeys(value for value in stacks[len(loop.ys) :] if value not in held))
    again = loop.around(residuals, (*loop.results(finals, stacks), *recomputed))
    staged = body.graph(loop, values, (*residuals, *recomputed, *chosen(operands, is_unknown)), operands)
    return SplitRegion(known, staged, body.is_unknown, again, is_decided)


def split_with_snapshots(
    op: ScanBase, b: SplitContext, is_unknown: Sequence[bool], policy: Policy | None
) -> SplitRegion:
    """`Scan.split` of a loop with snapshots: nothing is stacked, the staged loop takes the known steps again."""
    part, flags = _settled(op, b, is_unknown)
    name = op.body.name
    # Effects of known steps are had in the forward loop, those of unknown ones in the staged one.
    taken_now = _joined(op, replace(part, staged=without_effects(part.staged)), flags)
    taken_again = _joined(op, replace(part, known=without_effects(part.known)), flags)

    operands = tuple([Value(type) for type in op.infer_operands()])
    result_is_unknown = (*op.parts(flags).carry, *part.is_unknown[op.carry :])
    known = others(operands, is_unknown)
    outside = Inside(name, (*known, *chosen(operands, is_unknown)))
    staged = outside.build(chosen(outside.emit(taken_again, *operands), result_is_unknown))
    outside = Inside(name, known)
    finals = others(outside.emit(taken_now, *operands), result_is_unknown)
    is_known = [not is_set for is_set in result_is_unknown]
    outside.equations = [without_unused(eqn, is_known) for eqn in outside.equations]
    forward = outside.build((*finals, *known))
    if policy is None:
        return SplitRegion(forward, staged, result_is_unknown)
    return SplitRegion(forward, staged, result_is_unknown, outside.build(finals), (False,) * len(known))


def _joined(op: ScanBase, part: SplitGraph, flags: Sequence[bool]) -> ScanBase:
    """The loop whose steps are the known and the staged side of a step together."""
    known, unknown = iter(part.known.params), iter(part.unknown_params)
    params = [next(unknown) if is_set else next(known) for is_set in flags]
    inside = Inside(op.body.name, params, part.known.equations)
    later = iter(inside.inline(part.staged, (*part.residuals, *part.unknown_params)))
    results = [next(later) if value is None else value for value in part.known_results]
    return with_fields(op, body=inside.build(results))


def _settled(op: ScanBase, b: SplitContext, is_unknown: Sequence[bool]) -> tuple[SplitGraph, tuple[bool, ...]]:
    """The split of a step, and which of its parameters are unknown."""

    def step(carries: tuple[bool, ...]) -> tuple[SplitGraph, tuple[bool, ...]]:
        part = b.split_of(op.body, op.with_carries(is_unknown, carries), None)
        return part, part.is_unknown

    part, _, carries = settled(step, op.parts(is_unknown).carry)
    return part, op.with_carries(is_unknown, carries)


def _unstacked(op: ScanBase, part: SplitGraph, flags: Sequence[bool]) -> Unstacked:
    """Consts and slices cross as they are, and so does a carry that never changes; a known y is stacked anyway."""
    params = spread(part.known.params, [not is_set for is_set in flags])
    results = part.known_results
    begin, end = op.consts, op.consts + op.carry
    unchanged = [
        param is not None and param is result for param, result in zip(params[begin:end], results, strict=False)
    ]
    invariant = (*(True,) * begin, *unchanged, *(False,) * (len(params) - end))
    free = (*invariant[:end], *(True,) * (len(params) - end))
    is_y = tuple([index >= op.carry for index, value in enumerate(results) if value is not None])
    return Unstacked(free, invariant, is_y)


@dataclass(slots=True)
class _StagedBody:
    """A step of the staged loop.

    Attributes:
        op: the whole loop.
        flags: which parameters of the step are unknown.
        params: the unknown ones.
        equations: of the step.
        results: unknown carries, then unknown ys.
        pairs: what crosses: its value in the known step, and the parameter that it is here.
        is_unknown: which results of the loop are.
    """

    op: ScanBase
    flags: Sequence[bool]
    params: tuple[Value, ...]
    equations: tuple[Equation, ...]
    results: tuple[Value, ...]
    pairs: list[tuple[Value, Value]]
    is_unknown: tuple[bool, ...]

    @staticmethod
    def of(op: ScanBase, part: SplitGraph, flags: Sequence[bool]) -> _StagedBody:
        pairs = list(zip(part.residuals, part.residual_params, strict=True))
        carries = op.parts(flags).carry
        results = []
        for index, (known, staged) in enumerate(zip(part.known_results, part.unknown_results, strict=True)):
            if index < op.carry and carries[index] and known is not None:
                # A step gives a known value for a carry that starts unknown.
                staged = Value(known.type)  # noqa: PLW2901  # what crosses is what the step gives
                pairs.append((known, staged))
            if staged is not None:
                results.append(staged)
        is_unknown = (*carries, *part.is_unknown[op.carry :])
        return _StagedBody(op, flags, part.unknown_params, part.staged.equations, tuple(results), pairs, is_unknown)

    def graph(
        self, loop: _KnownLoop, stacks: dict[Value, Value], params: tuple[Value, ...], operands: Sequence[Value]
    ) -> Graph:
        """The staged loop over `params`: what crosses and the unknown operands."""
        passed = [(loop.outer[value], param) for value, param in self.pairs if value in loop.constant]
        sliced = [
            (stacks[value] if value in stacks else loop.outer[value], param)
            for value, param in self.pairs
            if value not in loop.constant
        ]
        unknown = spread(self.params, self.flags)
        rows = [(operand, param) for operand, param in zip(operands, unknown, strict=True)]
        consts, carry, xs = (
            [(operand, param) for operand, param in part if param is not None] for part in self.op.parts(rows)
        )
        inputs = [*passed, *consts, *carry, *sliced, *xs]
        body = Graph(self.op.body.name, tuple([param for _, param in inputs]), self.equations, self.results)
        op = with_fields(self.op, body=body, consts=len(passed) + len(consts), carry=len(carry))
        outside = Inside(self.op.body.name, params)
        return outside.build(outside.emit(op, *[operand for operand, _ in inputs]))


@dataclass(slots=True)
class _KnownLoop:
    """The loop of what is known, in the making.

    Attributes:
        op: the whole loop.
        outer: for a parameter of the step, the operand of the loop.
        constant: parameters that are the same in all steps.
        consts: those that come as consts.
        carry: parameters that are carried.
        finals: for each of them what a step gives.
        xs: parameters that are slices.
        ys: known results of a step.
        equations: of the step.
        before: equations around the loop.
        result_places: for each known result of the loop its place among carry or ys, or the operand that it is.
    """

    op: ScanBase
    outer: dict[Value, Value]
    consts: list[Value]
    carry: list[Value]
    finals: list[Value]
    xs: list[Value]
    ys: list[Value]
    equations: Sequence[Equation]
    unchanged: dict[int, Value]
    constant: set[Value] = field(default_factory=set)
    hoisted: list[Value] = field(default_factory=list)
    before: Inside = field(default_factory=lambda: Inside("loop"))

    @staticmethod
    def of(op: ScanBase, part: SplitGraph, flags: Sequence[bool], operands: Sequence[Value]) -> _KnownLoop:
        outer = dict(zip(part.known.params, others(operands, flags), strict=True))
        consts, carry, xs = op.parts(spread(part.known.params, [not is_set for is_set in flags]))
        results = part.known_results
        loop = _KnownLoop(
            op,
            outer,
            [value for value in consts if value is not None],
            [],
            [],
            [value for value in xs if value is not None],
            [value for value in results[op.carry :] if value is not None],
            part.known.equations,
            {},
        )
        for param, result in zip(carry, results, strict=False):
            if param is None or result is None:
                continue
            if param is result:
                # A carry that never changes is a const.
                loop.unchanged[len(loop.carry) + len(loop.unchanged)] = outer[param]
                loop.consts.append(param)
            else:
                loop.carry.append(param)
                loop.finals.append(result)
        loop.constant.update(loop.consts)
        return loop

    def hoist(self, crossing: Sequence[Value]) -> None:
        """Compute what crosses, and follows from consts alone, before the loop."""
        fixed, literal = set(self.constant), set[Value]()
        for eqn in self.equations:
            if eqn.op.effect:
                continue  # it belongs to each step
            if literal.issuperset(eqn.operands):
                literal.update(eqn.results)
            elif all(value in fixed or value in literal for value in eqn.operands):
                fixed.update(eqn.results)
        needed = {value for value in crossing if value in fixed}
        moved: list[Equation] = []
        for eqn in reversed(self.equations):
            if not needed.isdisjoint(eqn.results):
                needed.update(eqn.operands)
                moved.append(eqn)
        moved.reverse()
        results = tuple([value for eqn in moved for value in eqn.results])
        graph = Graph(self.op.body.name, tuple(self.outer), tuple(moved), results)
        self.outer.update(zip(results, self.before.inline(graph, tuple(self.outer.values())), strict=True))
        gone = {eqn for eqn in moved if literal.isdisjoint(eqn.results)}
        self.equations = [eqn for eqn in self.equations if eqn not in gone]
        self.hoisted = [value for eqn in moved if eqn in gone for value in eqn.results]
        self.consts.extend(self.hoisted)
        self.constant.update(self.hoisted)

    def is_passed(self, value: Value) -> bool:
        """Whether a value crosses as the operand that it is, or as an equation before the loop."""
        return value in self.constant or value in self.xs

    def graph(self, wanted: Sequence[Value]) -> Graph:
        """A step."""
        params = (*self.consts, *self.carry, *self.xs)
        return Graph(self.op.body.name, params, tuple(self.equations), (*self.finals, *wanted))

    def run(
        self,
        equations: Sequence[Equation],
        finals: Sequence[Value],
        wanted: Sequence[Value],
        slices: Sequence[Value] = (),
    ) -> tuple[tuple[Value, ...], list[Value]]:
        """Emit a loop of these equations: its last carries, and for each wanted value the stack of it."""
        xs = (*self.xs, *slices)
        found = {value: self.outer[value] for value in xs}
        stacked = [value for value in dict.fromkeys(wanted) if value not in found]
        params = (*self.consts, *self.carry, *xs)
        body = Graph(self.op.body.name, params, tuple(equations), (*finals, *stacked))
        op = with_fields(self.op, body=body, consts=len(self.consts), carry=len(self.carry))
        results = self.before.emit(op, *[self.outer[value] for value in params])
        found.update(zip(stacked, results[len(self.carry) :], strict=True))
        return results[: len(self.carry)], [found[value] for value in wanted]

    def around(self, params: Sequence[Value], results: Sequence[Value]) -> Graph:
        """The graph of the loops that were run, with what is around them; those to come are in another."""
        equations, self.before = tuple(self.before.equations), Inside("loop")
        return Graph(self.op.body.name, tuple(params), equations, tuple(results))

    def results(self, finals: Sequence[Value], stacks: Sequence[Value]) -> tuple[Value, ...]:
        """The known results of the loop."""
        given = iter(finals)
        count = len(finals) + len(self.unchanged)
        carries = [self.unchanged[index] if index in self.unchanged else next(given) for index in range(count)]
        return (*carries, *stacks[: len(self.ys)])

    def residuals(
        self, operands: Sequence[Value], is_unknown: Sequence[bool], stacks: Sequence[Value]
    ) -> tuple[Value, ...]:
        """All that may cross: known operands, what was computed before the loop, stacks."""
        hoisted = [self.outer[value] for value in self.hoisted]
        return tuple(dict.fromkeys((*others(operands, is_unknown), *hoisted, *stacks)))
