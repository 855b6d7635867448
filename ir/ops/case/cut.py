"""How branches act along dimensions: as each of them does, for an index that all parts have."""

from __future__ import annotations

from rematc.ir.core import Graph, PartContext
from rematc.ir.ops.body_slicings import Bodies, Cutting, Given
from rematc.ir.ops.case.base import INDEX, CaseBase
from rematc.ir.slicings import Part, Slicing
from rematc.ir.values import Value


def slicings_of_case(op: CaseBase) -> tuple[Slicing, ...]:
    """The ways in which all branches can be applied in parts."""
    return _cutting_of(op).slicings(_params(op), _results(op))


def part_of_branches(op: CaseBase, b: PartContext, part: Part) -> tuple[Graph, ...]:
    """The branches over one part of what they read; the number of the part is their last parameter."""
    cutting = _cutting_of(op)
    cut = cutting.cut_of(part.slicing, _params(op))
    return tuple([cutting.part_of(b, branch, cut, part, part.slicing.results) for branch in op.branches])


def _cutting_of(op: CaseBase) -> Cutting:
    first, *others = op.branches

    def make() -> Cutting:
        rows = [pair for other in others for pair in zip(first.params, other.params, strict=True)]
        rows += [pair for other in others for pair in zip(first.results, other.results, strict=True)]
        return Cutting(Bodies(op.branches, [(one, other) for one, other in rows if one is not other]))

    return first.remembered((Cutting, tuple(map(id, others))), make)


def _params(op: CaseBase) -> list[Given]:
    return [Given(Value(INDEX)), *map(Given, op.branches[0].params)]


def _results(op: CaseBase) -> list[Given]:
    columns = zip(*[branch.results for branch in op.branches], strict=True)
    return [Given(first, others=tuple(others)) for first, *others in columns]
