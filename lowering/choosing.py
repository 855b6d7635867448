"""The choice between ways to stage a program: that one which its target is predicted to need least memory for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rematc.ir.collecting import collection_paused
from rematc.ir.core import Graph
from rematc.ir.errors import CompileError
from rematc.ir.ops.placement import has_placements
from rematc.ir.policy import Policy
from rematc.lowering.expectation import machine_of
from rematc.lowering.pipeline import DEFAULT_PIPELINE
from rematc.lowering.propagation import shards_of
from rematc.lowering.target import Target
from rematc.lowering.xla_cpu.held_readers import least_peaks
from rematc.passes.accounting import flat_equations, total_work
from rematc.passes.fold_transposes import fold_transposes
from rematc.passes.inline import inline_for_differentiation
from rematc.passes.linearize import value_and_cotangents, vjp
from rematc.passes.manager import PassManager, parse_pipeline, unwatched
from rematc.passes.planning.device import device_of
from rematc.passes.planning.shards import Shards
from rematc.passes.planning.simulated_timeline import simulated
from rematc.passes.staging.stage import ways_to_stage
from rematc.passes.staging.whole import policy_on_whole
from rematc.passes.unroll import Unroll

#: What predictions of two ways of one program cannot tell apart: of ways that need no more than so much of the least,
#: the one that is least work is taken.
_AS_GOOD = 0.95
#: The default passes; what is chosen is verified when it goes through them.
_LOOKED_AT = PassManager(parse_pipeline(DEFAULT_PIPELINE), verify=False)


def primal_for(
    graph: Graph,
    policy: Policy | None,
    wrt: Sequence[bool],
    of: Sequence[bool],
    target: Target,
    slices: int = 1,
    lying: Sequence[Any] = (),
) -> tuple[Graph, Policy | None]:
    """What is differentiated where the forward and the backward pass become one program, and the policy on all of it.

    Products that are only transposed are in the order in which they are read; under a policy there are segments.

    Args:
        graph: a function's.
        policy: on the whole of it; None is no checkpoint around it.
        wrt: the parameters that it is going to be differentiated by.
        of: the results that are going to get cotangents.
        target: for what.
        slices: in how many the largest value is going to run, and what else is larger than one of them.
        lying: JAX's shardings of the first parameters; None, or none at all, where nobody knows.
    """
    graph, policy = policy_on_whole(graph, policy, of)
    graph = fold_transposes(Unroll().run(graph))
    return graph if policy is None else staged_for(graph, policy, wrt, of, target, slices, lying), policy


@collection_paused()
def staged_for(
    graph: Graph,
    policy: Policy,
    wrt: Sequence[bool],
    of: Sequence[bool],
    target: Target,
    slices: int = 1,
    lying: Sequence[Any] = (),
) -> Graph:
    """`graph` under a policy as a whole, in segments, where forward and backward pass become one program for a target.

    Ways are compared by what they are expected to take, on one device, under `auto` that without segments as well;
    where the program is going to be cut into slices, or is spread over devices and nobody knows how, the most promising
    one is taken.

    Args:
        graph: what is to be differentiated.
        policy: what may be saved.
        wrt: the parameters that it is going to be differentiated by.
        of: the results that are going to get cotangents.
        target: for what.
        slices: as in `primal_for`.
        lying: as in `primal_for`.
    """
    graph = inline_for_differentiation(graph)
    shards = shards_of(graph, target, lying)
    fusion = device_of(target.platform, target.device_kind).fusion
    staged = ways_to_stage(graph, policy, wrt, of, slices, fusion, shards)
    ways = [next(staged)]
    if slices == 1 and not (shards.is_whole and has_placements(graph)):
        ways += staged
        if policy.saves_least:
            ways.append(graph)  # what is kept is open, and so all may be
    if len(ways) == 1:
        return ways[0]
    try:
        needed = _needed(ways, wrt, of, target, shards)
    except CompileError:
        # Whoever differentiates the graph says where it fails.
        return ways[0]
    least = min(memory for memory, _ in needed)
    as_good = [(work, memory, place) for place, (memory, work) in enumerate(needed) if memory * _AS_GOOD <= least]
    return ways[min(as_good)[-1]]


def _needed(
    ways: Sequence[Graph], wrt: Sequence[bool], of: Sequence[bool], target: Target, shards: Shards
) -> list[tuple[int, int]]:
    """Bytes of temporary memory of the value and the cotangents in each way, and their work.

    That is the floating-point operations of products on the CPU, and elsewhere nanoseconds.
    """
    with unwatched():
        joint = [_LOOKED_AT.run(value_and_cotangents(vjp(way, wrt, of))).graph for way in ways]
        for way, one in zip(ways, joint, strict=True):
            shards.follow(one, [shards.axes(value) for value in way.params])
        if target.platform == "cpu":
            work = [total_work(eqn for eqn in flat_equations(one) if eqn.op.is_product).flops for one in joint]
            return list(zip(least_peaks(joint, target, _AS_GOOD, shards), work, strict=True))
        runs = [simulated(one, machine_of(target, shards)) for one in joint]
        return [(run.peak, run.time) for run in runs]
