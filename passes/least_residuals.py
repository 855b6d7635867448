"""Analysis: the fewest bytes from which all needed values follow by work that costs nothing.

Before:  %0 = dot_general %x, %w   %1 = tanh %0   needed: %1 and 1 - %1 * %1
After:   {%1}, where a rule that saves every product would save %0

Some values may be computed again (elementwise work, which XLA fuses into what uses it), others not. Which to save is a
minimum cut between those that may not and those that are needed: each value is an edge as wide as its bytes, and what
follows from it hangs on it by edges that cannot be cut. (Ford and Fulkerson; as a choice of residuals: He and Yu,
"Transcending runtime-memory tradeoffs in checkpointing by being fusion aware", 2023.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from rematc.ir.core import Value

#: Capacities are 32-bit integers to the solver; their sum must fit.
_WIDEST = 2**30


@dataclass(frozen=True, slots=True)
class Derivation:
    """How a value comes about.

    Attributes:
        bytes: what saving it takes.
        operands: the values that it may be computed from again; None where it may not.
    """

    bytes: int
    operands: Sequence[Value] | None


def least_residuals(needed: Iterable[Value], derive: Callable[[Value], Derivation | None]) -> frozenset[Value]:
    """The values to save: of all sets from which the needed ones follow, one of the fewest bytes.

    `derive` is asked about needed values and what these are computed from; it answers None for what is there anyway.
    """
    network = _Network()
    wanted = dict.fromkeys(needed)
    derivations = _reached(wanted, derive)
    for value, derivation in derivations.items():
        node = network.node(value)
        network.edge(node, node + 1, derivation.bytes)
        if derivation.operands is None:
            network.edge(_SOURCE, node, None)
        else:
            for operand in dict.fromkeys(derivation.operands):
                if operand in derivations:
                    network.edge(network.node(operand) + 1, node, None)
        if value in wanted:
            network.edge(node + 1, _SINK, None)
    return network.cut()


def _reached(wanted: Mapping[Value, None], derive: Callable[[Value], Derivation | None]) -> dict[Value, Derivation]:
    found: dict[Value, Derivation] = {}
    stack = list(wanted)
    seen = set(stack)
    while stack:
        value = stack.pop()
        derivation = derive(value)
        if derivation is not None:
            found[value] = derivation
            fresh = [operand for operand in derivation.operands or () if operand not in seen]
            seen.update(fresh)
            stack.extend(fresh)
    return found


_SOURCE, _SINK = 0, 1


@dataclass(slots=True)
class _Network:
    """A flow network; each value is two nodes, its edge between them. A capacity of None cannot be cut."""

    nodes: dict[Value, int] = field(default_factory=dict)
    tails: list[int] = field(default_factory=list)
    heads: list[int] = field(default_factory=list)
    capacities: list[int | None] = field(default_factory=list)

    def node(self, value: Value) -> int:
        return self.nodes.setdefault(value, 2 + 2 * len(self.nodes))

    def edge(self, tail: int, head: int, capacity: int | None) -> None:
        self.tails.append(tail)
        self.heads.append(head)
        self.capacities.append(capacity)

    def cut(self) -> frozenset[Value]:
        """The values whose edges a minimum cut goes through, the one nearest to the sink."""
        if not self.nodes:
            return frozenset()
        count = 2 + 2 * len(self.nodes)
        unit = max(sum(capacity or 0 for capacity in self.capacities) / _WIDEST, 1.0)
        scaled = [_WIDEST if one is None else max(round(one / unit), 1) for one in self.capacities]
        graph = csr_array((np.asarray(scaled, np.int32), (self.tails, self.heads)), (count, count))
        graph.sum_duplicates()
        graph.data = np.minimum(graph.data, _WIDEST).astype(np.int32)
        left = graph - maximum_flow(graph, _SOURCE, _SINK).flow
        is_behind = _reaching(left, _SINK)
        return frozenset(value for value, node in self.nodes.items() if is_behind[node + 1] and not is_behind[node])


def _reaching(left: object, sink: int) -> list[bool]:
    """For each node whether capacity that is left leads from it to the sink."""
    backwards = left.T.tocsr()  # type: ignore[attr-defined]  # a sparse array
    backwards.eliminate_zeros()
    reached = [False] * backwards.shape[0]
    reached[sink] = True
    stack = [sink]
    while stack:
        node = stack.pop()
        for other in backwards.indices[backwards.indptr[node] : backwards.indptr[node + 1]]:
            if not reached[other]:
                reached[other] = True
                stack.append(int(other))
    return reached
