"""Recognition: functions of several ops get the derivative that they have as a whole, before differentiation.

Before:  %0 = exponential %x   %1 = reduce_sum %0   %2 = broadcast_in_dim %1   %3 = divide %0, %2
After:   %3 = custom_jvp %x, %0, %2 {body=divide, rule=the quotient %z, and %z %dx less %z (the sum of %z %dx)}

Why: by the rules of the ops the tangent of a softmax takes the exponentials and the quotient, both as large as the
operand: for e = exp(x), s = sum(e) and z = e / s, dz = e dx / s - z sum(e dx) / s. But e / s is z, before the sum and
in it. And the 1 + y of a gelu, y = tanh(x), is that of (1 - y)(1 + y), the derivative of tanh: XLA would merge the two,
and hold the sum until the backward graph; (y - 1)(-1 - y) is the same to the bit, and has none.

Gathers that read at a place of their own in each row, by indices that count the rows, are batched (`batched_gathers`).

Differentiation puts the rule in the place of what is recognised; `inline_recognized` what it has not come to back.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rematc.ir.builder import Builder
from rematc.ir.core import Equation, Graph
from rematc.ir.ops.arithmetic import Add, Divide
from rematc.ir.ops.conversion import Convert
from rematc.ir.ops.custom_jvp import CustomJvp
from rematc.ir.ops.reduction import ReduceSum
from rematc.ir.ops.shape import BroadcastInDim, Reshape
from rematc.ir.ops.transcendental import Exponential, Tanh
from rematc.ir.values import Value
from rematc.passes.batched_gathers import batched_gathers
from rematc.passes.manager import Pass, register_pass
from rematc.passes.regions import RegionRewriter
from rematc.passes.rewriting import Scope

#: What may stand between the sum and the quotient.
_REPEATING = (BroadcastInDim, Reshape, Convert)


@register_pass
@dataclass(frozen=True, slots=True)
class Recognize(Pass):
    """Give softmaxes, and the tanh of a gelu, a derivative as a whole."""

    name = "recognize"

    def run(self, graph: Graph) -> Graph:
        return _Recognizer().graph(graph)


class _Recognizer:
    def __init__(self) -> None:
        self._regions = RegionRewriter(self.graph)

    def graph(self, graph: Graph) -> Graph:
        """The graph with what is recognised; the graph itself if nothing is."""
        definitions = {eqn.results[0]: eqn for eqn in graph.equations if len(eqn.results) == 1}
        of_gelus = _tanhs_of_gelus(graph)
        batched = batched_gathers(graph.equations, definitions)
        equations = [self._equation(eqn, definitions, of_gelus) for eqn in graph.equations]
        if not batched and all(new is old for new, old in zip(equations, graph.equations, strict=True)):
            return graph
        rows = [batched.get(eqn.results, (new,)) for eqn, new in zip(graph.equations, equations, strict=True)]
        return Graph(graph.name, graph.params, tuple(itertools.chain.from_iterable(rows)), graph.results)

    def _equation(self, eqn: Equation, definitions: Mapping[Value, Equation], of_gelus: set[Value]) -> Equation:
        match eqn.op:
            case Divide():
                return _softmax(eqn, definitions) or eqn
            case Tanh() if eqn.results[0] in of_gelus:
                return _tanh(eqn)
        op = self._regions.op(eqn.op)
        return eqn if op is eqn.op else Equation(op, eqn.operands, eqn.results, eqn.loc)


def _softmax(eqn: Equation, definitions: Mapping[Value, Equation]) -> Equation | None:
    """A quotient of exponentials by their sum, with its tangent; None where it is no such quotient."""
    exponentials, divisor = eqn.operands
    defined = definitions.get(exponentials)
    if defined is None or not isinstance(defined.op, Exponential) or not exponentials.type.dtype.is_float:
        return None
    steps = _steps_of_sum(exponentials, divisor, definitions)
    if steps is None:
        return None
    operands = (defined.operands[0], exponentials, divisor)
    b, (x, *parts) = _rule("softmax", eqn, operands)
    quotient = b.emit1(eqn.op, *parts)
    scaled = b.multiply(quotient, b.parameter(x.type))
    total = scaled
    for step in steps:
        total = b.emit1(step.op, total)
    rule = b.build(quotient, b.subtract(scaled, b.multiply(quotient, total)))
    return _recognized(eqn, operands, rule)


def _tanh(eqn: Equation) -> Equation:
    b, (x,) = _rule("tanh", eqn, eqn.operands)
    y = b.emit1(eqn.op, x)
    t, one = b.parameter(x.type), b.full(x.type, 1)
    slope = b.multiply(b.subtract(y, one), b.subtract(b.negate(one), y))
    return _recognized(eqn, eqn.operands, b.build(y, b.multiply(t, slope)))


def _rule(name: str, eqn: Equation, operands: Sequence[Value]) -> tuple[Builder, list[Value]]:
    """A builder for a rule, and its parameters but for the tangent of the first one."""
    b = Builder(name)
    b.loc = eqn.loc
    return b, [b.parameter(operand.type) for operand in operands]


def _recognized(eqn: Equation, operands: tuple[Value, ...], rule: Graph) -> Equation:
    """The equation with this rule, which takes the tangent of the first operand alone; its own is the rule's first."""
    body = Graph(rule.name, rule.params[:-1], rule.equations[:1], rule.results[:1])
    wrt = (True, *[False] * (len(operands) - 1))
    return Equation(CustomJvp(body, rule, wrt, (True,), is_recognized=True), operands, eqn.results, eqn.loc)


