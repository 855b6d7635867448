"""Terms that a loop stacks, one for each of its steps, added in its steps to the sums that they belong to.

Before:  graph @stage(%sum: f32[12,64,64], ...) {
           %1: f32[8,64], %2: f32[12,64,64] = scan ...    gradients of 12 layers for one part of a batch
           %3 = add %sum, %2 ... return %3 }
After:   %1: f32[8,64], %3: f32[12,64,64] = scan ..., %sum, ...    whose step adds to row %i of %sum

A sum over parts would take as much memory again as what one part gives to it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from rematc.ir.builder import Builder
from rematc.ir.core import Equation, Graph
from rematc.ir.ops.arithmetic import Add
from rematc.ir.ops.scan.op import Scan
from rematc.ir.types import I32, TensorType
from rematc.ir.values import Value


def added_in_steps(body: Graph) -> Graph:
    """The step of a loop over parts in which no sum stands beside a stack of terms."""
    reads = Counter([value for eqn in body.equations for value in eqn.operands])
    reads.update(body.results)
    sums: dict[Value, tuple[Value, Value]] = {}
    for eqn in body.equations:
        if isinstance(eqn.op, Add) and eqn.operands[0] in body.params:
            total, term = eqn.operands
            if reads[total] == reads[term] == 1 and eqn.results[0] in body.results:
                sums[term] = total, eqn.results[0]
    equations: list[Equation] = []
    replaced = set[Value]()
    for eqn in body.equations:
        stacks = eqn.results[eqn.op.carry :] if isinstance(eqn.op, Scan) else ()
        found = [value for value in stacks if value in sums]
        if found:
            equations += _adding(eqn, {value: sums[value] for value in found})
            replaced.update(sums[value][1] for value in found)
        elif replaced.isdisjoint(eqn.results):
            equations.append(eqn)
    return replace(body, equations=tuple(equations)) if replaced else body


def _adding(eqn: Equation, sums: dict[Value, tuple[Value, Value]]) -> list[Equation]:
    """A loop that adds to these sums what it stacked; the numbers of its steps are operands."""
    assert isinstance(eqn.op, Scan), "a loop stacks"
    op, b = eqn.op, Builder()
    b.loc = eqn.loc
    numbers = b.iota(TensorType(I32, (op.length,)), 0)
    inner = Builder(op.body.name)
    inner.equations = list(op.body.equations)
    consts, carry, xs = op.parts(op.body.params)
    terms = dict(zip(eqn.results[op.carry :], op.body.results[op.carry :], strict=True))
    step, held, given = Value(TensorType(I32, ())), list[Value](), list[Value]()
    with inner.at(eqn.loc):
        zero = inner.zeros(step.type)
        for stack, (total, _) in sums.items():
            before, term = Value(total.type), terms[stack]
            start = [step, *[zero] * term.type.rank]
            own = inner.dynamic_slice(before, start, (1, *term.type.shape))
            added = inner.add(own, inner.reshape(term, own.type.shape))
            held.append(before)
            given.append(inner.dynamic_update_slice(before, added, start))
    kept = [value for value in terms if value not in sums]
    inner.params = [*consts, *carry, *held, *xs, step]
    body = inner.build(*op.body.results[: op.carry], *given, *[terms[value] for value in kept])
    outer = op.parts(eqn.operands)
    operands = (*outer.consts, *outer.carry, *[total for total, _ in sums.values()], *outer.xs, numbers)
    results = (*eqn.results[: op.carry], *[total for _, total in sums.values()], *kept)
    loop = replace(op, body=body, carry=op.carry + len(sums))
    return [*b.equations, Equation(loop, operands, results, eqn.loc)]
