"""Partial evaluation of branches: a case in the case of what is known and the case of the rest.

What one branch saves the others do not have: residuals of one type share a place, which a branch that has none for it
fills with zeros. Under a policy a third case, before the staged one, computes again what is not saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rematc.ir.core import Equation, Graph, SplitContext, SplitGraph, SplitRegion
from rematc.ir.ops.batching import with_fields
from rematc.ir.ops.bodies import Inside, chosen, others
from rematc.ir.ops.case.base import CaseBase
from rematc.ir.policy import Policy
from rematc.ir.types import TensorType
from rematc.ir.values import Types, Value


def split_case(
    op: CaseBase, types: Types, b: SplitContext, is_unknown: Sequence[bool], policy: Policy | None
) -> SplitRegion:
    """`Case.split`; `types` are those of the operands."""
    operands = tuple([Value(type) for type in types])
    if is_unknown[0]:
        return _all_staged(op, operands, is_unknown, policy)
    parts = [b.split_of(branch, is_unknown[1:], None) for branch in op.branches]
    staged_flags = tuple([any(column) for column in zip(*[part.is_unknown for part in parts], strict=True)])
    branches = [_Branch.of(part, staged_flags) for part in parts]
    known, unknown = others(operands, is_unknown), chosen(operands, is_unknown)
    name, count = op.branches[0].name, len(branches[0].known)

    if policy is None:
        bodies = [branch.body(branch.known) for branch in branches]
        forward, places = _apply(op, bodies, [branch.needed for branch in branches], known)
        residuals = (*known, *forward.results[count:])
        staged = _staged(op, branches, places, residuals, (), unknown)
        return SplitRegion(_returning(forward, count, residuals), staged, staged_flags)

    splits = [b.rematerialized(branch.body((*branch.known, *branch.needed)), policy) for branch in branches]
    saved = [
        [value for value, source in zip(split.residuals, split.sources, strict=True) if source is None]
        for split in splits
    ]
    bodies = [Graph(name, one.known.params, one.known.equations, one.known.results[:count]) for one in splits]
    forward, kept = _apply(op, bodies, saved, known)
    slots = forward.results[count:]
    residuals = (*known, *slots)
    bodies = [
        Graph(
            name,
            (*one.known.params, *kept.params(index, saved[index])),
            one.staged.equations,
            one.staged.results[:count],
        )
        for index, one in enumerate(splits)
    ]
    again, places = _apply(op, bodies, [one.staged.results[count:] for one in splits], residuals)
    staged = _staged(op, branches, places, residuals, again.results[count:], unknown)
    is_decided = (*[False] * len(known), *[True] * len(slots))
    return SplitRegion(_returning(forward, count, residuals), staged, staged_flags, again, is_decided)


def _all_staged(
    op: CaseBase, operands: Sequence[Value], is_unknown: Sequence[bool], policy: Policy | None
) -> SplitRegion:
    known, unknown = others(operands, is_unknown), chosen(operands, is_unknown)
    name = op.branches[0].name
    outside = Inside(name, (*known, *unknown))
    staged = outside.build(outside.emit(op, *operands))
    again = None if policy is None else Graph(name, known, (), ())
    flags = () if policy is None else (False,) * len(known)
    return SplitRegion(Graph(name, known, (), known), staged, (True,) * len(staged.results), again, flags)


@dataclass(frozen=True, slots=True)
class _Branch:
    """A branch in two.

    Attributes:
        part: its split.
        known: its known results.
        needed: computed values that its staged side reads.
        param_of: for each value of the known side that crosses, the parameter that it is in the staged one.
        results: its unknown results.
    """

    part: SplitGraph
    known: tuple[Value, ...]
    needed: list[Value]
    param_of: dict[Value, Value]
    results: tuple[Value, ...]

    @staticmethod
    def of(part: SplitGraph, is_unknown: Sequence[bool]) -> _Branch:
        """`is_unknown`: which results are unknown in some branch; where it is another one the value crosses."""
        param_of = dict(zip(part.residuals, part.residual_params, strict=True))
        values = part.known_results
        results = []
        for value, later, is_set in zip(values, part.unknown_results, is_unknown, strict=True):
            if later is None and value is not None and is_set:
                # The parameter that stands for it: one, however many results it is.
                later = param_of.setdefault(value, Value(value.type))  # noqa: PLW2901
            if later is not None:
                results.append(later)
        known = [value for value, is_set in zip(values, is_unknown, strict=True) if value is not None and not is_set]
        params = set(part.known.params)
        needed = [value for value in param_of if value not in params]
        return _Branch(part, tuple(known), needed, param_of, tuple(results))

    def body(self, results: Sequence[Value]) -> Graph:
        """The known side with these results."""
        known = self.part.known
        return Graph(known.name, known.params, known.equations, tuple(results))


@dataclass(frozen=True, slots=True)
class _Places:
    """Where branches put the values that they save.

    Attributes:
        types: of each place.
        indices: for each branch, which of its values is at each place; None where it has none.
    """

    types: tuple[TensorType, ...]
    indices: tuple[tuple[int | None, ...], ...]

    @staticmethod
    def of(saved: Sequence[Sequence[Value]]) -> _Places:
        types: list[TensorType] = []
        rows: list[dict[int, int]] = []
        for values in saved:
            row: dict[int, int] = {}
            for index, value in enumerate(values):
                free = [place for place, type in enumerate(types) if type == value.type and place not in row]
                if not free:
                    free = [len(types)]
                    types.append(value.type)
                row[free[0]] = index
            rows.append(row)
        return _Places(tuple(types), tuple([tuple([row.get(place) for place in range(len(types))]) for row in rows]))

    def arranged(self, branch: int, values: Sequence[Value]) -> tuple[Value | None, ...]:
        """Something for each of the branch's values, by place."""
        return tuple([None if index is None else values[index] for index in self.indices[branch]])

    def params(self, branch: int, values: Sequence[Value]) -> tuple[Value, ...]:
        """The values as parameters of a later branch, with unused ones for the places that it does not fill."""
        rows = zip(self.types, self.arranged(branch, values), strict=True)
        return tuple([Value(type) if value is None else value for type, value in rows])


