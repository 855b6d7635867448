"""Analysis: which values of a graph take memory in its backward pass, and which are as good as there already."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rematc.ir.core import Equation, Graph
from rematc.ir.ops.structural import Name
from rematc.ir.policy import RECOMPUTE, Decision, Offload, Policy, Recompute
from rematc.ir.values import Value
from rematc.passes.aliases import Aliases, find_aliases

#: Bytes that staging must save to be worth it.
LEAST_GAIN = 2**16
#: How many elementwise ops a value may be away from parameters and still be repeated wherever it is used.
_NEAR = 6
#: After how many elementwise ops in a row XLA ends a fusion where the value has several uses.
_FUSED = 4


@dataclass(frozen=True, slots=True)
class Footprint:
    """What segments are chosen by.

    Attributes:
        equations: the graph's.
        repeated: values that follow from parameters and constants by a little elementwise work; a segment that uses
            one computes it again.
        last_use: for each value the index of the last equation that uses it.
        crossing: for each value that is not repeated, the bytes it costs to be saved between two segments: none where
            the policy saves it, or where it is another one's alias.
        saved: bytes of the values that the policy saves on the device.
        working: for each equation the bytes of those of its results that are computed again in the backward pass of
            its segment, and written to memory there.
    """

    equations: Sequence[Equation]
    repeated: frozenset[Value]
    last_use: dict[Value, int]
    crossing: dict[Value, int]
    saved: int
    working: tuple[int, ...]

    @property
    def taken(self) -> int:
        """Bytes of all that is computed again and written to memory."""
        return sum(self.working)


def footprint(graph: Graph, policy: Policy) -> Footprint:
    """The footprint of differentiating `graph` under a policy."""
    equations = graph.equations
    aliases = find_aliases(equations)
    repeated = _repeated(graph)
    last_use = {value: index for index, eqn in enumerate(equations) for value in eqn.operands}
    stored = _stored(equations, repeated)
    working: list[int] = []
    crossing: dict[Value, int] = {}
    saved = 0
    for eqn in equations:
        size = 0
        for value, decision in zip(eqn.results, _decided(eqn, policy, aliases), strict=True):
            if value in repeated:
                continue
            is_alias = aliases.root(value) is not value
            is_saved = not isinstance(decision, Recompute)
            crossing[value] = 0 if is_saved or is_alias else value.type.bytes
            if is_saved and not is_alias:
                saved += 0 if isinstance(decision, Offload) else value.type.bytes
            elif value in stored and not is_alias:
                size += value.type.bytes
        working.append(size)
    return Footprint(equations, repeated, last_use, crossing, saved, tuple(working))


def _repeated(graph: Graph) -> frozenset[Value]:
    distance: dict[Value, int] = dict.fromkeys(graph.params, 0)
    for eqn in graph.equations:
        if not eqn.op.is_fusible or isinstance(eqn.op, Name):
            continue
        known = [distance.get(value) for value in eqn.operands]
        far = max([step for step in known if step is not None], default=-1) + (eqn.flops > 0)
        if None not in known and far <= _NEAR:
            distance.update(dict.fromkeys(eqn.results, far))
    return frozenset(distance.keys() - set(graph.params))


def _stored(equations: Sequence[Equation], repeated: frozenset[Value]) -> set[Value]:
    """Values that XLA writes to memory: what ops that do not fuse take and give, and ends of long fusions."""
    uses = Counter(value for eqn in equations for value in eqn.operands)
    stored: set[Value] = set()
    fused: dict[Value, int] = {}
    for eqn in equations:
        if not eqn.op.is_fusible:
            stored.update(eqn.results)
            stored.update(value for value in eqn.operands if value not in repeated)
            continue
        count = max([fused.get(value, 0) for value in eqn.operands if value not in stored], default=0)
        count += eqn.flops > 0
        for value in eqn.results:
            fused[value] = count
            if count >= _FUSED and uses[value] > 1:
                stored.add(value)
                fused[value] = 0
    return stored


def _decided(eqn: Equation, policy: Policy, aliases: Aliases) -> list[Decision]:
    """For each result, what the policy does with it wherever the backward pass needs it."""
    if eqn.op.regions() or isinstance(eqn.op, Name):
        return [RECOMPUTE] * len(eqn.results)
    found: list[Decision] = []
    for index, value in enumerate(eqn.results):
        answers = policy.decide(eqn.op, eqn.operand_types, aliases.labels(aliases.root(value)))
        found.append(answers[index] if len(answers) == len(eqn.results) else answers[0])
    return found
