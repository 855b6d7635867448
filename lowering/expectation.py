"""What a program is expected to take on its target: by a model of XLA on CPUs, elsewhere by that of the device."""

from __future__ import annotations

from collections.abc import Sequence

from rematc.ir.core import Graph
from rematc.lowering.donation import aliased_results
from rematc.lowering.target import Target
from rematc.lowering.xla_cpu.prediction import predict
from rematc.lowering.xla_cpu.timeline import predicted_timeline
from rematc.passes.memory_timeline import MemoryTimeline
from rematc.passes.planning.device import device_of
from rematc.passes.planning.one_device import on_one_device
from rematc.passes.planning.shards import WHOLE, Machine, Shards
from rematc.passes.planning.simulated_timeline import simulated, simulated_timeline


def machine_of(target: Target, shards: Shards = WHOLE) -> Machine:
    """What plans know of one of a target's devices, and of how a program is spread over them."""
    return Machine(device_of(target.platform, target.device_kind), shards)


def expected_peak(graph: Graph, target: Target, donated: Sequence[int] = (), shards: Shards = WHOLE) -> int:
    """Bytes of temporary memory that a graph, after the passes, is expected to take on one device.

    `donated` are the parameters in whose memory results may lie; `shards` is how it is spread over several devices.
    """
    if target.platform == "cpu":
        return predict(graph, target, donated, shards).peak
    local, _ = on_one_device(graph, shards)
    return simulated(local, machine_of(target), aliased_results(graph, donated)).peak


def expected_timeline(
    graph: Graph, target: Target, shards: Shards = WHOLE, *, is_differentiated: bool
) -> MemoryTimeline:
    """The memory of a graph after the passes over its schedule; without a derivative all of it is forward."""
    if target.platform == "cpu":
        return predicted_timeline(graph, target, shards, is_differentiated=is_differentiated)
    local, _ = on_one_device(graph, shards)
    return simulated_timeline(local, machine_of(target), is_differentiated=is_differentiated)
