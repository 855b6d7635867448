"""Analysis: what the derivative of a program holds, by the places of the program's own equations.

Before:  graph @f(%x, %w) { %0 = dot_general %x, %w   %1 = tanh %0   ... }
After:   of each equation: the bytes that its adjoint works with, and those of what it computes that adjoints read

The program is differentiated, with everything kept, and the derivative is looked at as XLA will run it: forward, then
the adjoints from the last equation to the first. What a stage of the backward pass holds follows from three sums over
the program's equations, wherever it is cut: what adjoints work with themselves, what they read that the policy saves,
and what they read that a stage computes again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from rematc.ir.core import Equation, Graph
from rematc.ir.errors import CompileError
from rematc.ir.locations import Location
from rematc.ir.ops.structural import Name
from rematc.ir.policy import RECOMPUTE, Decision, Offload, Policy, Recompute
from rematc.ir.values import Value
from rematc.passes.aliases import Aliases, find_aliases
from rematc.passes.kernels import CPU, Fusion, kernels
from rematc.passes.linearize import Vjp, vjp
from rematc.passes.manager import unwatched
from rematc.passes.planning.shards import WHOLE, Shards

Bytes = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

#: Bytes that staging must save to be worth it.
LEAST_GAIN = 2**16
#: How many elementwise ops a value may be away from parameters and still be repeated wherever it is used.
_NEAR = 6


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """What segments are chosen by.

    Attributes:
        equations: the graph's.
        repeated: values that follow from parameters and constants by a little elementwise work; a segment that uses
            one computes it again.
        last_use: for each value the index of the last equation that uses it.
        crossing: for each value that is not repeated, the bytes it costs to be saved between two segments: none where
            the policy saves it, or where it is another one's alias.
        adjoint: [equations] bytes of cotangents and the like while the adjoint of the equation is taken.
        read: [equations] bytes of what adjoints read of the forward pass, by the first equation whose adjoint does.
        saved: [equations] bytes of what the policy saves, likewise.
        recomputed: [equations] bytes of what adjoints read and the policy does not save.
        computed: [equations] bytes of all that is written where these are computed again.
    """

    equations: Sequence[Equation]
    repeated: frozenset[Value]
    last_use: dict[Value, int]
    crossing: dict[Value, int]
    adjoint: Bytes
    read: Bytes
    saved: Bytes
    recomputed: Bytes
    computed: Bytes


@dataclass(frozen=True, slots=True)
class _Place(Location):
    """Where an equation of the graph stands, noted as the location of all that differentiation makes of it."""


def profile(graph: Graph, policy: Policy, wrt: Sequence[bool], of: Sequence[bool], shards: Shards = WHOLE) -> Profile:
    """The profile of differentiating `graph` under a policy, as CPUs fuse; `wrt` and `of` are as in `vjp`."""
    return Profiler(graph, policy, wrt, of, shards=shards).profile(CPU)


class Profiler:
    """Differentiates a graph under a policy once, and gives its profile for each device."""

    def __init__(
        self,
        graph: Graph,
        policy: Policy,
        wrt: Sequence[bool],
        of: Sequence[bool],
        instead: Mapping[int, Sequence[Equation]] = MappingProxyType({}),
        slices: int = 1,
        shards: Shards = WHOLE,
    ) -> None:
        """What the profiles are of.

        Args:
            graph: what is to be cut.
            policy: what may be saved.
            wrt: the parameters that it is differentiated by, as in `vjp`.
            of: the results that get cotangents.
            instead: for equations that are staged by themselves, by their indices, what takes their place.
            slices: of the largest value: the derivative is going to be cut so that none has more bytes than one.
            shards: how the graph is spread over devices: bytes are those of one of them.
        """
        self._graph, self._instead = graph, instead
        self._derivative = _derivative(graph, wrt, of, instead)
        if self._derivative is not None:
            found = self._derivative
            shards.follow_both(found.forward, found.backward, len(found.residuals))
        self._bytes = _Bytes(graph, slices, shards)
        self._aliases = find_aliases(graph.equations)
        self._repeated = _repeated(graph)
        self._on_device = saved_by(graph.equations, policy, self._aliases)
        self._last_use = {value: index for index, eqn in enumerate(graph.equations) for value in eqn.operands}

    def profile(self, fusion: Fusion) -> Profile:
        """The profile where kernels compute themselves what these do."""
        equations, derivative, on_device = self._graph.equations, self._derivative, self._on_device
        adjoint, direct, saved, recomputed, computed = (np.zeros(len(equations)) for _ in range(5))
        read, needed = _Read({}, frozenset()), dict[Value, int]()
        if derivative is not None:
            read = _read_by_adjoints(derivative, adjoint, self._bytes, fusion)
            needed = _needed(read.last, on_device, derivative.forward)
        for root, place in needed.items():
            if root in self._repeated:
                continue
            size, last = self._bytes(root), read.last.get(root, place)
            if root in read.last:
                direct[last] += size
            if root in on_device:
                saved[last] += size if on_device[root] else 0
            elif root in read.last and place in self._instead:
                saved[last] += size
            elif root in read.stored and place not in self._instead:
                recomputed[last] += size if root in read.last else 0
                computed[place] += size
        crossing = self._crossing(needed)
        return Profile(
            equations, self._repeated, self._last_use, crossing, adjoint, direct, saved, recomputed, computed
        )

    def _crossing(self, needed: Collection[Value]) -> dict[Value, int]:
        found: dict[Value, int] = {}
        for eqn in self._graph.equations:
            for value in eqn.results:
                if value not in self._repeated:
                    root = self._aliases.root(value)
                    is_free = root is not value or (root in self._on_device and root in needed)
                    found[value] = 0 if is_free else self._bytes(value)
        return found


def _derivative(
    graph: Graph, wrt: Sequence[bool], of: Sequence[bool], instead: Mapping[int, Sequence[Equation]]
) -> Vjp | None:
    """The vjp of the graph, all equations of which say where they come from."""
    marked = [
        Equation(one.op, one.operands, one.results, _Place("", index))
        for index, eqn in enumerate(graph.equations)
        for one in instead.get(index, (eqn,))
    ]
    try:
        with unwatched():
            return vjp(Graph(graph.name, graph.params, tuple(marked), graph.results), wrt, of)
    except CompileError:
        # Whoever differentiates the graph itself says where it fails.
        return None


class _Bytes:
    """How many bytes of a value are in memory at once, if those of the largest are a number of slices, and so on."""

    def __init__(self, graph: Graph, slices: int, shards: Shards) -> None:
        written = [value for eqn in graph.equations if not eqn.op.is_fusible for value in eqn.results]
        self._of = shards.bytes
        self._most = max(map(self._of, written), default=0) // slices if slices > 1 else None

    def __call__(self, value: Value) -> int:
        return self._of(value) if self._most is None else min(self._of(value), self._most)


@dataclass(frozen=True, slots=True)
class _Read:
    """What is in memory of a forward graph.

    Attributes:
        last: the values that the backward graph reads, and by which equation's adjoint last.
        stored: all of them.
    """

    last: dict[Value, int]
    stored: Collection[Value]


def _read_by_adjoints(derivative: Vjp, adjoint: Bytes, bytes_of: _Bytes, fusion: Fusion) -> _Read:
    """What is in memory of the forward graph; fills in what adjoints work with."""
    forward, backward = derivative.forward, derivative.backward
    count = len(forward.equations)
    residuals = forward.results[len(forward.results) - len(derivative.residuals) :]
    env = dict(zip(backward.params, residuals, strict=False))
    joint = list(forward.equations)
    for eqn in backward.equations:
        operands = tuple([env.get(value, value) for value in eqn.operands])
        joint.append(Equation(eqn.op, operands, eqn.results, eqn.loc))
    results = {env.get(value, value) for value in backward.results}
    found = kernels(joint, (*results, *forward.results[: len(forward.results) - len(residuals)]), fusion)
    places = _places(joint)
    own = {value: index for index, eqn in enumerate(joint) for value in eqn.results}
    read: dict[Value, int] = {}
    working: list[Value] = []
    for value in found.stored:
        if own[value] >= count:
            if value not in results and not value.type.on_host:
                working.append(value)
        elif found.last_read[value] >= count:
            read[value] = min(places[own[value]], places[found.last_read[value]])
    live = _live(joint, working, own, found.last_read, bytes_of)[count:]
    np.maximum.at(adjoint, np.asarray(places[count:], np.int64), live)
    return _Read(read, frozenset(found.stored))


def _live(
    equations: Sequence[Equation],
    values: Sequence[Value],
    own: Mapping[Value, int],
    last_read: Mapping[Value, int],
    bytes_of: _Bytes,
) -> Bytes:
    """The bytes of values that are live at each equation; what is written over an operand takes no place of its own."""
    dying: dict[tuple[int, int], int] = {}
    for value in values:
        place = last_read[value], bytes_of(value)
        dying[place] = dying.get(place, 0) + 1
    change = np.zeros(len(equations) + 1)
    for value in values:
        begin, size = own[value], bytes_of(value)
        end = max(last_read[value], begin)
        op = equations[begin].op
        may_replace = op.is_elementwise or op.overwrites(equations[begin].results.index(value)) is not None
        if may_replace and dying.get((begin, size), 0) and end > begin:
            dying[begin, size] -= 1
            begin += 1
        change[begin] += size
        change[end + 1] -= size
    return np.cumsum(change)[:-1]


def _needed(read: Collection[Value], kept: Collection[Value], forward: Graph) -> dict[Value, int]:
    """What the backward pass needs of the forward graph, and where that is computed: what adjoints read, and what that
    is computed from again, back to what is kept.
    """
    pairs = zip(_places(forward.equations), forward.equations, strict=True)
    producer = {value: (place, eqn) for place, eqn in pairs for value in eqn.results}
    found: dict[Value, int] = {}
    stack = list(read)
    while stack:
        value = stack.pop()
        if value in found or value not in producer:
            continue
        found[value], eqn = producer[value]
        if value not in kept:
            stack.extend(eqn.operands)
    return found


def _places(equations: Sequence[Equation]) -> list[int]:
    """For each equation that of the graph from which it comes; those without a note belong to the one before."""
    found: list[int] = []
    place = 0
    for eqn in equations:
        if isinstance(eqn.loc, _Place):
            place = eqn.loc.line
        found.append(place)
    return found


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


def saved_by(equations: Sequence[Equation], policy: Policy, aliases: Aliases) -> dict[Value, bool]:
    """The values that a policy saves wherever the backward pass needs them, and whether they wait on the device."""
    found: dict[Value, bool] = {}
    for eqn in equations:
        for value, decision in zip(eqn.results, _decided(eqn, policy, aliases), strict=True):
            if not isinstance(decision, Recompute) and aliases.root(value) is value:
                found[value] = not isinstance(decision, Offload)
    return found


def _decided(eqn: Equation, policy: Policy, aliases: Aliases) -> list[Decision]:
    """For each result, what the policy does with it wherever the backward pass needs it."""
    if eqn.op.regions() or isinstance(eqn.op, Name):
        return [RECOMPUTE] * len(eqn.results)
    found: list[Decision] = []
    for index, value in enumerate(eqn.results):
        answers = policy.decide(eqn.op, eqn.operand_types, aliases.labels(aliases.root(value)))
        found.append(answers[index] if len(answers) == len(eqn.results) else answers[0])
    return found
