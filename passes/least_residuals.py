"""Analysis: the fewest bytes from which all needed values follow by work that costs nothing.

Before:  %0 = dot_general %x, %w   %1 = tanh %0   needed: %1 and 1 - %1 * %1
After:   {%1}, where a rule that saves every product would save %0

Some values may be computed again (elementwise work, which XLA fuses into what uses it), others not. Which to save is a
minimum cut between those that may not and those that are needed: each value is an edge as wide as its bytes, and what
follows from it hangs on it by edges that cannot be cut. (Ford and Fulkerson; as a choice of residuals: He and Yu,
"Transcending runtime-memory tradeoffs in checkpointing by being fusion aware", 2023.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from rematc.ir.values import Value

#: Capacities are 32-bit integers to the solver, and so is the flow.
_WIDEST = 2**30
#: By so many bits the unit of the flow becomes smaller each time.
_NARROWING = 10


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
        # An empty value still takes its place.
        finite = [max(one, 1) for one in self.capacities if one is not None]
        common = math.gcd(*finite)
        uncut = sum(finite) // common + 1
        exact = [uncut if one is None else max(one, 1) // common for one in self.capacities]
        left = _left_by_flow(csr_array((np.asarray(exact, np.int64), (self.tails, self.heads)), (count, count)))
        is_behind = _reaching(left, _SINK)
        return frozenset(value for value, node in self.nodes.items() if is_behind[node + 1] and not is_behind[node])


def _left_by_flow(graph: Any) -> Any:
    """The capacities that a maximum flow from source to sink leaves, exactly.

    The solver's integers are narrow: it is asked for the flow in units of many bytes, then in what that leaves for
    that in smaller units, down to one byte.

    Args:
        graph: a sparse array of 64-bit capacities.
    """
    left, source = graph, graph.shape[0]
    unit = 1 << max(int(graph.data.max(initial=0)).bit_length() - _WIDEST.bit_length() + 1, 0)
    while True:
        edges = left.tocoo()
        # One edge before the source keeps the flow as narrow as the capacities.
        capacities = np.append(np.minimum(edges.data // unit, _WIDEST), _WIDEST).astype(np.int32)
        ends = (np.append(edges.row, source), np.append(edges.col, _SOURCE))
        narrow = csr_array((capacities, ends), (source + 1, source + 1))
        found = maximum_flow(narrow, source, _SINK)
        left = (left - found.flow[:source, :source].astype(np.int64) * unit).tocsr()
        left.eliminate_zeros()
        if unit == 1 and found.flow_value < _WIDEST:
            return left
        if found.flow_value < _WIDEST:
            unit = max(unit >> _NARROWING, 1)


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
