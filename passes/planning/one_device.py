"""What one of several devices runs of a program, as far as memory goes: its part of each value, and collectives.

Before:  %0: f32[64,512] = dot_general %x, %w            on eight devices, rows of %x and of %w spread along "data"
After:   %1: f32[256,512] = device_gather %w   %0: f32[8,512] = dot_general %x, %1

It is for analyses that count bytes: values have the shapes of one device's parts, and nothing checks what ops say of
shapes. An operand is gathered along the axes along which it is spread and the result is not; where what is summed over
is spread, the sums of all devices are added up, and where the largest is looked for, the largest of all is taken. (How
XLA partitions: Xu et al., "GSPMD: general and scalable parallelization for ML computation graphs", 2021, section 3.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rematc.ir.core import Equation, Graph, Op
from rematc.ir.ops.case.op import Case
from rematc.ir.ops.devices import DeviceExtremum, DeviceGather, DeviceSum
from rematc.ir.ops.placement import Placement
from rematc.ir.ops.reduction import Extremum, ReduceMax, Reduction
from rematc.ir.ops.scan.op import Scan
from rematc.ir.ops.shape import BroadcastInDim, Reshape, Slice
from rematc.ir.ops.while_.op import While
from rematc.ir.values import Value
from rematc.passes.planning.shards import Axes, Shards


def on_one_device(graph: Graph, shards: Shards) -> tuple[Graph, Mapping[Value, Value]]:
    """What one device runs of a flat graph; the graph itself where each device has all of everything.

    Beside it, for the parts of values, the values of the graph. Of values of which `shards` knows nothing it learns how
    they are spread.
    """
    if shards.is_whole:
        return graph, {}
    shards.follow(graph)
    of = _OneDevice(shards)
    return of.graph(graph), {part: value for value, part in of.parts.items()}


class _OneDevice:
    """One device, graph by graph.

    Attributes:
        parts: what it holds of each value.
    """

    def __init__(self, shards: Shards) -> None:
        self.parts: dict[Value, Value] = {}
        self._shards = shards
        #: Of the graph, operands by how an op reads them that does not read them as they lie.
        self._gathered: dict[tuple[Value, Axes], Value] = {}
        self._equations: list[Equation] = []

    def graph(self, graph: Graph) -> Graph:
        """A graph, or a region."""
        around = self._equations, self._gathered
        self._equations, self._gathered = [], {}
        params = tuple(map(self._part, graph.params))
        for eqn in graph.equations:
            self._take(eqn)
        found = Graph(graph.name, params, tuple(self._equations), tuple(map(self._part, graph.results)))
        self._equations, self._gathered = around
        return found

    def _part(self, value: Value) -> Value:
        """What one device holds of a value."""
        if value not in self.parts:
            type = self._shards.type(value)
            self.parts[value] = value if type == value.type else Value(type, value.name)
        return self.parts[value]

    def _take(self, eqn: Equation) -> None:
        op, lying, summed = eqn.op, [self._shards.axes(value) for value in eqn.operands], tuple[str, ...]()
        if isinstance(op, Placement):
            pairs = zip(lying[0], self._shards.axes(eqn.results[0]), strict=True)
            lying = [tuple([tuple([axis for axis in row if axis in after]) for row, after in pairs])]
        elif op.is_product or op.is_elementwise or isinstance(op, Reduction):
            lying, summed = self._shards.read(eqn)
        operands = tuple([self._read(value, axes, eqn) for value, axes in zip(eqn.operands, lying, strict=True)])
        if isinstance(op, Placement) and operands[0].type == self._shards.type(eqn.results[0]):
            self.parts[eqn.results[0]] = operands[0]  # it lies there
            return
        results = tuple(map(self._part, eqn.results))
        given = results
        if summed:
            rows = [tuple([axis for axis in row if axis not in summed]) for row in self._shards.axes(eqn.results[0])]
            given = (Value(self._shards.local(eqn.results[0].type, rows)),)
        self._equations.append(Equation(self._with_parts(op, given), operands, given, eqn.loc))
        if summed:
            self._reduce(given[0], results[0], summed, eqn)

    def _reduce(self, term: Value, result: Value, over: Sequence[str], eqn: Equation) -> None:
        """The sum, or extremum, over devices; of one spread along the same axes each device takes its part."""
        is_cut = term.type != result.type
        total = Value(term.type) if is_cut else result
        along = self._shards.along(over)
        is_max = isinstance(eqn.op, ReduceMax)
        op = DeviceExtremum(*along, is_max) if isinstance(eqn.op, Extremum) else DeviceSum(*along)
        self._equations.append(Equation(op, (term,), (total,), eqn.loc))
        if is_cut:
            shape = result.type.shape
            cut = Slice((0,) * len(shape), shape, (1,) * len(shape))
            self._equations.append(Equation(cut, (total,), (result,), eqn.loc))

    def _read(self, value: Value, axes: Axes, eqn: Equation) -> Value:
        """A value as an op reads it, spread along no more than these axes: it is gathered once for all that do."""
        own, found = self._shards.axes(value), self._gathered.get((value, axes))
        if found is not None:
            return found
        found = self._part(value)
        for d, (along, kept) in enumerate(zip(own, axes, strict=True)):
            lost = [axis for axis in along if axis not in kept]
            if lost:
                gather = DeviceGather(*self._shards.along(lost), d, is_tiled=True)
                shape = [size * (math.prod(gather.sizes) if at == d else 1) for at, size in enumerate(found.type.shape)]
                whole = Value(found.type.with_shape(tuple(shape)))
                self._equations.append(Equation(gather, (found,), (whole,), eqn.loc))
                found = whole
        self._gathered[value, axes] = found
        return found

    def _with_parts(self, op: Op, results: Sequence[Value]) -> Op:
        """An op that says what shape its result has, or runs regions, with those of one device."""
        match op:
            case BroadcastInDim() | Reshape():
                return replace(op, shape=results[0].type.shape)
            case Scan():
                return replace(op, body=self.graph(op.body))
            case While():
                return replace(op, cond=self.graph(op.cond), body=self.graph(op.body))
            case Case():
                return replace(op, branches=tuple(map(self.graph, op.branches)))
        return op
