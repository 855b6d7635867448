"""Analysis: which residuals are saved only because they cross from one segment of a staged program to a later one.

Staging names what leaves a segment (`CROSSING`), and every segment may use what has that name: the forward pass has it
anyway. A loop's carries cross from step to step in the same way, and what loops give and take crosses to the segments
around them. So of what is saved all crosses but what the policy would save by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from rematc.ir.core import Equation, Graph
from rematc.ir.ops.conversion import ReducePrecision
from rematc.ir.ops.regions import Call, Checkpoint
from rematc.ir.ops.scan.op import Scan
from rematc.ir.ops.structural import ToMemory
from rematc.ir.policy import CROSSING, Policy, Recompute
from rematc.ir.values import Value
from rematc.passes.aliases import Aliases, find_aliases


@dataclass(frozen=True, slots=True)
class Computed:
    """Where a value of a graph is computed, inside regions too.

    Attributes:
        eqn: the equation; None for a parameter.
        index: which of its results the value is.
        labels: the names of the value.
        is_carried: whether it is a carry of a loop: that of each step, or the last one.
    """

    eqn: Equation | None
    index: int
    labels: tuple[str, ...]
    is_carried: bool = False


@dataclass(frozen=True, slots=True)
class _Table:
    graph: Graph
    aliases: Aliases
    producer: dict[Value, Equation]


class Crossings:
    """The residuals of a forward graph under a policy on the whole; `policy` is None where there is none."""

    def __init__(self, forward: Graph, policy: Policy | None) -> None:
        self._forward = forward
        self._policy = policy
        self._tables: dict[int, _Table] = {}  # by identity: equal graphs have values of their own

    def crosses(self, value: Value) -> bool:
        """Whether a computed value of the forward graph is saved only because it crosses."""
        if self._policy is None:
            return False
        found = self.computed(value)
        if found.eqn is None:
            return True
        own = tuple([label for label in found.labels if label != CROSSING])
        answers = self._policy.decide(found.eqn.op, found.eqn.operand_types, own)
        answer = answers[0] if len(answers) == 1 else answers[found.index]
        if not isinstance(answer, Recompute):
            return False
        # Such a policy also saves what it would recompute, where that is smaller than what it follows from.
        return not self._policy.saves_least or found.is_carried or CROSSING in found.labels

    def computed(self, value: Value) -> Computed:
        """Where a value of the forward graph is computed."""
        graph, labels = self._forward, list[str]()
        is_carried = False
        while True:
            table = self._table(graph)
            root = table.aliases.root(value)
            labels += table.aliases.labels(root)
            eqn = table.producer.get(root)
            if eqn is None:
                return Computed(None, 0, tuple(dict.fromkeys(labels)), is_carried)
            index = eqn.results.index(root)
            match eqn.op:
                case ReducePrecision() | ToMemory():
                    value = eqn.operands[0]
                case Checkpoint(body=body) | Call(body=body):
                    graph, value = body, body.results[index]
                case Scan(body=body) as loop:
                    carries = loop.parts(body.params).carry
                    graph, value = body, body.results[index]
                    is_carried = is_carried or index < loop.carry or value in carries
                    if value in carries:
                        value = body.results[carries.index(value)]
                case _:
                    return Computed(eqn, index, tuple(dict.fromkeys(labels)), is_carried)

    def _table(self, graph: Graph) -> _Table:
        if id(graph) not in self._tables:
            producer = {value: eqn for eqn in graph.equations for value in eqn.results}
            self._tables[id(graph)] = _Table(graph, find_aliases(graph.equations), producer)
        return self._tables[id(graph)]
