"""Analysis: what of a loop's step is as well computed again as stacked.

Before:  %0 = dot_general %c, %w   %1 = tanh %0   %2 = add %1, 1   %3 = multiply %2, 0.5   needed: %0, %3
After:   repeatable: {%2, %3}; free: what consts and slices give without a step

What a step's derivative needs is stacked, step after step: written and read again, which costs more than an equation
whose work is light (`Weight.LIGHT`). A long row of them costs more than that again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

from rematc.ir.core import Equation, Graph
from rematc.ir.facts import Weight
from rematc.ir.ops.bodies import chosen
from rematc.ir.stacking import Unstacked
from rematc.ir.values import Value
from rematc.passes.aliases import Aliases

#: How many light equations in a row are still less work than to write a value and to read it again.
IN_A_ROW = 16


@dataclass(frozen=True, slots=True)
class LightWork:
    """Values of a step, by the roots of their alias classes.

    Attributes:
        free: what reaches the staged loop without being stacked for it.
        repeatable: what light work gives.
    """

    free: Set[Value]
    repeatable: Set[Value]


def light_work(
    step: Graph,
    known: Iterable[Equation],
    known_results: Sequence[Value],
    constant: Set[Value],
    aliases: Aliases,
    unstacked: Unstacked,
) -> LightWork:
    """Find them. `known` are the equations of the step that do not wait; `constant` follows from constants alone."""
    given = (*chosen(step.params, unstacked.params), *chosen(known_results, unstacked.results))
    free = {aliases.root(value) for value in given}
    fixed = {*chosen(step.params, unstacked.invariant), *constant}
    in_a_row: dict[Value, int] = {}
    repeatable: set[Value] = set()
    for eqn in known:
        if fixed.issuperset(eqn.operands) and not eqn.op.effect:
            # Computed once, before the loop.
            fixed.update(eqn.results)
            free.update(aliases.root(value) for value in eqn.results)
        elif eqn.op.weight is Weight.LIGHT:
            count = 1 + max([in_a_row.get(value, 0) for value in eqn.operands], default=0)
            if count <= IN_A_ROW:
                in_a_row.update((value, count) for value in eqn.results)
                repeatable.update(eqn.results)
    return LightWork(free, repeatable)
