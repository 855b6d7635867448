"""Products whose results a plan holds in few bits, so that compilers hold them so and not in more.

Before:  %0: bf16[8,8] = dot_general %x, %w   %1: f32[8,8] = convert %0   ... two kernels that read %1
After:   %0: bf16[8,8] = dot_general %x, %w   %1: bf16[8,8] = optimization_barrier %0   %2: f32[8,8] = convert %1   ...

To a plan the conversion is a part of what reads it. A library that computes more than the product in one call (XLA:CPU
takes the norm before it and the conversion behind it) writes what comes out of that, and several read it: twice as much
as was planned for, of logits that can be all the memory there is.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from rematc.ir.core import Equation, Graph
from rematc.ir.facts import Storage
from rematc.ir.ops.conversion import Convert
from rematc.ir.ops.regions import Checkpoint
from rematc.ir.values import Value
from rematc.passes.barriers import barrier_behind


def hold_narrow(graph: Graph) -> Graph:
    """The graph with a barrier behind each product that is widened for several readers, in stages too."""
    widened = _widened(graph)
    env: dict[Value, Value] = {}
    equations = []
    for eqn in graph.equations:
        op = replace(eqn.op, body=hold_narrow(eqn.op.body)) if isinstance(eqn.op, Checkpoint) else eqn.op
        equations.append(Equation(op, tuple([env.get(value, value) for value in eqn.operands]), eqn.results, eqn.loc))
        if eqn.op.is_product and eqn.results[0] in widened:
            equations.append(barrier_behind(eqn.results, env, eqn.loc))
    results = tuple([env.get(value, value) for value in graph.results])
    return Graph(graph.name, graph.params, tuple(equations), results)


def _widened(graph: Graph) -> set[Value]:
    """The values that conversions to more bits, each with several readers, are of, whatever their shape there."""
    uses = Counter(value for eqn in graph.equations for value in eqn.operands)
    found: set[Value] = set()
    for eqn in reversed(graph.equations):
        is_wider = isinstance(eqn.op, Convert) and eqn.results[0].type.bytes > eqn.operands[0].type.bytes
        is_moved = eqn.op.storage is Storage.BITCAST and eqn.results[0] in found
        if is_moved or (is_wider and uses[eqn.results[0]] > 1):
            found.add(eqn.operands[0])
    return found
