"""What reads a large value last runs before what takes memory after it.

Before:  %1 = dot_general %w, %logits   %2 = dot_general %logits, %v   %3 = scan %2 ...   %9 = add %1, %8
After:   %1 = dot_general %w, %logits   %2 = dot_general %logits, %v
         %4, %5 = optimization_barrier %2, %1   %3 = scan %4 ...   %9 = add %1, %8

Plans and predictions take programs in their order. XLA for GPUs has one of its own: %1, which nothing but the last
addition reads, may come behind the loop, and the logits live on beside all that it takes. Behind the barrier the loop
waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rematc.ir.core import Equation, Graph
from rematc.ir.facts import Storage
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.ir.values import Value
from rematc.passes.kernels import GPU, Fusion, Kernels, kernels

#: What is this part of the largest value, or more, is large.
_PART = 8


#: For some equations, by their places, an operand that is to be there once other values are.
Waits = dict[int, tuple[Value, list[Value]]]


def last_readers(graph: Graph) -> Graph:
    """The graph in which these wait; the graph itself where nothing does. Its regions are left as they are."""
    return with_waits(graph, waits_of(graph, GPU))


def with_waits(graph: Graph, waits: Waits) -> Graph:
    """The graph with a barrier before each of the equations; the graph itself where there are none.

    Whoever reads a small one of the other values later gets it from the barrier: the compiler would compute it there
    once more, and read the large value for that.
    """
    if not waits:
        return graph
    equations: list[Equation] = []
    env: dict[Value, Value] = {}
    for index, eqn in enumerate(graph.equations):
        own = eqn
        if not env.keys().isdisjoint(eqn.operands):
            own = replace(eqn, operands=tuple([env.get(value, value) for value in eqn.operands]))
        if index in waits:
            operand, *readers = [env.get(value, value) for value in (waits[index][0], *waits[index][1])]
            results = tuple([Value(value.type) for value in (operand, *readers)])
            equations.append(Equation(OptimizationBarrier(), (operand, *readers), results, eqn.loc))
            own = replace(own, operands=tuple([results[0] if value is operand else value for value in own.operands]))
            for reader, result in zip(waits[index][1], results[1:], strict=True):
                if reader.type.bytes * _PART <= operand.type.bytes:
                    env[reader] = result
        equations.append(own)
    results = tuple([env.get(value, value) for value in graph.results])
    return replace(graph, equations=tuple(equations), results=results)


def waits_of(graph: Graph, fusion: Fusion) -> Waits:
    """What takes memory after a large value was read last, and what reads that, as a device fuses."""
    equations = graph.equations
    found = kernels(equations, graph.results, fusion)
    least = max([value.type.bytes for value in found.stored], default=0) // _PART
    large = [value for value in found.stored if value.type.bytes >= max(1, least)]
    if len(large) < 2:
        return {}
    producer = {value: index for index, eqn in enumerate(equations) for value in eqn.results}
    # What takes memory: a large value, or what runs in a loop's steps.
    taking = sorted({producer[value] for value in large} | {i for i, eqn in enumerate(equations) if eqn.op.regions()})
    readers = _Readers(equations, found)
    waits: Waits = {}
    for value in large:
        then = next((index for index in taking if index > found.last_read[value] >= 0), None)
        operand = None if then is None else _held(equations[then], found, producer)
        if then is None or operand is None:
            continue
        for reader in sorted(readers.of(value)):
            given = next((result for result in equations[reader].results if not result.type.on_host), None)
            held = waits.get(then, (operand, []))[1]
            if given is not None and given not in held and not _is_before(equations, reader, then):
                waits.setdefault(then, (operand, held))[1].append(given)
    return waits


def reads_before(graph: Graph, fusion: Fusion) -> Waits:
    """What could be written in the place of a large value, and what reads little of that and would be fused later.

    So is the logit of each row's label with its loss, for which the compiler needs the softmax first.
    """
    stored = set(kernels(graph.equations, graph.results, fusion).stored)
    most = max([value.type.bytes for value in stored], default=0)
    users: dict[Value, list[int]] = {}
    for index, eqn in enumerate(graph.equations):
        for value in dict.fromkeys(eqn.operands):
            if value in stored and value.type.bytes * _PART >= most:
                users.setdefault(value, []).append(index)
    waits: Waits = {}
    for value, places in users.items():
        first = next((place for place in places if _is_as_large(graph.equations[place], value)), None)
        if first is None or first in waits:
            continue
        little = [place for place in places if place < first and _is_little(graph.equations[place], value)]
        readers = [place for place in little if not _is_before(graph.equations, place, first)]
        if readers:
            waits[first] = (value, [graph.equations[place].results[0] for place in readers])
    return waits


def _is_as_large(eqn: Equation, value: Value) -> bool:
    return eqn.op.is_elementwise and eqn.results[0].type.bytes == value.type.bytes


def _is_little(eqn: Equation, value: Value) -> bool:
    return len(eqn.results) == 1 and eqn.results[0].type.bytes * _PART <= value.type.bytes


class _Readers:
    """The kernels that read values, themselves or through what is a part of them."""

    def __init__(self, equations: Sequence[Equation], found: Kernels) -> None:
        self._equations = equations
        self._stored = set(found.stored)
        self._users: dict[Value, list[int]] = {}
        for index, eqn in enumerate(equations):
            for value in dict.fromkeys(eqn.operands):
                self._users.setdefault(value, []).append(index)

    def of(self, value: Value) -> set[int]:
        """Their places; barriers are none."""
        readers: set[int] = set()
        work, seen = [value], {value}
        while work:
            for index in self._users.get(work.pop(), []):
                eqn = self._equations[index]
                if isinstance(eqn.op, OptimizationBarrier):
                    continue
                if eqn.op.storage is Storage.WRITTEN or not self._stored.isdisjoint(eqn.results):
                    readers.add(index)
                    continue
                work += [result for result in eqn.results if result not in seen]
                seen.update(eqn.results)
        return readers


def _is_before(equations: Sequence[Equation], reader: int, then: int) -> bool:
    """Whether an equation waits for another one anyway."""
    reached = set(equations[reader].results)
    for eqn in equations[reader + 1 : then + 1]:
        if not reached.isdisjoint(eqn.operands):
            reached.update(eqn.results)
    return not reached.isdisjoint(equations[then].results)


def _held(eqn: Equation, found: Kernels, producer: dict[Value, int]) -> Value | None:
    """The largest operand of an equation that is in memory, and was computed: what a barrier can hold."""
    operands = [value for value in eqn.operands if value in found.last_read and value in producer]
    return max(operands, key=lambda value: value.type.bytes, default=None)
