"""Donated parameters: the results that lie in their memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rematc.ir.core import Graph
from rematc.ir.types import TensorType
from rematc.passes.planning.shards import Shards


def aliased_results(graph: Graph, donated: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Pairs of a donated parameter and the result that lies in its memory, by their numbers.

    As JAX pairs them: results in order, each with the first donated parameter of its type that is left.
    """
    left: defaultdict[TensorType, list[int]] = defaultdict(list)
    for index in sorted(donated):
        left[graph.params[index].type].append(index)
    return tuple([(left[value.type].pop(0), place) for place, value in enumerate(graph.results) if left[value.type]])


def result_bytes(graph: Graph, donated: Sequence[int], shards: Shards) -> int:
    """Bytes of the results that lie in no donated parameter's memory, of what one device holds."""
    aliased = {place for _, place in aliased_results(graph, donated)}
    return sum(shards.bytes(value) for place, value in enumerate(graph.results) if place not in aliased)
