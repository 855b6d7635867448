"""Analysis: equations that XLA's simplifier makes one of.

Before:  %0 = dot_general %x, %w   %1 = transpose %0    %2 = scatter_add %zeros, %i, %u   %3 = add %y, %2
After:   %1 = dot_general %w, %x                        %3 = scatter_add %y, %i, %u

Into another array than zeros it scatters as well once the sum is taken: `add %y, %other` before it.
"""

from __future__ import annotations

from rematc.ir.core import Graph
from rematc.ir.ops.arithmetic import Add
from rematc.ir.ops.dot import DotGeneral
from rematc.ir.ops.indexing import ScatterAdd
from rematc.ir.ops.shape import BroadcastInDim, Transpose
from rematc.ir.ops.structural import Constant
from rematc.ir.values import Value
from rematc.passes.readers import uses_of


def folded_transposes(graph: Graph) -> set[Value]:
    """Matrix products whose only user transposes them: the product of the operands in the other order."""
    uses = uses_of(graph)
    products = {
        eqn.results[0]
        for eqn in graph.equations
        if isinstance(eqn.op, DotGeneral) and eqn.results[0].type.rank == 2 and not eqn.op.batch[0]
    }
    transposed = (eqn.operands[0] for eqn in graph.equations if isinstance(eqn.op, Transpose))
    return {value for value in transposed if value in products and uses[value] == 1}


def added_scatters(graph: Graph) -> dict[Value, bool]:
    """What is scattered, by adding it to an array, and is only added to another one; whether that array is zeros."""
    if not any(isinstance(eqn.op, ScatterAdd) for eqn in graph.equations):
        return {}
    uses = uses_of(graph)
    zeros: set[Value] = set()
    found: dict[Value, bool] = {}
    added: dict[Value, bool] = {}
    for eqn in graph.equations:
        match eqn.op:
            case Constant() as op if op.type.size == 1 and not any(op.data):
                zeros.update(eqn.results)
            case BroadcastInDim() if eqn.operands[0] in zeros:
                zeros.update(eqn.results)
            case ScatterAdd() if uses[eqn.results[0]] == 1:
                found[eqn.results[0]] = eqn.operands[0] in zeros
            case Add():
                terms = sorted((value for value in eqn.operands if value in found), key=lambda value: not found[value])
                added.update({value: found[value] for value in terms[:1]})
            case _:
                pass
    return added
