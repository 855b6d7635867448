"""Products of 16-bit factors as they lie in memory, where XLA:CPU would take a transpose of one in 32 bits.

Before:  %1 = transpose %v {permutation=[0,2,1,3]}   %2 = dot_general %p, %1 {contract=[[3],[2]], batch=[[0,1],[0,1]]}
After:   %2 = dot_general %p, %v {contract=[[3],[1]], batch=[[0,1],[0,2]]}

for bf16. XLA infers that a transpose moves nothing and lies in memory in another order, in which its library reads no
factor, nor what follows from it element by element; so it converts both to float32, and multiplies these. A product
whose dimensions stand in another order, XLA brings into that of the library by a transpose of its own, which does move.
"""

from __future__ import annotations

from collections.abc import Sequence

from rematc.ir.core import Equation, Graph
from rematc.ir.facts import Storage
from rematc.ir.ops.dot import DotGeneral
from rematc.ir.ops.shape import BroadcastInDim, Transpose
from rematc.ir.traversal import all_equations
from rematc.ir.types import BF16
from rematc.ir.values import Value
from rematc.passes.dce import DeadCode
from rematc.passes.legalize.factors import of_source
from rematc.passes.regions import RegionRewriter


def with_untransposed_factors(graph: Graph) -> Graph:
    """The graph with such products, in regions too; the graph itself where there are none."""
    has_factors = DotGeneral in graph.op_types and any(map(_has_factor, all_equations(graph)))
    return _Untransposed().graph(graph) if has_factors else graph


def _has_factor(eqn: Equation) -> bool:
    return isinstance(eqn.op, DotGeneral) and any(value.type.dtype is BF16 for value in eqn.operands)


class _Untransposed:
    """Rewrites graphs, and their regions."""

    def __init__(self) -> None:
        self._regions = RegionRewriter(self.graph)

    def graph(self, graph: Graph) -> Graph:
        sources = _Sources()
        is_changed = is_folded = False
        for eqn in graph.equations:
            op = self._regions.op(eqn.op)
            own = eqn if op is eqn.op else Equation(op, eqn.operands, eqn.results, eqn.loc)
            is_changed |= own is not eqn
            if isinstance(op, DotGeneral):
                for side, operand in enumerate(eqn.operands):
                    permutation = sources.permutation(operand) if operand.type.dtype is BF16 else None
                    folded = of_source(op, side, permutation) if permutation else None
                    if folded is not None:
                        op = folded
                        operands = list(own.operands)
                        operands[side] = sources.source(operand)
                        own = Equation(folded, tuple(operands), own.results, own.loc)
                        is_folded = True
            sources.add(own)
        if not is_changed and not is_folded:
            return graph
        changed = Graph(graph.name, graph.params, tuple(sources.equations), graph.results)
        return DeadCode().run(changed) if is_folded else changed


class _Sources:
    """The equations of a graph in the making, and what transposes are made of.

    Attributes:
        equations: so far.
    """

    def __init__(self) -> None:
        self.equations: list[Equation] = []
        self._producer: dict[Value, Equation] = {}
        self._permutations: dict[Value, tuple[int, ...]] = {}
        self._sources: dict[Value, Value] = {}

    def add(self, eqn: Equation) -> None:
        """The next equation."""
        self.equations.append(eqn)
        if len(eqn.results) != 1:
            return
        (result,) = eqn.results
        self._producer[result] = eqn
        if isinstance(eqn.op, Transpose):
            self._permutations[result] = eqn.op.permutation
        elif eqn.op.is_elementwise or eqn.op.storage is Storage.ALIAS:
            found = {self._permutations.get(operand) for operand in eqn.operands if not self._is_number(operand)}
            if len(found) == 1 and (permutation := found.pop()) is not None:
                self._permutations[result] = permutation

    def permutation(self, value: Value) -> tuple[int, ...] | None:
        """How a value is transposed, itself or what it follows from element by element; None where it is not."""
        return self._permutations.get(value)

    def source(self, value: Value) -> Value:
        """What it is before the transpose: what was done since is done to that."""
        waiting = [value]  # no recursion: such rows of work are as long as programs
        while waiting:
            eqn = self._producer[waiting[-1]]
            if isinstance(eqn.op, Transpose):
                self._sources[waiting.pop()] = eqn.operands[0]
                continue
            missing = [x for x in eqn.operands if x not in self._sources and not self._is_number(x)]
            if not missing:
                one = waiting.pop()
                if one not in self._sources:
                    self._sources[one] = self._again(eqn, self._permutations[one])
            waiting += missing
        return self._sources[value]

    def _again(self, eqn: Equation, permutation: tuple[int, ...]) -> Value:
        (result,) = eqn.results
        shape = [result.type.shape[permutation.index(d)] for d in range(len(permutation))]
        operands = [
            self._repeated(operand, shape) if self._is_number(operand) else self._sources[operand]
            for operand in eqn.operands
        ]
        new = Value(result.type.with_shape(tuple(shape)))
        self.equations.append(Equation(eqn.op, tuple(operands), (new,), eqn.loc))
        return new

    def _is_number(self, value: Value) -> bool:
        eqn = self._producer.get(value)
        return eqn is not None and isinstance(eqn.op, BroadcastInDim) and not eqn.operands[0].type.shape

    def _repeated(self, value: Value, shape: Sequence[int]) -> Value:
        eqn = self._producer[value]
        new = Value(value.type.with_shape(tuple(shape)))
        self.equations.append(Equation(BroadcastInDim(tuple(shape), ()), eqn.operands, (new,), eqn.loc))
        return new
