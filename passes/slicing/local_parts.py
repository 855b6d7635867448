"""What each device computes of its parts of the values that are spread over several, so that slices are of these.

Before:  %0: f32[64,512] = dot_general %x, %w            on eight devices, rows of %x and of %w spread along "data"
After:   %1: f32[8,32] = full_to_shard %x {spec=[["data"],[]]}    %2: f32[512,32] = full_to_shard %w {spec=[[],[]]}
         %3: f32[8,512] = dot_general %1, %2    %0 = shard_to_full %3 {spec=[["data"],[]]}

A slice of the whole array would lie on some of the devices, and a sum over slices would be sent between them in each
step of the loop. A slice of each device's part lies where it is read; sums over slices stay on the device until the
loop is through. How an op acts along a spread dimension, its slicing says (`Op.slicings`): each device's part is one of
them. An op that has none for how its operands and results are spread stays as it is, for XLA to partition.

(Xu et al., "GSPMD: general and scalable parallelization for ML computation graphs", 2021, section 3.)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from rematc.ir.builder import Builder
from rematc.ir.core import Equation, Graph, Op
from rematc.ir.ops.case.op import Case
from rematc.ir.ops.collective import AxisIndex
from rematc.ir.ops.devices import DeviceExtremum, DeviceScatter, DeviceSum
from rematc.ir.ops.gather_scatter import clamped, fitting
from rematc.ir.ops.indexing import Gather
from rematc.ir.ops.mapped import FullToShard, Manual, ShardToFull
from rematc.ir.ops.placement import Placement
from rematc.ir.ops.reduction import ReduceMax
from rematc.ir.ops.regions import Call, Checkpoint
from rematc.ir.ops.scan.op import Scan
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.ir.ops.while_.op import While
from rematc.ir.slicings import Part
from rematc.ir.types import I32, I64, TensorType
from rematc.ir.values import Value
from rematc.passes.manual_computations import has_borders, shard_values
from rematc.passes.planning.shards import Axes, Shards, whole_axes
from rematc.passes.regions import RegionRewriter
from rematc.passes.slicing.axes import Kind, Way, gives_of, reads_of, ways_of
from rematc.passes.slicing.stages import Stages


class LocalParts:
    """A flat graph in which each device computes its parts, wherever the slicings of an op say how.

    Attributes:
        graph: it.
        where: the mesh, and the axes along which devices compute by themselves.
        written: for an equation of parts the equation of whole arrays for which it stands, maybe with others.
        standing: for an equation of whole arrays those that stand for it.
        spread: for a part the whole array, and how that is spread.
        remade: what gives constants, and the whole values of which parts are made where they are read, or lie as they
            are said to.
    """

    def __init__(self, graph: Graph, shards: Shards, where: Manual) -> None:
        """`graph` is forward and backward in one, `shards` how XLA spreads its values."""
        self.where = where
        self.written: dict[Equation, Equation] = {}
        self.standing: dict[Equation, list[Equation]] = {}
        self.spread: dict[Value, tuple[Value, Axes]] = {}
        self.remade: dict[Value, Equation] = {}
        self._shards = shards
        self._regions = RegionRewriter(self._whole_graph)
        self._functions: dict[int, tuple[Graph, _Function]] = {}  # by identity
        self.graph = self._whole_graph(graph)

    def _whole_graph(self, graph: Graph) -> Graph:
        """A graph of whole parameters and results."""
        own = _Local(self, graph, [whole_axes(param) for param in graph.params], is_of_parts=False)
        return own.b.build(*map(own.whole, graph.results))

    def function(self, graph: Graph) -> _Function:
        """A function's graph, whose parameters are parts, and whose results are, where they are computed so."""
        if id(graph) not in self._functions:
            given = [self.axes(param) for param in graph.params]
            own = _Local(self, graph, given, is_of_parts=True)
            gives = [own.specs.get(value) for value in graph.results]
            pairs = zip(graph.results, gives, strict=True)
            results = [own.whole(value) if spec is None else own.part(value, spec) for value, spec in pairs]
            self._functions[id(graph)] = graph, _Function(own.b.build(*results), given, gives)
        return self._functions[id(graph)][1]

    def axes(self, value: Value) -> Axes:
        """For each dimension of a value, by which of the axes it is spread; of parts of equal size alone."""
        rows = [tuple([axis for axis in row if axis in self.where.manual]) for row in self._shards.axes(value)]
        sizes = zip(rows, value.type.shape, strict=True)
        return tuple([row if size % self.where.size(row) == 0 else () for row, size in sizes])

    def with_regions(self, eqn: Equation) -> Equation:
        """An equation with what each device computes of its parts in loops and branches."""
        return self._regions.equation(eqn) if isinstance(eqn.op, Scan | While | Case) else eqn


