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
from rematc.passes.planning.shards import Machine
from rematc.passes.planning.simulated_timeline import simulated, simulated_timeline


def machine_of(target: Target) -> Machine:
    """What plans know of one of a target's devices."""
    return Machine(device_of(target.platform, target.device_kind))


def expected_peak(graph: Graph, target: Target, donated: Sequence[int] = ()) -> int:
    """Bytes of temporary memory that a graph, after the passes, is expected to take on one device.

    `donated` are the parameters in whose memory results may lie.
    """
    if target.platform == "cpu":
        return predict(graph, target, donated).peak
    return simulated(graph, machine_of(target), aliased_results(graph, donated)).peak


def expected_timeline(graph: Graph, target: Target, *, is_differentiated: bool) -> MemoryTimeline:
    """The memory of a graph after the passes over its schedule; without a derivative all of it is forward."""
    if target.platform == "cpu":
        return predicted_timeline(graph, target, is_differentiated=is_differentiated)
    return simulated_timeline(graph, machine_of(target), is_differentiated=is_differentiated)
