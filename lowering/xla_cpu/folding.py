"""Analysis: equations that XLA's simplifier makes one of.

Before:  %0 = dot_general %x, %w   %1 = transpose %0    %2 = scatter_add %zeros, %i, %u   %3 = add %y, %2
After:   %1 = dot_general %w, %x                        %3 = scatter_add %y, %i, %u
"""

from __future__ import annotations

from collections import Counter

from rematc.ir.core import Graph
from rematc.ir.ops.arithmetic import Add
from rematc.ir.ops.dot import DotGeneral
from rematc.ir.ops.indexing import ScatterAdd
from rematc.ir.ops.shape import BroadcastInDim, Transpose
from rematc.ir.ops.structural import Constant
from rematc.ir.values import Value


def folded_transposes(graph: Graph) -> set[Value]:
    """Matrix products whose only user transposes them: the product of the operands in the other order."""
    uses = Counter(value for eqn in graph.equations for value in eqn.operands)
    uses.update(graph.results)
    products = {
        eqn.results[0]
        for eqn in graph.equations
        if isinstance(eqn.op, DotGeneral) and eqn.results[0].type.rank == 2 and not eqn.op.batch[0]
    }
    transposed = (eqn.operands[0] for eqn in graph.equations if isinstance(eqn.op, Transpose))
    return {value for value in transposed if value in products and uses[value] == 1}


def scattered_into_zeros(graph: Graph) -> set[Value]:
    """What is scattered into zeros, and only added to something that is not."""
    if not any(isinstance(eqn.op, ScatterAdd) for eqn in graph.equations):
        return set()
    uses = Counter(value for eqn in graph.equations for value in eqn.operands)
    uses.update(graph.results)
    zeros: set[Value] = set()
    found: set[Value] = set()
    added: set[Value] = set()
    for eqn in graph.equations:
        match eqn.op:
            case Constant() as op if op.type.size == 1 and not any(op.data):
                zeros.update(eqn.results)
            case BroadcastInDim() if eqn.operands[0] in zeros:
                zeros.update(eqn.results)
            case ScatterAdd() if eqn.operands[0] in zeros and uses[eqn.results[0]] == 1:
                found.update(eqn.results)
            case Add():
                terms = [value for value in eqn.operands if value in found]
                added.update(terms[:1])
            case _:
                pass
    return added
