"""How a while loop acts along dimensions: as its body does, where the condition is the same for all parts."""

from __future__ import annotations

from rematc.ir.core import Graph, PartContext
from rematc.ir.ops.body_slicings import Bodies, Cutting, Given
from rematc.ir.ops.while_.base import WhileBase
from rematc.ir.slicings import SAME, Part, Slicing


def slicings_of_while(op: WhileBase) -> tuple[Slicing, ...]:
    """The ways in which the body can be applied in parts, as often as all parts are."""
    return _cutting_of(op).slicings(_params(op), _results(op))


def part_of_while(op: WhileBase, b: PartContext, part: Part) -> tuple[Graph, Graph]:
    """Condition and body over one part; the number of the part is the last const of each."""
    cutting = _cutting_of(op)
    cut = cutting.cut_of(part.slicing, _params(op))
    cond = cutting.part_of(b, op.cond, cut, part, (SAME,), op.cond_consts)
    return cond, cutting.part_of(b, op.body, cut, part, part.slicing.results, op.body_consts)


def _cutting_of(op: WhileBase) -> Cutting:
    cond, body = op.cond, op.body

    def make() -> Cutting:
        carries, of_cond = body.params[op.body_consts :], cond.params[op.cond_consts :]
        read = {value for eqn in cond.equations for value in eqn.operands} | {*cond.results}
        alike = [*zip(carries, body.results, strict=True), *zip(carries, of_cond, strict=True)]
        rows = zip(carries, body.results, of_cond, strict=True)
        held = {one: result for one, result, seen in rows if seen not in read}
        return Cutting(Bodies((cond, body), alike, held))

    return body.remembered((Cutting, id(cond), op.cond_consts, op.body_consts), make)


def _params(op: WhileBase) -> list[Given]:
    return [*map(Given, op.cond.params[: op.cond_consts]), *map(Given, op.body.params)]


def _results(op: WhileBase) -> list[Given]:
    first = op.cond_consts
    rows = enumerate(zip(op.body.results, op.body.params[op.body_consts :], strict=True), op.body_consts)
    return [Given(value, place=first + place, before=before) for place, (value, before) in rows]