def _apply(
    op: CaseBase, bodies: Sequence[Graph], saved: Sequence[Sequence[Value]], params: tuple[Value, ...]
) -> tuple[Graph, _Places]:
    """The graph over `params` that applies the branches: their results, then what they save, each at its place."""
    places = _Places.of(saved)
    branches = []
    for index, body in enumerate(bodies):
        inside = Inside.of(body)
        rows = zip(places.types, places.arranged(index, saved[index]), strict=True)
        slots = [inside.zeros(type) if value is None else value for type, value in rows]
        branches.append(inside.build((*body.results, *slots)))
    outside = Inside(bodies[0].name, params)
    return outside.build(outside.emit(with_fields(op, branches=tuple(branches)), *params)), places


def _returning(forward: Graph, count: int, residuals: tuple[Value, ...]) -> Graph:
    """The known graph: its first `count` results, then residuals."""
    return Graph(forward.name, forward.params, forward.equations, (*forward.results[:count], *residuals))


def _staged(
    op: CaseBase,
    branches: Sequence[_Branch],
    places: _Places,
    residuals: tuple[Value, ...],
    recomputed: tuple[Value, ...],
    unknown: tuple[Value, ...],
) -> Graph:
    """The staged case: the index and known operands, what the branches saved, unknown operands."""
    index, *passed = residuals[: 1 + len(branches[0].part.known.params)]
    slots = recomputed or residuals[1 + len(passed) :]
    slots = slots[: len(places.types)]
    bodies = []
    for number, branch in enumerate(branches):
        param_of = branch.param_of
        equations: tuple[Equation, ...] = branch.part.staged.equations
        known = [param_of.get(value) or Value(value.type) for value in branch.part.known.params]
        crossing = places.params(number, [param_of[value] for value in branch.needed])
        own = branch.part.unknown_params
        bodies.append(Graph(branch.part.staged.name, (*known, *crossing, *own), equations, branch.results))
    outside = Inside(bodies[0].name, (*residuals, *recomputed, *unknown))
    staged = with_fields(op, branches=tuple(bodies))
    return outside.build(outside.emit(staged, index, *passed, *slots, *unknown))