def _tanhs_of_gelus(graph: Graph) -> set[Value]:
    """The results y of tanh of which the graph has 1 + y."""
    found = {eqn.results[0] for eqn in graph.equations if isinstance(eqn.op, Tanh)}
    if not found:
        return found
    scope, of_gelus = Scope(0), set[Value]()
    for eqn in graph.equations:
        scope.append(eqn)
        if isinstance(eqn.op, Add):
            x, y = eqn.operands
            of_gelus.update(one for one, other in ((x, y), (y, x)) if one in found and scope.is_splat(other, 1))
    return of_gelus


def _steps_of_sum(of: Value, divisor: Value, definitions: Mapping[Value, Equation]) -> list[Equation] | None:
    """The equations from `of` to `divisor`, where they sum it up and repeat each sum where its summands stand."""
    steps: list[Equation] = []
    value = divisor
    while value is not of:
        eqn = definitions.get(value)
        if eqn is None or not isinstance(eqn.op, (*_REPEATING, ReduceSum)) or not value.type.dtype.is_float:
            return None
        steps.append(eqn)
        value = eqn.operands[0]
    steps.reverse()
    return steps if _is_repeated_in_place(of, steps) else None


def _is_repeated_in_place(of: Value, steps: Sequence[Equation]) -> bool:
    """Whether each dimension that is not summed up comes back to its place."""
    places: list[int | None] = list(range(of.type.rank))
    summed: frozenset[int] | None = None
    for step in steps:
        match step.op:
            case ReduceSum() as op:
                if summed is not None or places != list(range(of.type.rank)):
                    return False
                summed = frozenset(op.dimensions)
                places = [d for d in range(of.type.rank) if d not in summed]
            case BroadcastInDim() as op:
                moved: list[int | None] = [None] * len(op.shape)
                for dimension, place in zip(op.dimensions, places, strict=True):
                    moved[dimension] = place
                places = moved
            case Reshape() as op:
                if [n for n in step.operands[0].type.shape if n > 1] != [n for n in op.shape if n > 1]:
                    return False
                kept = iter([place for place, n in zip(places, step.operands[0].type.shape, strict=True) if n > 1])
                places = [next(kept) if n > 1 else None for n in op.shape]
    sizes = of.type.shape
    return summed is not None and all(
        place == d or sizes[d] == 1 or (d in summed and place is None) for d, place in enumerate(places)
    )
