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
from rematc.passes.regions import RegionRewriter


def with_own_exponentials(graph: Graph) -> Graph:
    """The graph with what is minus the square of an error function's operand in that form; regions, too."""
    return _OwnExponentials().graph(graph)


class _OwnExponentials:
    """Rewrites graphs, and their regions."""

    def __init__(self) -> None:
        self._regions = RegionRewriter(self.graph)

    def graph(self, graph: Graph) -> Graph:
        """The graph in which they are apart; the graph itself where they are."""
        inside = {eqn.operands[0] for eqn in graph.equations if isinstance(eqn.op, (Erf, Erfc))}
        squared = {
            eqn.results[0]: eqn.operands[0]
            for eqn in (graph.equations if inside else ())
            if isinstance(eqn.op, Multiply) and eqn.operands[0] is eqn.operands[1] and eqn.operands[0] in inside
        }
        equations: list[Equation] = []
        has_changed = False
        for eqn in graph.equations:
            op = self._regions.op(eqn.op)
            if isinstance(op, Negate) and (x := squared.get(eqn.operands[0])) is not None:
                minus = Value(x.type, x.name)
                equations.append(Equation(op, (x,), (minus,), eqn.loc))
                equations.append(Equation(Multiply(), (minus, x), eqn.results, eqn.loc))
                has_changed = True
            else:
                has_changed |= op is not eqn.op
                equations.append(eqn if op is eqn.op else Equation(op, eqn.operands, eqn.results, eqn.loc))
        if not has_changed:
            return graph
        read = {value for eqn in equations for value in eqn.operands}.union(graph.results)
        unread = squared.keys() - read
        kept = tuple([eqn for eqn in equations if unread.isdisjoint(eqn.results)])
        return Graph(graph.name, graph.params, kept, graph.results)
