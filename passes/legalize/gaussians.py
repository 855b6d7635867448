"""The derivative of an error function shares no exponential with the function, which XLA:CPU expands itself.

Before:  %1 = erfc %x   %2 = multiply %x, %x   %3 = negate %2   %4 = exponential %3
After:   %1 = erfc %x   %5 = negate %x   %3 = multiply %5, %x   %4 = exponential %3

In its expansion XLA computes e^(-x^2) in the first form, and once for all kernels that read it: an array as large as
all that a gelu is applied to, held from the forward pass of each layer to its backward pass. The same number written in
the second form is another one to XLA, and each kernel computes its own.
"""

from __future__ import annotations

from rematc.ir.core import Equation, Graph
from rematc.ir.ops.arithmetic import Multiply, Negate
from rematc.ir.ops.special import Erf, Erfc
from rematc.ir.values import Value
from rematc.passes.dce import DeadCode
from rematc.passes.regions import EquationRewriter, Rule


def with_own_exponentials(graph: Graph) -> Graph:
    """The graph with what is minus the square of an error function's operand in that form; regions, too."""
    if graph.op_types.isdisjoint((Erf, Erfc)):
        return graph
    changed = EquationRewriter(_rule).graph(graph)
    return graph if changed is graph else DeadCode().run(changed)


def _rule(graph: Graph) -> Rule:
    inside = {eqn.operands[0] for eqn in graph.equations if isinstance(eqn.op, (Erf, Erfc))}
    squared = {
        eqn.results[0]: eqn.operands[0]
        for eqn in (graph.equations if inside else ())
        if isinstance(eqn.op, Multiply) and eqn.operands[0] is eqn.operands[1] and eqn.operands[0] in inside
    }

    def minus_first(eqn: Equation) -> list[Equation] | None:
        x = squared.get(eqn.operands[0]) if isinstance(eqn.op, Negate) else None
        if x is None:
            return None
        minus = Value(x.type, x.name)
        negated = Equation(eqn.op, (x,), (minus,), eqn.loc)
        return [negated, Equation(Multiply(), (minus, x), eqn.results, eqn.loc)]

    return minus_first
