"""Analysis: values that nothing but some equations reads.

Before:  %0 = tanh %x   %1 = reshape %0   %2 = dot_general %1, %w   %3 = add %x, %2
After:   only products read %0, %1 and %w; of %x and %2 they do not
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from rematc.ir.core import Equation, Graph
from rematc.ir.facts import Storage
from rematc.ir.ops.shape import Transpose
from rematc.ir.values import Value


def read_only_by(
    graph: Graph, reads: Callable[[Equation], bool], hands_on: Callable[[Equation], bool]
) -> frozenset[Value]:
    """The values that such equations read and nothing else does, parameters among them; not those of regions.

    Args:
        graph: its results are read by something else.
        reads: whether an equation is one of them.
        hands_on: whether it gives its operands on in another shape, so that who reads that reads them.
    """
    found, others = set[Value](), set(graph.results)
    for eqn in reversed(graph.equations):
        if reads(eqn):
            found.update(eqn.operands)
        elif not hands_on(eqn) or not others.isdisjoint(eqn.results):
            others.update(eqn.operands)
        elif not found.isdisjoint(eqn.results):
            found.update(eqn.operands)
    return frozenset(found - others)


def readers_of(graph: Graph) -> dict[Value, list[int]]:
    """Where each value is read: indices of equations, and their number where it is a result of the graph."""
    readers: dict[Value, list[int]] = {}
    for index, eqn in enumerate(graph.equations):
        for value in dict.fromkeys(eqn.operands):
            readers.setdefault(value, []).append(index)
    for value in graph.results:
        readers.setdefault(value, []).append(len(graph.equations))
    return readers


def uses_of(graph: Graph) -> Counter[Value]:
    """How often each value is read: once for each operand that it is, and for each result of the graph."""
    uses = Counter(value for eqn in graph.equations for value in eqn.operands)
    uses.update(graph.results)
    return uses


def is_renamed(eqn: Equation) -> bool:
    """Whether it gives its operands under another name or in another shape, in their own memory."""
    return eqn.op.storage in (Storage.ALIAS, Storage.BITCAST)


def is_reordered(eqn: Equation) -> bool:
    """Whether it gives one value under another name, in another shape, or with its dimensions in another order."""
    return isinstance(eqn.op, Transpose) or (is_renamed(eqn) and len(eqn.operands) == len(eqn.results) == 1)


def dependent_on(graph: Graph, values: Iterable[Value]) -> dict[Value, None]:
    """These values, and what depends on one of them or has effects, in the graph's order."""
    found = dict.fromkeys(values)
    for eqn in graph.equations:
        if eqn.op.effect or not found.keys().isdisjoint(eqn.operands):
            found.update(dict.fromkeys(eqn.results))
    return found
