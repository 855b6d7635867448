"""Analysis: which values of a graph are the same value under other names.

`name` and `stop_gradient` give a value a second SSA name. A policy that saves or denies one of them means them all. But
they are not alike to a further derivative: behind a `stop_gradient` stands the number of the others, and no tangent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rematc.ir.core import Equation
from rematc.ir.facts import Storage
from rematc.ir.ops.structural import Name, StopGradient
from rematc.ir.values import Value


@dataclass(frozen=True, slots=True)
class Aliases:
    """Alias classes of values.

    Attributes:
        roots: the value that an alias stands for; a value without an entry is its own root.
        names: for a root, the `name` equations of its class in program order.
        stopped: the aliases between which and their root a `stop_gradient` stands.
    """

    roots: dict[Value, Value]
    names: dict[Value, list[Equation]]
    stopped: frozenset[Value]

    def root(self, value: Value) -> Value:
        return self.roots.get(value, value)

    def labels(self, root: Value) -> tuple[str, ...]:
        """The labels of a root's class, each once, in program order."""
        names = self.names.get(root, ())
        return tuple(dict.fromkeys(eqn.op.label for eqn in names if isinstance(eqn.op, Name)))

    def representative(self, root: Value, has_tangent: bool) -> Value:
        """The member that stands for the class as a residual: its first named one, so that reports can say the name.

        Where `has_tangent` is set some reader needs the tangent, which no stopped member has.
        """
        named = [eqn.results[0] for eqn in self.names.get(root, ())]
        return next((value for value in named if not (has_tangent and value in self.stopped)), root)


def find_aliases(equations: Iterable[Equation]) -> Aliases:
    """Alias classes over equations in program order."""
    roots: dict[Value, Value] = {}
    names: dict[Value, list[Equation]] = {}
    stopped: set[Value] = set()
    for eqn in equations:
        if eqn.op.storage is not Storage.ALIAS:
            continue
        (operand,), (result,) = eqn.operands, eqn.results
        root = roots[result] = roots.get(operand, operand)
        if isinstance(eqn.op, Name):
            names.setdefault(root, []).append(eqn)
        if isinstance(eqn.op, StopGradient) or operand in stopped:
            stopped.add(result)
    return Aliases(roots, names, frozenset(stopped))
