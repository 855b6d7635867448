"""How a scan acts along dimensions: as its step does, for all steps alike. The steps are no dimension of it."""

from __future__ import annotations

from rematc.ir.core import Graph, PartContext
from rematc.ir.ops.body_slicings import Bodies, Cutting, Given
from rematc.ir.ops.scan.base import ScanBase
from rematc.ir.slicings import Part, Slicing
from rematc.ir.values import Value


def slicings_of_scan(op: ScanBase) -> tuple[Slicing, ...]:
    """The ways in which the step can be applied in parts."""
    return _cutting_of(op).slicings(_params(op), _results(op))


def part_of_step(op: ScanBase, b: PartContext, part: Part) -> Graph:
    """The step over one part of what it reads; the number of the part is the last const."""
    cutting = _cutting_of(op)
    cut = cutting.cut_of(part.slicing, _params(op))
    gives = [given.inside(d) for given, d in zip(_results(op), part.slicing.results, strict=True)]
    return cutting.part_of(b, op.body, cut, part, gives, op.consts)


def _cutting_of(op: ScanBase) -> Cutting:
    def make() -> Cutting:
        pairs = tuple(zip(op.parts(op.body.params).carry, op.body.results[: op.carry], strict=True))
        return Cutting(Bodies((op.body,), pairs, dict(pairs)))

    return op.body.remembered((Cutting, op.consts, op.carry), make)


def _params(op: ScanBase) -> list[Given]:
    return [Given(param, place >= op.consts + op.carry) for place, param in enumerate(op.body.params)]


def _results(op: ScanBase) -> list[Given]:
    carries = [(place, op.body.params[place]) for place in range(op.consts, op.consts + op.carry)]
    given: list[tuple[int | None, Value | None]] = [*carries, *[(None, None)] * (len(op.body.results) - op.carry)]
    rows = zip(op.body.results, given, strict=True)
    return [Given(value, place is None, place, before) for value, (place, before) in rows]
