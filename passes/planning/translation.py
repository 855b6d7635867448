"""Analysis: a program as a problem of planning: kernels as nodes, what is in memory as values.

Before:  %0 = dot_general %x, %w   %1 = tanh %0   %2 = dot_general %1, %v   %3 = multiply %2, %0   return %3
Nodes:   0: %0   1: %1, which a product takes   2: %2   3: %3, a result: no temporary memory
         reads: 1 of %0; 2 of %1; 3 of %2 and %0

A node is an equation that writes to memory, with the fused equations that feed it from there (`rematc.passes.kernels`).
Constants, parameters and what waits in the host's memory take none; results lie in memory of their own, and live to the
end, and so does what a loop begins with that gives one. A kernel whose elements are computed one by one writes over an
operand of its size that nothing reads any more.

What may run again is what ops say (`is_repeatable`); but no effects, no opaque calls, no collectives. A loop or a
branch runs as a whole, and takes what it needs inside; it may run again where it is known how long that takes.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace

from rematc.ir.core import Equation, Graph, Op
from rematc.ir.facts import Storage
from rematc.ir.ops.case.op import Case
from rematc.ir.ops.convolution import Convolution
from rematc.ir.ops.dot import DotGeneral
from rematc.ir.ops.reduction import Reduction
from rematc.ir.ops.regions import Checkpoint
from rematc.ir.ops.scan.op import Scan
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.ir.ops.while_.op import While
from rematc.ir.splicing import splice
from rematc.ir.traversal import all_equations
from rematc.ir.values import Value
from rematc.passes.kernels import kernels
from rematc.passes.legalize.factors import copied
from rematc.passes.planning.constraints import FREE, Constraints
from rematc.passes.planning.lanes import padding
from rematc.passes.planning.partial_sums import partial_sums
from rematc.passes.planning.problem import Problem, Run, problem_of, simulate
from rematc.passes.planning.rounded_factors import rounded_factors
from rematc.passes.planning.shards import WHOLE, Machine, Shards


@dataclass(frozen=True, slots=True)
class Translation:
    """A graph and its problem.

    Attributes:
        graph: without functions that could be inlined.
        problem: its nodes and values, in the graph's order.
        clusters: for each node the fused equations that feed it, in order, and last its own.
        values: for each of the problem's values the graph's.
        tail: the fused equations that give results from what is in memory.
        pinned: values that are in memory because a barrier stands behind them.
        shards: what one device holds of each value.
    """

    graph: Graph
    problem: Problem
    clusters: Sequence[tuple[Equation, ...]]
    values: Sequence[Value]
    tail: tuple[Equation, ...]
    pinned: frozenset[Value]
    shards: Shards = WHOLE

    def own(self, node: int) -> Equation:
        """The equation that writes what the node writes."""
        return self.clusters[node][-1]

    def flops(self, nodes: Iterable[int]) -> int:
        """Floating-point operations of running these nodes on one device, as often as they are named."""
        return sum(self.shards.flops(eqn) for node in nodes for eqn in self.clusters[node])


def translate(graph: Graph, regions: Machine | Regions, constraints: Constraints = FREE) -> Translation:
    """The problem of a graph: the time, and the memory, of one of the devices that it runs on.

    `regions` know what some take, and what is found of further ones enters there; a machine's know of none.
    """
    return _translate(graph, regions if isinstance(regions, Regions) else Regions(regions), constraints)


def translate_passed(graph: Graph, machine: Machine) -> Translation:
    """The problem of a graph after the passes, as it stands: barriers are no part of it, and take nothing."""
    return Regions(machine).translation(graph)


def _translate(
    graph: Graph, inside: Regions, constraints: Constraints = FREE, held: Set[Value] = frozenset()
) -> Translation:
    """The problem; `held` are in memory whatever reads them."""
    shards = inside.machine.shards
    shards.follow(graph)
    # What is kept is in memory, though it could be fused.
    fusion = inside.machine.device.fusion
    if constraints.fuses_shared:
        fusion = replace(fusion, reduces_alone=False)
    found = kernels(graph.equations, graph.results, fusion)
    stored = {*found.stored, *constraints.kept(graph.equations), *held}
    sums = partial_sums(graph.equations, stored) if constraints.sums else frozenset[Value]()
    stored |= sums
    may_repeat = constraints.may_repeat(graph.equations)
    producer = {value: index for index, eqn in enumerate(graph.equations) for value in eqn.results}

    def cluster(values: Iterable[Value]) -> tuple[tuple[Equation, ...], list[Value]]:
        """The fused equations that compute values from memory, in order, and what they read there."""
        return _fused(graph.equations, values, stored, producer)

    own = [eqn for eqn in graph.equations if eqn.op.effect or not stored.isdisjoint(eqn.results)]
    fed = [cluster(eqn.operands) for eqn in own]
    place: dict[Value, int] = {}
    writer: list[int] = []
    for node, eqn in enumerate(own):
        for value in eqn.results:
            place[value] = len(writer)
            writer.append(node)
    tail, read_last = cluster(graph.results)
    results = {value for value in read_last if value in place}
    reads = [[place[value] for value in read if value in place] for _, read in fed]
    clusters = [(*feeders, eqn) for (feeders, _), eqn in zip(fed, own, strict=True)]
    fixed = _normalizing(own, reads, writer, place, held, fusion.normalized)
    wider = padding(graph, inside.machine.device.lanes)
    rounded = rounded_factors(graph) if inside.machine.device.rounds_factors else frozenset[Value]()
    sizes = [round(shards.bytes(value) * wider.get(value, 1)) // (2 if value in rounded else 1) for value in place]
    in_place = _in_place(own, reads, place, sizes, fixed)
    free = results | _in_results(own, reads, place, in_place, results)
    problem = problem_of(
        cost=[inside.time(each, read) for each, (_, read) in zip(clusters, fed, strict=True)],
        reads=reads,
        size=[0 if value in free or value.type.on_host else size for value, size in zip(place, sizes, strict=True)],
        producer=writer,
        results=[place[value] for value in results],
        workspace=[
            inside.peak(eqn) + copies
            for eqn, copies in zip(own, _copied(inside.machine, own, reads, place), strict=True)
        ],
        is_repeatable=[all(_is_bounded(eqn.op) and may_repeat(eqn) for eqn in each) for each in clusters],
        replaces=in_place,
    )
    return Translation(graph, problem, clusters, tuple(place), tail, sums, shards)


def _is_bounded(op: Op) -> bool:
    """Whether it is known how long it takes: of ops with regions, branches and loops of known length."""
    regions = op.regions()
    if not regions:
        return True
    inner = itertools.chain(*map(all_equations, regions))
    return isinstance(op, Scan | Case) and not any(isinstance(eqn.op, While) for eqn in inner)


def _fused(
    equations: Sequence[Equation], values: Iterable[Value], stored: set[Value], producer: dict[Value, int]
) -> tuple[tuple[Equation, ...], list[Value]]:
    work, read, fused = list(values), dict[Value, None](), set[int]()
    while work:
        value = work.pop()
        if value in stored or value not in producer or equations[producer[value]].op.effect:
            read[value] = None
        elif producer[value] not in fused:
            fused.add(producer[value])
            work.extend(equations[producer[value]].operands)
    return tuple([equations[index] for index in sorted(fused)]), list(read)


def _without_barriers(graph: Graph) -> tuple[Graph, set[Value]]:
    """A program without its barriers, but for those in its regions, and what they hold in memory."""
    env: dict[Value, Value] = {}
    roots: dict[Value, Value] = {}
    held: set[Value] = set()
    equations: list[Equation] = []
    for eqn in graph.equations:
        operands = tuple([env.get(value, value) for value in eqn.operands])
        if isinstance(eqn.op, OptimizationBarrier):
            env.update(zip(eqn.results, operands, strict=True))
            held.update(roots.get(value, value) for value in operands)
            continue
        if eqn.op.storage in (Storage.ALIAS, Storage.BITCAST):
            roots[eqn.results[0]] = roots.get(operands[0], operands[0])
        equations.append(Equation(eqn.op, operands, eqn.results, eqn.loc))
    results = tuple([env.get(value, value) for value in graph.results])
    return Graph(graph.name, graph.params, tuple(equations), results), held


def _in_one(region: Graph) -> Graph:
    """A body whose stages are planned, with these as plain equations: a stage frees what it has read as it goes on."""
    if not any(isinstance(eqn.op, Checkpoint) and eqn.op.is_scheduled for eqn in region.equations):
        return region
    equations: list[Equation] = []
    env: dict[Value, Value] = {}
    for eqn in region.equations:
        operands = tuple([env.get(value, value) for value in eqn.operands])
        if isinstance(eqn.op, Checkpoint) and eqn.op.is_scheduled:
            env.update(zip(eqn.results, splice(eqn.op.body, operands, equations), strict=True))
        else:
            equations.append(Equation(eqn.op, operands, eqn.results, eqn.loc))
    results = tuple([env.get(value, value) for value in region.results])
    return Graph(region.name, region.params, tuple(equations), results)


def _time(machine: Machine, cluster: Sequence[Equation], read: Sequence[Value]) -> int:
    device, shards = machine.device, machine.shards
    products, flops, sent = 0.0, 0, 0
    for eqn in cluster:
        sent += shards.sent(eqn).moved
        if eqn.op.is_product:
            products += device.product_time(shards.flops(eqn), eqn.operands[0].type.dtype.bits)
        else:
            flops += shards.flops(eqn)
    moved = sum(shards.bytes(value) for value in (*read, *cluster[-1].results))
    return device.time(products, flops, moved, sent)


def _copied(
    machine: Machine, own: Sequence[Equation], reads: Sequence[Sequence[int]], place: dict[Value, int]
) -> list[int]:
    """For each node the bytes of what its product copies of what is in memory anyway, or gathers from other devices.

    What no other node reads, and is computed element by element, is written as the product takes it.
    """
    shards = machine.shards
    gathered = [shards.sent(eqn).gathered for eqn in own]
    if not machine.device.copies_factors or not shards.is_whole:
        return gathered
    readers = Counter(value for read in reads for value in read)
    fusible = {value for eqn in own if eqn.op.is_fusible for value in eqn.results}
    found = []
    for eqn in own:
        sides = copied(eqn) if isinstance(eqn.op, DotGeneral | Convolution) else []
        found.append(
            sum(
                value.type.bytes
                for value, is_copied in zip(eqn.operands, sides, strict=False)
                if is_copied and value in place and (readers[place[value]] > 1 or value not in fusible)
            )
        )
    return found


def _normalizing(
    own: Sequence[Equation],
    reads: Sequence[Sequence[int]],
    writer: Sequence[int],
    place: dict[Value, int],
    held: Set[Value],
    most: int,
) -> set[int]:
    """The nodes that read a value and what rows of it, of so many elements at most, were reduced to: one kernel.

    Nothing else reads that: what a logarithm of a sum reads, too, is written before.
    """
    values = list(place)
    readers = Counter(value for row in reads for value in row)

    def reduced(node: int) -> set[int]:
        """What a node reads that rows are reduced from, unless a barrier holds what comes out."""
        eqn = own[node]
        if not isinstance(eqn.op, Reduction) or not held.isdisjoint(eqn.results):
            return set()
        shape = eqn.operands[0].type.shape
        is_last = eqn.op.dimensions == (len(shape) - 1,) and shape[-1] <= most
        return set(reads[node]) if is_last else set()

    found = set()
    for node, eqn in enumerate(own) if most else ():
        if eqn.op.is_fusible:
            sources = [reduced(writer[value]) for value in reads[node] if readers[value] == 1]
            if any(value in row and values[value].type.shape for row in sources for value in reads[node]):
                found.add(node)
    return found


def _in_place(
    own: Sequence[Equation],
    reads: Sequence[Sequence[int]],
    place: dict[Value, int],
    sizes: Sequence[int],
    fixed: Set[int],
) -> list[int]:
    """For each value one that it may lie in the place of; the last one of those that are read there for the last time.

    A fused kernel writes over any operand of its type that it reads, unless it is one of the `fixed` nodes; another one
    over what its op says.
    """
    last = {value: node for node, read in enumerate(reads) for value in read}
    found = []
    for node, eqn in enumerate(own):
        for index, result in enumerate(eqn.results):
            if eqn.op.storage is Storage.WRITTEN:
                operand = eqn.op.overwrites(index)
                found.append(-1 if operand is None else place.get(eqn.operands[operand], -1))
                continue
            read = () if node in fixed else reads[node]
            fitting = [value for value in read if sizes[value] == sizes[place[result]]]
            fitting.sort(key=lambda value: last[value] == node)
            found.append(fitting[-1] if fitting else -1)
    return found


def _in_results(
    own: Sequence[Equation],
    reads: Sequence[Sequence[int]],
    place: dict[Value, int],
    in_place: Sequence[int],
    results: set[Value],
) -> set[Value]:
    """What loops begin with, and nothing else reads later, that they give as results: it lies in their memory."""
    last = {value: node for node, read in enumerate(reads) for value in read}
    values = list(place)
    return {
        values[in_place[place[result]]]
        for node, eqn in enumerate(own)
        if eqn.op.regions()
        for result in eqn.results
        if result in results and in_place[place[result]] >= 0 and last[in_place[place[result]]] == node
    }


class Regions:
    """What kernels and the regions of equations take on a machine: found once, for all graphs that they stand in.

    Attributes:
        machine: where they run.
    """

    def __init__(self, machine: Machine, known: Iterable[tuple[Graph, Run]] = ()) -> None:
        """Of some regions what they take is `known`."""
        self.machine = machine
        #: By the region's identity, which none other gets as long as it is here.
        self._runs = {id(region): (region, run) for region, run in known}
        self._times: dict[tuple[tuple[Equation, ...], tuple[Value, ...]], int] = {}

    def __iter__(self) -> Iterator[tuple[Graph, Run]]:
        """All regions of which it is known what they take."""
        return iter(self._runs.values())

    def peak(self, eqn: Equation) -> int:
        """Bytes; of a loop those of one step."""
        return max([self._of(region).peak for region in eqn.op.regions()], default=0)

    def time(self, cluster: Sequence[Equation], read: Sequence[Value]) -> int:
        """Nanoseconds of a kernel; of a loop of unknown length those of one step, of branches those of the dearest."""
        op = cluster[-1].op
        times = [self._of(region).time for region in op.regions()]
        if not times:
            kernel = tuple(cluster), tuple(read)
            if kernel not in self._times:
                self._times[kernel] = _time(self.machine, cluster, read)
            return self._times[kernel]
        if isinstance(op, Scan):
            return op.length * sum(times)
        return max(times) if isinstance(op, Case) else sum(times)

    def _of(self, region: Graph) -> Run:
        if id(region) not in self._runs:
            self._runs[id(region)] = region, simulate(self.translation(_in_one(region)).problem)
        return self._runs[id(region)][1]

    def translation(self, graph: Graph) -> Translation:
        """A graph's, without its barriers."""
        plain, held = _without_barriers(graph)
        return _translate(plain, self, held=held)
