"""Partial evaluation under a policy: a graph to what is computed now and what is computed later.

Before:  graph @f(%x: f32[4], %t: f32[4]) -> (f32[4], f32[4]) {           %t unknown
           %0: f32[4] = exponential %x   %1: f32[4] = sine %0   %2: f32[4] = cosine %0
           %3: f32[4] = multiply %t, %0  %4: f32[4] = multiply %3, %2   return %1, %4 }
After, with nothing saved:  known(%x) -> (%1, residual %x), staged(%x, %t) -> (%4) {
           %0: f32[4] = exponential %x   %2: f32[4] = cosine %0   %3 = ... %4 = ... }

A value is known if no unknown parameter reaches it. When a staged equation needs a known value, the policy decides:
the value becomes a residual, or its equation is repeated in the staged graph from what is available there (the known
parameters always are). Without a policy every needed value becomes a residual. What follows from constants alone is
always recomputed. Of the step of a loop, whose residuals are stacked, the fewest bytes are saved from which what is
needed follows by light work. A checkpoint region that mixes known and unknown is split by its own policy first: its
known part joins this graph's known equations, where this graph's policy decides on its residuals again; its staged part
stays a region. So a value crosses two regions only if both policies let it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import ml_dtypes

from rematc.ir.core import Equation, Graph, Op, SplitGraph, SplitRegion
from rematc.ir.effects import silent_equation, without_effects
from rematc.ir.ops.bodies import without_unused
from rematc.ir.ops.conversion import ReducePrecision
from rematc.ir.ops.mapped import FullToShard, Manual, ShardToFull
from rematc.ir.ops.shape import Reshape
from rematc.ir.ops.structural import StopGradient, ToMemory
from rematc.ir.policy import RECOMPUTE, SAVE, Decision, Offload, Policy, Save
from rematc.ir.splicing import splice
from rematc.ir.stacking import Unstacked
from rematc.ir.values import Value
from rematc.passes.dce import DeadCode
from rematc.passes.inline import inline_for_differentiation
from rematc.passes.light_work import light_work
from rematc.passes.locating import located
from rematc.passes.manual_computations import crossing_spec, place_of_shards, shard_values
from rematc.passes.saving import Residual, Saving


@dataclass(frozen=True, slots=True)
class PartialEvaluation:
    """The result of `partial_eval`.

    Attributes:
        known: parameters: the known ones; results: the known ones, then the residuals.
        staged: parameters: the residuals, then the unknown ones; results: the unknown ones.
        is_unknown: for each result of the original graph, whether it is unknown.
        residuals: in the order in which they cross.
    """

    known: Graph
    staged: Graph
    is_unknown: tuple[bool, ...]
    residuals: tuple[Residual, ...]


def partial_eval(graph: Graph, is_unknown: Sequence[bool], policy: Policy | None) -> PartialEvaluation:
    """Split `graph`; `is_unknown` marks the parameters that come later.

    Raises CompileError where a policy's answer does not fit the equation it was asked about.
    """
    return _partial_eval(graph, is_unknown, policy, None, _Context())


def partial_eval_of_step(graph: Graph, is_unknown: Sequence[bool], unstacked: Unstacked) -> PartialEvaluation:
    """Split the step of a loop without a policy.

    Most of what is saved of a step is stacked, written and read again, which costs more than work that is light
    (`Weight.LIGHT`): the staged graph repeats such work, from the fewest bytes.
    """
    return _partial_eval(graph, is_unknown, None, unstacked, _Context())


def _partial_eval(
    graph: Graph, is_unknown: Sequence[bool], policy: Policy | None, unstacked: Unstacked | None, regions: _Context
) -> PartialEvaluation:
    graph = inline_for_differentiation(graph)
    split = _classify(graph, is_unknown, policy, regions)
    staged = _live_staged(split, split.resolve(graph.results))
    plan = split.saving(graph, policy)
    if unstacked is not None:
        known_results = [value for value in split.resolve(graph.results) if value not in split.unknown]
        plan.light = light_work(graph, split.known, known_results, plan.constant, plan.aliases, unstacked)
    plan.need_all(dict.fromkeys(value for eqn in staged for value in eqn.operands if value not in split.unknown))
    results = split.resolve(graph.results)
    staged_results = tuple([value for value in results if value in split.unknown])
    return _assemble(graph, is_unknown, split, plan, (staged, staged_results))


def rematerialize(graph: Graph, policy: Policy) -> PartialEvaluation:
    """Split a graph whose parameters are all known; the staged graph gives all of its results again.

    So a loop whose values are recomputed says which of them it saves on the way.
    """
    return _rematerialize(graph, policy, _Context())


def _rematerialize(graph: Graph, policy: Policy, regions: _Context) -> PartialEvaluation:
    graph = inline_for_differentiation(graph)
    is_unknown = (False,) * len(graph.params)
    split = _classify(graph, is_unknown, policy, regions)
    plan = split.saving(graph, policy)
    results = split.resolve(graph.results)
    plan.need_all(dict.fromkeys(results))
    return _assemble(graph, is_unknown, split, plan, ([], results))


# -- what is known ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Split:
    """Equations by side.

    `env` renames results of split regions to the values that replaced them. `decided` holds what a region says of
    its values; `again` has known values for which it brought the equations that compute them in the staged graph.
    """

    unknown: set[Value]
    regions: _Context
    known: list[Equation] = field(default_factory=list)
    staged: list[Equation] = field(default_factory=list)
    env: dict[Value, Value] = field(default_factory=dict)
    decided: dict[Value, Decision] = field(default_factory=dict)
    again: dict[Value, Value] = field(default_factory=dict)

    def saving(self, graph: Graph, policy: Policy | None) -> Saving:
        """What is decided on the known values so far."""
        return Saving(graph.params, self.known, policy, self.decided, self.again)

    def resolve(self, values: Sequence[Value]) -> tuple[Value, ...]:
        return tuple([self.env.get(value, value) for value in values])


def _classify(graph: Graph, is_unknown: Sequence[bool], policy: Policy | None, regions: _Context) -> _Split:
    split = _Split({value for value, is_set in zip(graph.params, is_unknown, strict=True) if is_set}, regions)
    for eqn in graph.equations:
        _classify_equation(split, eqn, policy)
    return split


def _classify_equation(split: _Split, eqn: Equation, policy: Policy | None) -> None:
    operands = split.resolve(eqn.operands)
    if operands != eqn.operands:
        eqn = Equation(eqn.op, operands, eqn.results, eqn.loc)
    is_known = split.unknown.isdisjoint(operands)
    if (not is_known or policy is not None) and (part := _split_op(split, eqn, policy)) is not None:
        _split_region(split, eqn, part, policy)
    elif is_known:
        split.known.append(eqn)
    else:
        split.staged.append(eqn)
        split.unknown.update(eqn.results)


def _split_op(split: _Split, eqn: Equation, policy: Policy | None) -> SplitRegion | None:
    with located(eqn):
        return split.regions.split(eqn.op, tuple([value in split.unknown for value in eqn.operands]), policy)


def _split_region(split: _Split, eqn: Equation, part: SplitRegion, policy: Policy | None) -> None:
    known_operands, unknown_operands = _partition(eqn.operands, [value in split.unknown for value in eqn.operands])
    known: list[Equation] = []
    results = splice(part.known, known_operands, known, eqn.loc)
    if part.again is None:
        # Regions inside this one answer to the policy around it as well.
        for one in known:
            _classify_equation(split, one, policy)
        results = split.resolve(results)
    else:
        split.known.extend(known)
    known_results, unknown_results = _partition(eqn.results, part.is_unknown)
    count = len(known_results)
    split.env.update(zip(known_results, results[:count], strict=True))
    residuals = results[count:]
    recomputed = _recomputed(split, part, results, eqn) if part.again is not None else ()
    first = len(split.staged)
    staged = splice(part.staged, (*residuals, *recomputed, *unknown_operands), split.staged, eqn.loc)
    split.env.update(zip(unknown_results, staged, strict=True))
    split.unknown.update(value for one in split.staged[first:] for value in one.results)


def _recomputed(split: _Split, part: SplitRegion, results: tuple[Value, ...], eqn: Equation) -> tuple[Value, ...]:
    """What the staged equations of a region read of its known values beside its residuals."""
    assert part.again is not None
    count = len(results) - len(part.is_decided)
    residuals = results[count:]
    split.decided.update((value, SAVE) for value, is_set in zip(residuals, part.is_decided, strict=True) if is_set)
    first = len(split.known)
    again = splice(without_effects(part.again), residuals, split.known, eqn.loc)
    split.decided.update((value, RECOMPUTE) for one in split.known[first:] for value in one.results)
    pairs = zip(results[:count], again[:count], strict=True)
    split.again.update((value, other) for value, other in pairs if value is not other)
    return again[count:]


class _Context:
    """What split rules are given.

    A loop splits its step more than once. The regions in it are the same each time, and are split once: else the work
    doubled with each level of nesting. So are those that stand in several places.
    """

    def __init__(self) -> None:
        # What is known by its identity is kept, so that it stays its own.
        self._parts: dict[tuple[int, tuple[bool, ...], int], tuple[Op, Policy | None, SplitRegion | None]] = {}
        self._graphs: dict[tuple[int, tuple[bool, ...], int], tuple[Graph, Policy | None, SplitGraph]] = {}

    def split(self, op: Op, is_unknown: tuple[bool, ...], policy: Policy | None) -> SplitRegion | None:
        """`op.split`."""
        if not op.regions():
            return op.split(self, is_unknown, policy)
        key = (id(op), is_unknown, id(policy))
        found = self._parts.get(key)
        if found is None:
            found = self._parts[key] = (op, policy, op.split(self, is_unknown, policy))
        return found[2]

    def split_of(self, graph: Graph, is_unknown: Sequence[bool], policy: Policy | None) -> SplitGraph:
        key = (id(graph), tuple(is_unknown), id(policy))
        if key not in self._graphs:
            self._graphs[key] = graph, policy, _as_split(_partial_eval(graph, is_unknown, policy, None, self))
        return self._graphs[key][2]

    def split_of_step(self, graph: Graph, is_unknown: Sequence[bool], unstacked: Unstacked) -> SplitGraph:
        return _as_split(_partial_eval(graph, is_unknown, None, unstacked, self))

    def rematerialized(self, graph: Graph, policy: Policy) -> SplitGraph:
        return _as_split(_rematerialize(graph, policy, self))


def _as_split(part: PartialEvaluation) -> SplitGraph:
    return SplitGraph(part.known, part.staged, part.is_unknown, tuple([one.param for one in part.residuals]))


def _live_staged(split: _Split, results: Sequence[Value]) -> list[Equation]:
    """The staged equations that some unknown result needs, or that have effects, in order; regions without their
    unused results.
    """
    live = set(results)
    kept: list[Equation] = []
    for eqn in reversed(split.staged):
        used = [value in live for value in eqn.results]
        if not any(used) and not eqn.op.effect:
            continue
        if not all(used):
            eqn = without_unused(eqn, used)  # noqa: PLW2901  # the pruned region takes the equation's place
        live.update(eqn.operands)
        kept.append(eqn)
    kept.reverse()
    return kept


# -- the two graphs -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Transfer:
    """Residuals on their way.

    `known` gains the copies to the host, `env` says under which value the staged graph has the root of an alias class,
    `staged` are its equations: those that bring back what is on the host, then what it repeats and what it adds.
    """

    known: list[Equation]
    residuals: list[Residual] = field(default_factory=list)
    staged: list[Equation] = field(default_factory=list)
    env: dict[Value, Value] = field(default_factory=dict)
    stopped: dict[Value, Value] = field(default_factory=dict)

    def available(self, plan: Saving, value: Value) -> Value:
        """What stands for a value in the staged graph, which has it from here on."""
        root = plan.aliases.root(value)
        is_stopped = False
        while root not in self.env and root in plan.again:
            is_stopped |= value in plan.aliases.stopped
            value = plan.again[root]
            root = plan.aliases.root(value)
        found = self.env.get(root, value)
        if found is not value:
            is_stopped |= value in plan.aliases.stopped
        return self._stopped(found) if is_stopped else found

    def _stopped(self, value: Value) -> Value:
        """A value behind a `stop_gradient`: its class crosses by a member that may have a tangent."""
        if value not in self.stopped:
            result = self.stopped[value] = Value(value.type)
            self.staged.append(Equation(StopGradient(), (value,), (result,)))
        return self.stopped[value]


def _transfer(split: _Split, plan: Saving, known_params: Sequence[Value]) -> _Transfer:
    transfer = _Transfer(list(split.known))
    position = {value: index for index, value in enumerate(known_params)}
    order = {value: index for index, value in enumerate((*known_params, *plan.producer))}
    known = Graph("known", tuple(known_params), tuple(split.known), ())
    place = place_of_shards(known)
    shards = set[Value]() if place is None else shard_values(known, place)
    for root in sorted(plan.residuals, key=order.__getitem__):
        residual = Residual(root, position[root]) if root in position else plan.residual(root)
        available = residual.value
        if place is not None and root in shards:
            residual, available = _put_together(transfer, residual, place)
        elif root not in position and isinstance(decision := plan.decisions[root], Offload):
            residual, reload = _offload(transfer.known, residual, decision)
            transfer.staged.append(reload)
            available = reload.results[0]
        transfer.residuals.append(residual)
        transfer.env[root] = available
    if plan.policy is not None:
        asked = plan.decisions.items() - split.decided.items()
        saved = {root for root, decision in asked if isinstance(decision, Save)}
        transfer.known = _pin_precision(transfer.known, saved)
    return transfer


def _assemble(
    graph: Graph,
    is_unknown: Sequence[bool],
    split: _Split,
    plan: Saving,
    later: tuple[list[Equation], tuple[Value, ...]],
) -> PartialEvaluation:
    staged, staged_results = later
    known_params, unknown_params = _partition(graph.params, is_unknown)
    transfer = _transfer(split, plan, known_params)
    values = tuple([residual.value for residual in transfer.residuals])
    taken = set(values)
    equations = transfer.staged
    # What has an effect has it once, in the known graph; only results are computed again.
    recomputed = [silent_equation(plan.recomputed[index]) for index in sorted(plan.recomputed)]
    for eqn in (*recomputed, *staged):
        operands = tuple([transfer.available(plan, value) for value in eqn.operands])
        results = tuple([Value(value.type) if value in taken else value for value in eqn.results])
        equations.append(Equation(eqn.op, operands, results, eqn.loc))
    available = tuple([transfer.available(plan, value) for value in staged_results])
    graph_results = split.resolve(graph.results)
    result_is_unknown = tuple([value in split.unknown for value in graph_results])
    known_results, _ = _partition(graph_results, result_is_unknown)
    known = Graph(graph.name, known_params, tuple(transfer.known), (*known_results, *values))
    return PartialEvaluation(
        DeadCode().run(known),
        Graph(graph.name, (*values, *unknown_params), tuple(equations), available),
        result_is_unknown,
        tuple(transfer.residuals),
    )


def _partition(values: Sequence[Value], flags: Sequence[bool]) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
    """The values without the flag, and those with it."""
    pairs = list(zip(values, flags, strict=True))
    return tuple([value for value, is_set in pairs if not is_set]), tuple([value for value, is_set in pairs if is_set])


def _offload(known: list[Equation], residual: Residual, decision: Offload) -> tuple[Residual, Equation]:
    """Append the copy to the host's memory; the residual that the copy is, and the equation that brings it back."""
    loc = residual.source.loc if residual.source else None
    to_host, to_device = ToMemory(decision.dst != "device"), ToMemory(decision.src != "device")
    copy = Value(to_host.infer([residual.value.type])[0], residual.value.name)
    known.append(Equation(to_host, (residual.value,), (copy,), loc))
    back = Value(residual.value.type, residual.value.name)
    moved = replace(residual, value=copy, param=None)
    return moved, Equation(to_device, (copy,), (back,), loc)


