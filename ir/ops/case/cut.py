"""How branches act along dimensions: as each of them does, for an index that all parts have."""

from __future__ import annotations

import itertools

from rematc.ir.core import Graph, PartContext
from rematc.ir.ops.body_slicings import Bodies, Cutting, Given
from rematc.ir.ops.case.base import INDEX, CaseBase
from rematc.ir.slicings import Part, Slicing
from rematc.ir.types import I32, TensorType
from rematc.ir.values import Primals, Value


def slicings_of_case(op: CaseBase) -> tuple[Slicing, ...]:
    """The ways in which all branches can be applied in parts."""
    return _cutting_of(op).slicings(_params(op), _results(op))


def part_of_branches(op: CaseBase, b: PartContext, part: Part, operands: Primals) -> tuple[Graph, ...]:
    """The branches over one part of what they read; the number of the part is their last parameter."""
    cutting = _cutting_of(op)
    cut = cutting.cut_of(part.slicing, _params(op))
    found = []
    for branch in op.branches:
        inner = b.inside(branch.name)
        rows = zip(branch.params, operands[1:], strict=True)
        params = [inner.parameter(param.type.with_shape(x.type.shape), param.name) for param, x in rows]
        own = Part(part.slicing, part.count, inner.parameter(TensorType(I32, ()), "part"))
        written = cutting.write(inner, branch, cut, own, params)
        gives = zip(branch.results, part.slicing.results, strict=True)
        found.append(inner.build(*itertools.starmap(written.result, gives)))
    return tuple(found)


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
