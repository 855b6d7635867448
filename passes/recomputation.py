"""Analysis: which equations of a program compute what an equation before them has computed.

Before:  %0 = sine %x   %1 = optimization_barrier %x   %2 = sine %1   %3 = multiply %2, %ct
After:   %2, which is %0 again behind a barrier

By value numbering that sees through barriers and other names, unlike `rematc.passes.cse`, which must not.
"""

from __future__ import annotations

from rematc.ir.core import Equation, Graph
from rematc.ir.facts import Storage
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.ir.values import Value


def recomputed_equations(graph: Graph) -> list[Equation]:
    """The equations that repeat an earlier one; none of what follows from constants alone. Regions are not entered."""
    of: dict[Value, Value] = {}
    first: dict[tuple[object, ...], tuple[Value, ...]] = {}
    variable: set[Value] = set(graph.params)
    found = []
    for eqn in graph.equations:
        operands = [of.get(value, value) for value in eqn.operands]
        if isinstance(eqn.op, OptimizationBarrier) or eqn.op.storage is Storage.ALIAS:
            of.update(zip(eqn.results, operands, strict=True))
            continue
        if not variable.isdisjoint(operands):
            variable.update(eqn.results)
        if not eqn.op.is_mergeable or eqn.op.effect:
            continue
        key = (eqn.op, *(sorted(operands, key=id) if eqn.commutes else operands))
        results = first.setdefault(key, eqn.results)
        if results is not eqn.results:
            of.update(zip(eqn.results, results, strict=True))
            if not variable.isdisjoint(operands):
                found.append(eqn)
    return found