def _put_together(transfer: _Transfer, residual: Residual, place: Manual) -> tuple[Residual, Value]:
    """Let what one device has of a residual cross as a part of a whole array: graphs take and give those alone.

    The residual that the array is, and what one device has of it in the staged graph.
    """
    loc = residual.source.loc if residual.source else None
    value, is_scalar = residual.value, not residual.value.type.rank
    together = ShardToFull.at(place, crossing_spec(value, place))
    cut = FullToShard.at(place, together.spec)
    row = Value(value.type.with_shape((1,))) if is_scalar else value
    whole, part = Value(together.infer((row.type,))[0], value.name), Value(row.type, value.name)
    if is_scalar:
        transfer.known.append(Equation(Reshape((1,)), (value,), (row,), loc))
    transfer.known.append(Equation(together, (row,), (whole,), loc))
    transfer.staged.append(Equation(cut, (whole,), (part,), loc))
    if is_scalar:
        scalar = Value(value.type, value.name)
        transfer.staged.append(Equation(Reshape(()), (part,), (scalar,), loc))
        part = scalar
    return replace(residual, value=whole, param=None), part


def _pin_precision(known: list[Equation], saved: set[Value]) -> list[Equation]:
    """Round saved values of 16 bits and fewer where they are computed.

    XLA may keep such values in float32 inside a fusion; without the rounding the forward graph would go on with
    another number than the one that was saved.
    """
    pinned: list[Equation] = []
    for eqn in known:
        rounded = [value in saved and _is_narrow(value) for value in eqn.results]
        if not any(rounded) or isinstance(eqn.op, ReducePrecision):
            pinned.append(eqn)
            continue
        raw = tuple([Value(v.type) if is_set else v for v, is_set in zip(eqn.results, rounded, strict=True)])
        pinned.append(Equation(eqn.op, eqn.operands, raw, eqn.loc))
        for before, after in zip(raw, eqn.results, strict=True):
            if before is not after:
                info = ml_dtypes.finfo(after.type.dtype.numpy)  # type: ignore[no-untyped-call]  # ml_dtypes
                pinned.append(Equation(ReducePrecision(info.nexp, info.nmant), (before,), (after,), eqn.loc))
    return pinned


def _is_narrow(value: Value) -> bool:
    return value.type.dtype.is_float and value.type.dtype.bits <= 16
