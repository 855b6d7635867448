"""Sums of many values, each addend added as it comes: two of them are in memory, not all until the last one is there.

    %1 = dot_general %a, %w   %2 = add %0, %1   ...   %5 = dot_general %b, %v   %6 = add %2, %5   ...   %9 = add %6, %8

Compilers make one kernel of additions that follow one another, which reads %0, %1, %5 and %8 at once: the outputs of
all layers of a network that sums them up, or the terms of the gradient of weights that several layers share. %2 and %6
in memory, behind barriers, take the places of what they add, and are moved once more each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from rematc.ir.core import Equation
from rematc.ir.ops.arithmetic import Add
from rematc.ir.values import Value


def partial_sums(equations: Sequence[Equation], stored: Collection[Value]) -> frozenset[Value]:
    """The sums that a later addition alone reads, to which it adds what is in memory later than they could be.

    Args:
        equations: a program.
        stored: its values that are in memory anyway.
    """
    readers = Counter(value for eqn in equations for value in eqn.operands)
    written: dict[Value, int] = {}  # the place of the last large value in memory that a value is computed from
    sums, found = set[Value](), set[Value]()
    for index, eqn in enumerate(equations):
        for result in eqn.results:
            latest = [written[value] for value in eqn.operands if value in written and _is_as_large(value, result)]
            if result in stored:
                written[result] = index
            elif latest:
                written[result] = max(latest)
        if not isinstance(eqn.op, Add):
            continue
        (result,) = eqn.results
        for own, other in (eqn.operands, eqn.operands[::-1]):
            if own in sums and readers[own] == 1 and written.get(other, -1) > written[own]:
                found.add(own)
        if result not in stored and all(value in written for value in eqn.operands):
            sums.add(result)
    return frozenset(found)


def _is_as_large(value: Value, other: Value) -> bool:
    return value.type.size >= other.type.size