@dataclass(frozen=True, slots=True)
class _Function:
    """Of parts: how its parameters are spread, and its results; None for those that are whole."""

    body: Graph
    given: Sequence[Axes]
    gives: Sequence[Axes | None]


class _Local:
    """Writes one graph.

    Attributes:
        b: what is written.
        specs: how the values are spread of which each device has computed its part.
    """

    def __init__(self, program: LocalParts, graph: Graph, given: Sequence[Axes], *, is_of_parts: bool) -> None:
        """Parameters are parts, and spread as is `given`, or whole."""
        self.b, self.specs = Builder(graph.name), dict[Value, Axes]()
        self._program, self._where = program, program.where
        self._stages = Stages(graph, cuts_whole=True)
        #: What the program itself says that each device computes.
        self._own: dict[Value, Value] = {}
        self._parts: dict[tuple[Value, Axes], Value] = {}
        self._is_whole = set[Value]()
        self._indices: dict[tuple[str, ...], Value] = {}
        for param, spec in zip(graph.params, given, strict=True):
            if is_of_parts:
                self._has_part(param, spec, self.b.parameter(self._local(param.type, spec), param.name))
            else:
                self.b.params.append(param)
                self._is_whole.add(param)
        for eqn in graph.equations:
            self._take(eqn)

    # -- values ---------------------------------------------------------------------------------------------------

    def whole(self, value: Value) -> Value:
        """A value whole, put together where it is first needed."""
        if value not in self._is_whole:
            placement = self._program.remade.get(value)
            if placement is None or not isinstance(placement.op, Placement):
                spec = self.specs[value]
                border = ShardToFull.at(self._where, spec)
                self.b.append(Equation(border, (self._parts[value, spec],), (value,), self.b.loc))
            else:
                self.whole(placement.operands[0])
                self.b.append(placement)
            self._is_whole.add(value)
        return value

    def part(self, value: Value, spec: Axes) -> Value:
        """What each device has of a value that is spread so: made there of less, where it can be."""
        if (value, spec) in self._parts:
            return self._parts[value, spec]
        producer = self._stages.producer.get(value)
        if not any(spec) and producer is not None and not producer.operands:
            return self.whole(value)  # such as constants, which are on each device
        found = self._made_of_less(value, spec)
        if found is None:
            found = self.b.emit1(FullToShard.at(self._where, spec), self.whole(value))
        self._parts[value, spec] = found
        self._program.spread[found] = value, spec
        return found

    def _made_of_less(self, value: Value, spec: Axes) -> Value | None:
        found = [(row, self._stages.made_of_less(value, d)) for d, row in enumerate(spec) if row]
        ways = [Way(axes, slicing) for axes, slicing in found if slicing is not None]
        if not ways or len(ways) < len(found):
            return None
        eqn = self._stages.producer[value]
        cut = self._cut_by(eqn, ways)
        if cut is None:
            return None
        operands = [self.part(one, spec) for one, spec in zip(eqn.operands, reads_of(eqn, ways), strict=True)]
        (result,) = cut[0].part(self.b, self._part_of(cut[1]), operands)
        self._program.remade[value] = eqn
        return result

    def _has_part(self, value: Value, spec: Axes, part: Value) -> None:
        self.specs[value], self._parts[value, spec] = spec, part
        self._program.spread.setdefault(part, (value, spec))

    def _part_of(self, way: Way) -> Part:
        return Part(way.slicing, self._where.size(way.axes), self._index(way.axes))

    def _index(self, axes: tuple[str, ...]) -> Value:
        """The number of a device along axes of the mesh, the first of which is the major one."""
        if axes not in self._indices:
            *major, last = axes
            found = self.b.emit1(AxisIndex(last, self._where.size((last,))))
            if major:
                count = self.b.full(found.type, self._where.size((last,)))
                found = self.b.add(self.b.multiply(self._index(tuple(major)), count), found)
            self._indices[axes] = found
        return self._indices[axes]

    def _local(self, type: TensorType, spec: Axes) -> TensorType:
        return type.with_shape(tuple([n // self._where.size(row) for n, row in zip(type.shape, spec, strict=True)]))

    # -- equations ------------------------------------------------------------------------------------------------

    def _take(self, eqn: Equation) -> None:
        """Write an equation: of each device's parts, or as it is."""
        self.b.loc = eqn.loc
        if self._is_own(eqn):
            return
        if isinstance(eqn.op, Call | Checkpoint):
            self._function(eqn)
        elif isinstance(eqn.op, Placement) and eqn.op.dimensions:
            spec = self._program.axes(eqn.results[0])
            self._has_part(eqn.results[0], spec, self.part(eqn.operands[0], spec))
            self._program.remade[eqn.results[0]] = eqn
        elif not (self._is_alike(eqn) or self._in_parts(eqn)):
            for value in eqn.operands:
                self.whole(value)
            self.b.append(self._program.with_regions(eqn))
            self._is_whole.update(eqn.results)
            if not (eqn.operands or eqn.op.effect):
                self._program.remade.update(dict.fromkeys(eqn.results, eqn))

    def _is_own(self, eqn: Equation) -> bool:
        """Whether the program itself says what each device computes there, as in `shard_map`: it is as it says."""
        op = eqn.op
        if isinstance(op, FullToShard):
            self._own[eqn.results[0]] = self.part(eqn.operands[0], op.spec)
        elif isinstance(op, ShardToFull):
            self._has_part(eqn.results[0], op.spec, self._own[eqn.operands[0]])
        elif isinstance(op, Call | Checkpoint) and (has_borders(op.body) or self._reads_own(eqn)):
            pairs = zip(op.body.params, eqn.operands, strict=True)
            local = shard_values(op.body, self._where, [param for param, value in pairs if value in self._own])
            self._append_own(eqn, [inner in local for inner in op.body.results])
        elif isinstance(op, OptimizationBarrier) and self._reads_own(eqn):
            self._append_own(eqn, [value in self._own for value in eqn.operands])
        elif self._reads_own(eqn) or not op.axes.isdisjoint(self._where.manual):
            self._append_own(eqn, [True] * len(eqn.results))
        else:
            return False
        return True

    def _reads_own(self, eqn: Equation) -> bool:
        return not self._own.keys().isdisjoint(eqn.operands)

    def _append_own(self, eqn: Equation, is_own: Sequence[bool]) -> None:
        operands = tuple([self._own[value] if value in self._own else self.whole(value) for value in eqn.operands])
        self.b.append(eqn if operands == eqn.operands else replace(eqn, operands=operands))
        for value, is_part in zip(eqn.results, is_own, strict=True):
            if is_part:
                self._own[value] = value
            else:
                self._is_whole.add(value)

    @contextmanager
    def _standing_for(self, eqn: Equation) -> Iterator[None]:
        """What is written meanwhile stands for an equation of whole arrays."""
        first = len(self.b.equations)
        with self.b.apart():
            yield
        written = self.b.equations[first:]
        self._program.written.update(dict.fromkeys(written, eqn))
        self._program.standing[eqn] = written

    def _is_alike(self, eqn: Equation) -> bool:
        """Whether all devices compute the same of what each has of operands alike, such as a sum over all: they do."""
        if eqn.op.effect or eqn.op.is_opaque or eqn.op.regions():
            return False
        if not any(value in self.specs for value in eqn.operands):
            return False
        if any(any(self._program.axes(value)) for value in (*eqn.operands, *eqn.results)):
            return False
        operands = [self.part(value, whole_axes(value)) for value in eqn.operands]
        with self._standing_for(eqn):
            results = self.b.emit(eqn.op, *operands)
        for value, found in zip(eqn.results, results, strict=True):
            self._has_part(value, whole_axes(value), found)
        return True

    def _function(self, eqn: Equation) -> None:
        """A function, of parts inside and outside."""
        assert isinstance(eqn.op, Call | Checkpoint), "others do not run one graph on their operands"
        function = self._program.function(eqn.op.body)
        pairs = zip(eqn.operands, function.given, strict=True)
        operands = [self.part(value, spec) for value, spec in pairs]
        rows = list(zip(eqn.results, function.body.results, function.gives, strict=True))
        results = [value if spec is None else Value(inner.type, value.name) for value, inner, spec in rows]
        with self._standing_for(eqn):
            self.b.append(Equation(replace(eqn.op, body=function.body), tuple(operands), tuple(results), eqn.loc))
        for value, result, spec in zip(eqn.results, results, function.gives, strict=True):
            if spec is None:
                self._is_whole.add(value)
            else:
                self._has_part(value, spec, result)

    def _in_parts(self, eqn: Equation) -> bool:
        """Write what each device computes of its parts; not if the op does not go into so many."""
        ways = ways_of(eqn, self._program.axes)
        if ways is None:
            return False
        reads, gives = reads_of(eqn, ways), gives_of(eqn, ways)
        divided = zip((*eqn.operands, *eqn.results), (*reads, *gives), strict=True)
        is_so = gives == [self._program.axes(value) for value in eqn.results]
        if not (is_so and all(itertools.starmap(self._divides, divided))):
            return False
        cut = [way for way in ways if way.kind is Kind.PART]
        op, last = (self._cut_by(eqn, cut) or (None, None)) if cut else (eqn.op, None)
        if op is None:
            return False
        operands = [self.part(value, spec) for value, spec in zip(eqn.operands, reads, strict=True)]
        part = None if last is None else self._part_of(last)
        choices = [way for way in ways if way.kind is Kind.CHOICE]
        for way in choices:
            self._index(way.axes)  # which others read as well
        with self._standing_for(eqn):
            terms = self._terms(op, part, operands, choices)
            found = [
                self._combined(eqn.op, ways, self.b.convert(term, value.type.dtype))
                for value, term in zip(eqn.results, terms, strict=True)
            ]
        for value, spec, own in zip(eqn.results, gives, found, strict=True):
            self._has_part(value, spec, own)
        return True

    def _divides(self, value: Value, spec: Axes) -> bool:
        return all(size % self._where.size(row) == 0 for size, row in zip(value.type.shape, spec, strict=True))

    def _cut_by(self, eqn: Equation, ways: Sequence[Way]) -> tuple[Op, Way] | None:
        """The op as it is cut in all ways but one, which is beside it; None where it is no single op in any order."""
        for order in itertools.permutations(ways):
            op = self._cut_in_order(eqn, order)
            if op is not None:
                return op, order[-1]
        return None

    def _cut_in_order(self, eqn: Equation, ways: Sequence[Way]) -> Op | None:
        op, types = eqn.op, list(eqn.operand_types)
        for way, after in itertools.pairwise(ways):
            scratch = Builder()
            part = Part(way.slicing, self._where.size(way.axes), scratch.parameter(TensorType(I32, ())))
            pairs = zip(types, way.slicing.operands, strict=True)
            types = [type.with_shape(part.cut(type.shape, d)) for type, d in pairs]
            op.part(scratch, part, [scratch.parameter(type) for type in types])
            if len(scratch.equations) != 1:
                return None
            (one,) = scratch.equations
            op = one.op
            if after.slicing not in op.slicings(one.operand_types, one.result_types):
                return None
        return op

    def _terms(self, op: Op, part: Part | None, operands: Sequence[Value], choices: Sequence[Way]) -> tuple[Value, ...]:
        """What one device computes of its parts, or its term; zeros where it does not have what is chosen."""
        b = self.b
        if not choices:
            return b.emit(op, *operands) if part is None else op.part(b, part, operands)
        assert isinstance(op, Gather), "it chooses"
        ((way,), (x, indices)) = choices, operands
        dims, (d,) = op.dimension_numbers, op.dimension_numbers.start_index_map
        count, own = self._where.size(way.axes), x.type.shape[d]
        whole = tuple([size * count if at == d else size for at, size in enumerate(x.type.shape)])
        starts = b.convert(clamped(b, dims, whole, op.slice_sizes, indices), I64 if whole[d] > I32.greatest else I32)
        first = b.multiply(b.convert(self._index(way.axes), starts.type.dtype), b.full(starts.type.with_shape(()), own))
        starts = b.subtract(starts, b.broadcast_in_dim(first, starts.type.shape, ()))
        found = b.emit(op, x, starts) if part is None else op.part(b, part, (x, starts))
        sizes = tuple([min(size, extent) for size, extent in zip(op.slice_sizes, x.type.shape, strict=True)])
        return (b.select(fitting(b, dims, x.type.shape, sizes, starts), found[0], b.zeros(found[0].type)),)

    def _combined(self, op: Op, ways: Sequence[Way], term: Value) -> Value:
        """What devices have of a result that is the sum of their terms, or the largest of them."""
        for way in ways:
            along = way.axes, tuple([self._where.size((axis,)) for axis in way.axes])
            if way.kind is Kind.EXTREMUM:
                term = self.b.emit1(DeviceExtremum(*along, isinstance(op, ReduceMax)), term)
            elif way.scattered is not None:
                term = self.b.emit1(DeviceScatter(*along, way.scattered, is_tiled=True), term)
            elif way.slicing.is_sum:
                term = self.b.emit1(DeviceSum(*along), term)
        return term
