"""Transposed products as products of their factors in the other order, which is how compilers compute them.

Before:  %0 = dot_general %ct, %x {contract=[[0,1],[0,1]]}   %1 = transpose %0 {permutation=[1,0]}
After:   %1 = dot_general %x, %ct {contract=[[0,1],[0,1]]}

Before:  %0 = transpose %table {permutation=[1,0]}   %1 = dot_general %x, %0 {contract=[[1],[0]]}
After:   %1 = dot_general %x, %table {contract=[[1],[1]]}   where %table is a parameter

Before:  %0 = transpose %table {permutation=[1,0]}   scan %0, ... {body: dot_general %x, %c {contract=[[1],[0]]}}
After:   scan %table, ... {body: dot_general %x, %c {contract=[[1],[1]]}}   where %table is a parameter

Gradients of weights come as the first, and the last is a head that is computed in chunks and shares its table with the
embedding: the derivative has the transposed table, the same in all steps, before the loop. To a plan %0 would be
memory, which of a language model's head is as much as all its weights, held until it is transposed, or to the last
step. Complex products stay: in the other order they round otherwise.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace
from typing import ClassVar

from rematc.ir.core import Equation, Graph
from rematc.ir.ops.dot import DotGeneral
from rematc.ir.ops.scan.op import Scan
from rematc.ir.ops.shape import Transpose
from rematc.ir.values import Value
from rematc.passes.dce import DeadCode
from rematc.passes.legalize.factors import of_source, swapped, swapping
from rematc.passes.manager import Pass, register_pass
from rematc.passes.readers import uses_of
from rematc.passes.regions import RegionRewriter


@register_pass
@dataclass(frozen=True, slots=True)
class FoldTransposes(Pass):
    """Compute products that are only transposed the other way round, and of parameters as they are; in regions too."""

    name: ClassVar[str] = "fold_transposes"

    def run(self, graph: Graph) -> Graph:
        return fold_transposes(graph)


def fold_transposes(graph: Graph, among: Container[Equation] | None = None) -> Graph:
    """The graph with products that are only transposed computed the other way round: all of them, or among these."""
    return _Folding(among).graph(graph)


class _Folding:
    def __init__(self, among: Container[Equation] | None) -> None:
        self._among = among
        self._regions = RegionRewriter(self.graph)

    def graph(self, graph: Graph) -> Graph:
        uses = uses_of(graph)
        products: dict[Value, Equation] = {}
        folded: dict[Value, Value] = {}
        for eqn in graph.equations:
            if (
                isinstance(eqn.op, DotGeneral)
                and uses[eqn.results[0]] == 1
                and (self._among is None or eqn in self._among)
                and not eqn.results[0].type.dtype.is_complex
            ):
                products[eqn.results[0]] = eqn
            elif isinstance(eqn.op, Transpose) and _is_swapped(eqn, products.get(eqn.operands[0])):
                folded[eqn.operands[0]] = eqn.results[0]
        equations = []
        has_changed = is_read_otherwise = False
        given = _transposed_parameters(graph) if self._among is None else {}
        for eqn in graph.equations:
            if isinstance(eqn.op, Transpose) and eqn.operands[0] in folded:
                continue
            new = self._folded(eqn, folded)
            read = _with_sources(_of_parameters(new, given), given)
            has_changed |= read is not eqn
            is_read_otherwise |= read is not new
            equations.append(read)
        changed = Graph(graph.name, graph.params, tuple(equations), graph.results) if has_changed else graph
        return DeadCode().run(changed) if is_read_otherwise else changed

    def _folded(self, eqn: Equation, folded: dict[Value, Value]) -> Equation:
        if isinstance(eqn.op, DotGeneral) and eqn.results[0] in folded:
            return Equation(swapped(eqn.op), eqn.operands[::-1], (folded[eqn.results[0]],), eqn.loc)
        op = self._regions.op(eqn.op)
        return eqn if op is eqn.op else Equation(op, eqn.operands, eqn.results, eqn.loc)


def _transposed_parameters(graph: Graph) -> dict[Value, Equation]:
    params = set(graph.params)
    return {
        eqn.results[0]: eqn for eqn in graph.equations if isinstance(eqn.op, Transpose) and eqn.operands[0] in params
    }


def _of_parameters(eqn: Equation, given: dict[Value, Equation]) -> Equation:
    """A product that reads parameters where they are, as long as the library for matrices takes them so."""
    for side, value in enumerate(eqn.operands) if isinstance(eqn.op, DotGeneral) else ():
        transpose = given.get(value)
        if transpose is None or not isinstance(transpose.op, Transpose) or not isinstance(eqn.op, DotGeneral):
            continue
        op = of_source(eqn.op, side, transpose.op.permutation)
        if op is not None and not op.moved(side, transpose.operands[0].type.shape):
            operands = list(eqn.operands)
            operands[side] = transpose.operands[0]
            eqn = replace(eqn, op=op, operands=tuple(operands))
    return eqn


def _with_sources(eqn: Equation, given: dict[Value, Equation]) -> Equation:
    """A loop whose steps read parameters where they are, if all products of theirs do that read one transposed."""
    if not isinstance(eqn.op, Scan):
        return eqn
    body, operands = eqn.op.body, list(eqn.operands)
    for index in range(eqn.op.consts):
        transpose = given.get(operands[index])
        changed = None if transpose is None else _with_source(body, body.params[index], transpose)
        if transpose is not None and changed is not None:
            body, operands[index] = changed, transpose.operands[0]
    return eqn if body is eqn.op.body else replace(eqn, op=replace(eqn.op, body=body), operands=tuple(operands))


def _with_source(body: Graph, param: Value, transpose: Equation) -> Graph | None:
    """A step with what a parameter is a transpose of in its place; None where something else than products reads it."""
    source = Value(transpose.operands[0].type, param.name)
    inside = {param: Equation(transpose.op, (source,), (param,), transpose.loc)}
    equations = [_with_sources(_of_parameters(eqn, inside), inside) for eqn in body.equations]
    if param in body.results or any(param in eqn.operands for eqn in equations):
        return None
    params = tuple([source if value is param else value for value in body.params])
    return Graph(body.name, params, tuple(equations), body.results)


def _is_swapped(eqn: Equation, product: Equation | None) -> bool:
    """Whether an equation transposes a product to that of its factors in the other order."""
    if product is None or not isinstance(product.op, DotGeneral):
        return False
    return eqn.op == swapping(product.op, product.operands[0], product.results[0])
