"""How a while loop acts along dimensions: as its body does, where the condition is the same for all parts."""

from __future__ import annotations

from rematc.ir.core import Graph, PartContext
from rematc.ir.ops.body_slicings import Bodies, Cutting, Given
from rematc.ir.ops.while_.base import WhileBase
from rematc.ir.slicings import Part, Slicing
from rematc.ir.types import I32, TensorType
from rematc.ir.values import Primals


def slicings_of_while(op: WhileBase) -> tuple[Slicing, ...]:
    """The ways in which the body can be applied in parts, as often as all parts are."""
    return _cutting_of(op).slicings(_params(op), _results(op))


def part_of_while(op: WhileBase, b: PartContext, part: Part, operands: Primals) -> tuple[Graph, Graph]:
    """Condition and body over one part; the number of the part is the last const of each."""
    cutting, (of_cond, of_body, carry) = _cutting_of(op), op.parts(operands)
    cut = cutting.cut_of(part.slicing, _params(op))
    graphs = []
    for graph, consts, gives in (
        (op.cond, of_cond, (None,)),
        (op.body, of_body, part.slicing.results),
    ):
        inner = b.inside(graph.name)
        rows = list(zip(graph.params, (*consts, *carry), strict=True))
        params = [inner.parameter(param.type.with_shape(x.type.shape), param.name) for param, x in rows[: len(consts)]]
        own = Part(part.slicing, part.count, inner.parameter(TensorType(I32, ()), "part"))
        params += [inner.parameter(param.type.with_shape(x.type.shape), param.name) for param, x in rows[len(consts) :]]
        written = cutting.write(inner, graph, cut, own, params)
        graphs.append(inner.build(*[written.result(value, d) for value, d in zip(graph.results, gives, strict=True)]))
    cond, body = graphs
    return cond, body


def _cutting_of(op: WhileBase) -> Cutting:
    cond, body = op.cond, op.body

    def make() -> Cutting:
        carries, of_cond = body.params[op.body_consts :], cond.params[op.cond_consts :]
        read = {value for eqn in cond.equations for value in eqn.operands} | {*cond.results}
        alike = [*zip(carries, body.results, strict=True), *zip(carries, of_cond, strict=True)]
        rows = zip(carries, body.results, of_cond, strict=True)
        held = {one: result for one, result, seen in rows if seen not in read}
        return Cutting(Bodies((cond, body), alike, held, cond.results))

    return body.remembered((Cutting, id(cond), op.cond_consts, op.body_consts), make)


def _params(op: WhileBase) -> list[Given]:
    return [*map(Given, op.cond.params[: op.cond_consts]), *map(Given, op.body.params)]


def _results(op: WhileBase) -> list[Given]:
    first = op.cond_consts
    rows = enumerate(zip(op.body.results, op.body.params[op.body_consts :], strict=True), op.body_consts)
    return [Given(value, place=first + place, before=before) for place, (value, before) in rows]
