"""What several ops write over, as each begins with the same number in all places, is repeated for each of them.

Before:  %0 = broadcast_in_dim %zero   %1 = scan %0, ...   %2 = scatter_add %0, %i, %u
After:   %0 = broadcast_in_dim %zero   %1 = scan %0, ...   %3 = broadcast_in_dim %zero   %2 = scatter_add %3, %i, %u

A loop begins to sum up gradients in zeros, and a gather's derivative scatters into zeros: of a table that is read as an
embedding and, in chunks, as a head these are the same, held for the one while the other one works on a copy. To a plan
each has its own, which is there only for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from rematc.ir.core import Equation, Graph
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.ir.values import Value
from rematc.passes.dce import DeadCode
from rematc.passes.kernels import is_repeat
from rematc.passes.manager import Pass, register_pass
from rematc.passes.readers import uses_of
from rematc.passes.regions import EquationRewriter, Rule


@register_pass
@dataclass(frozen=True, slots=True)
class OwnRepeats(Pass):
    """Repeat a smaller array anew for each op that writes over what is repeated; in regions too."""

    name: ClassVar[str] = "own_repeats"

    def run(self, graph: Graph) -> Graph:
        owning = EquationRewriter(_owned).graph(graph)
        return graph if owning is graph else DeadCode().run(owning)


def _written_over(eqn: Equation) -> list[int]:
    """The places of operands over which an equation writes a result, if nothing else reads them; none of a barrier."""
    if isinstance(eqn.op, OptimizationBarrier):
        return []
    places = [eqn.op.overwrites(index) for index in range(len(eqn.results))]
    return [place for place in places if place is not None]


def _owned(graph: Graph) -> Rule:
    uses = uses_of(graph)
    shared = {eqn.results[0]: eqn for eqn in graph.equations if is_repeat(eqn) and uses[eqn.results[0]] > 1}

    def owned(eqn: Equation) -> list[Equation] | None:
        places = [place for place in _written_over(eqn) if eqn.operands[place] in shared]
        if not places:
            return None
        operands, own = list(eqn.operands), list[Equation]()
        for place in places:
            repeat = shared[operands[place]]
            operands[place] = Value(repeat.results[0].type)
            own.append(replace(repeat, results=(operands[place],)))
        return [*own, replace(eqn, operands=tuple(operands))]

    return owned
