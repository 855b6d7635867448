"""A tangent is multiplied by a quotient: where others read dividend and divisor, and none the quotient, by those.

Before:  %z = divide %x, %y   %1 = multiply %t, %z         (%t unknown; others with tangents read %x and %y)
After:   %z = divide %x, %y   %2 = divide %t, %y   %1 = multiply %2, %x

So the derivative of a quotient, z dy/y, has no residual of its own. After a softmax whose weights are reshaped the
derivative of the exponential reads x, and that of the product the reshaped z: XLA would hold z in both shapes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rematc.ir.core import Equation, Graph, Value
from rematc.ir.ops.arithmetic import Divide, Multiply
from rematc.ir.ops.dot import DotGeneral
from rematc.ir.ops.shape import BroadcastInDim


def _reshaped(eqn: Equation) -> set[Value]:
    """What XLA reads in another shape: of a product it drops the dimensions of one element."""
    return {value for value in eqn.operands if 1 in value.type.shape} if isinstance(eqn.op, DotGeneral) else set()


def reading_dividends(graph: Graph, is_unknown: Sequence[bool]) -> Graph:
    """`graph`, of whose parameters the flagged ones are tangents, with such products rewritten."""
    unknown = {value for value, is_set in zip(graph.params, is_unknown, strict=True) if is_set}
    quotients: dict[Value, Equation] = {}
    repeated: dict[Value, Value] = {}
    reads: Counter[Value] = Counter()
    for eqn in graph.equations:
        if unknown.isdisjoint(eqn.operands):
            if isinstance(eqn.op, Divide):
                quotients[eqn.results[0]] = eqn
            elif isinstance(eqn.op, BroadcastInDim):
                repeated[eqn.results[0]] = eqn.operands[0]
        else:
            apart = _reshaped(eqn)
            reads.update(value for value in dict.fromkeys(eqn.operands) if value not in unknown and value not in apart)
            unknown.update(eqn.results)

    def is_read(value: Value) -> bool:
        return bool(reads[value] or (value in repeated and reads[repeated[value]]))

    equations: list[Equation] = []
    for eqn in graph.equations:
        if isinstance(eqn.op, Multiply) and eqn.results[0] in unknown:
            tangent, factor = eqn.operands if eqn.operands[0] in unknown else eqn.operands[::-1]
            quotient = quotients.get(factor)
            if quotient is not None and reads[factor] == 1 and all(map(is_read, quotient.operands)):
                dividend, divisor = quotient.operands
                less = Value(tangent.type)
                equations.append(Equation(Divide(), (tangent, divisor), (less,), eqn.loc))
                equations.append(Equation(eqn.op, (less, dividend), eqn.results, eqn.loc))
                continue
        equations.append(eqn)
    if len(equations) == len(graph.equations):
        return graph
    return Graph(graph.name, graph.params, tuple(equations), graph.results)
