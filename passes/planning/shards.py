"""What one of several devices holds of each value of a program, and what its products send between devices.

    %0: f32[64,512] {"data"}, {}    on eight devices along "data": f32[8,512] each

Which dimension is spread along which axes of a mesh, the partitioner decides (`rematc.lowering.propagation` asks it).
What a plan puts beside that, as a loop that stacks carries, is spread as what it is computed from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rematc.ir.core import Equation, Graph
from rematc.ir.ops.case.op import Case
from rematc.ir.ops.devices import DeviceCollective
from rematc.ir.ops.mapped import Border, ShardToFull
from rematc.ir.ops.placement import Placement
from rematc.ir.ops.reduction import Reduction
from rematc.ir.ops.regions import Call, Checkpoint
from rematc.ir.ops.scan.op import Scan
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.ir.ops.while_.op import While
from rematc.ir.slicings import Slicing
from rematc.ir.types import TensorType
from rematc.ir.values import Value
from rematc.passes.planning.device import Device

#: For each dimension of a value the axes of the mesh along which it is spread.
Axes = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Sent:
    """What devices send each other for one product, for each device.

    Attributes:
        gathered: bytes of factors that are gathered before it, which are in memory while it runs.
        moved: bytes that go over the links: of gathered factors what is not there yet, of sums over devices all twice.
    """

    gathered: int = 0
    moved: int = 0


class Shards:
    """How the values of a program are spread over devices. A value of which nothing is known is whole on each."""

    def __init__(self, sizes: Mapping[str, int], axes: Mapping[Value, Axes]) -> None:
        """`sizes` are those of the mesh's axes, in devices; `axes` those of the values that somebody knows."""
        self._sizes, self._axes = dict(sizes), dict(axes)
        self._followed = set[int]()
        self._graphs: list[Graph] = []  # whose identities are those

    @property
    def is_whole(self) -> bool:
        """Whether every device holds all of everything."""
        return not self._sizes

    def axes(self, value: Value) -> Axes:
        """For each dimension of a value the axes along which it is spread."""
        return self._axes.get(value) or whole_axes(value)

    def type(self, value: Value) -> TensorType:
        """What one device holds of a value."""
        return value.type if self.is_whole else self.local(value.type, self.axes(value))

    def bytes(self, value: Value) -> int:
        """How many bytes of a value one device holds."""
        return self.type(value).bytes

    def flops(self, eqn: Equation) -> int:
        """Floating-point operations of an equation on one device."""
        if self.is_whole:
            return eqn.flops
        if isinstance(eqn.op, Scan):
            return eqn.op.length * sum(map(self.flops, eqn.op.body.equations))
        return eqn.op.flops(tuple(map(self.type, eqn.operands)), tuple(map(self.type, eqn.results)))

    def sent(self, eqn: Equation) -> Sent:
        """What devices send each other for a product: factors that do not lie as it reads them, and sums over them.

        For a collective what a ring of them sends.
        """
        if isinstance(eqn.op, DeviceCollective):
            return Sent(0, eqn.op.sent(eqn.operands[0].type.bytes))
        if self.is_whole or not eqn.op.is_product:
            return Sent()
        lying, summed = self.read(eqn)
        gathered = moved = 0
        for value, kept in zip(eqn.operands, lying, strict=True):
            if kept != self.axes(value):
                whole = self.local(value.type, kept).bytes
                gathered += whole
                moved += whole - self.bytes(value)
        if summed:
            count = self._devices(summed)
            moved += 2 * self.bytes(eqn.results[0]) * (count - 1) // count
        return Sent(gathered, moved)

    def read(self, eqn: Equation) -> tuple[list[Axes], tuple[str, ...]]:
        """How an op reads its operands, and the axes along which devices have terms of what it sums or reduces.

        An operand is spread along no axis that its result is not spread along as well, or that is reduced.
        """
        own = [self.axes(value) for value in eqn.operands]
        needed = [[set[str]() for _ in axes] for axes in own]
        summed = set[str]()
        slicings = own_slicings(eqn)
        if isinstance(eqn.op, Reduction) and all(slicing.results[0] is not None for slicing in slicings):
            # Of a maximum, say, which no slice of a loop adds up, devices have terms as well.
            slicings = (*slicings, *[Slicing((d,), (None,)) for d in eqn.op.dimensions])
        for slicing in slicings:
            of_result = slicing.results[0]
            cut = [(row, d) for row, d in enumerate(slicing.operands) if d is not None]
            common = set.intersection(*[set(own[row][d]) for row, d in cut]) if cut else set[str]()
            if of_result is None:
                summed |= common
            else:
                common = set(self.axes(eqn.results[0])[of_result])
            for row, d in cut:
                needed[row][d] |= common
        lying = [
            tuple([tuple([a for a in axes if a in use]) for axes, use in zip(each, dimensions, strict=True)])
            for each, dimensions in zip(own, needed, strict=True)
        ]
        return lying, tuple(sorted(summed))

    def follow(self, graph: Graph, given: Sequence[Axes] = ()) -> None:
        """Find how values of a graph are spread of which nothing is known: as what they are computed from.

        `given` are those of its first parameters.
        """
        if self.is_whole or id(graph) in self._followed:
            return
        for param, axes in zip(graph.params, given, strict=False):
            self._axes.setdefault(param, axes)
        self._followed.add(id(graph))
        self._graphs.append(graph)
        for eqn in graph.equations:
            found = self._of_regions(eqn) if eqn.op.regions() else None
            if all(value in self._axes for value in eqn.results):
                continue
            given = self._of_results(eqn) if found is None else found
            for value, axes in zip(eqn.results, given, strict=True):
                self._axes.setdefault(value, axes)

    def follow_both(self, forward: Graph, backward: Graph, residuals: int) -> None:
        """The same of a forward graph and of a backward one, whose first parameters are so many of its last results."""
        self.follow(forward)
        crossing = forward.results[len(forward.results) - residuals :]
        self.follow(backward, [self.axes(value) for value in crossing])

    def _of_results(self, eqn: Equation) -> list[Axes]:
        if isinstance(eqn.op, OptimizationBarrier):
            return [self.axes(value) for value in eqn.operands]
        said = self._said(eqn)
        if said is not None:
            return [said]
        found = [[list[str]() for _ in value.type.shape] for value in eqn.results]
        slicings = own_slicings(eqn)
        rows = sorted(range(len(eqn.operands)), key=lambda row: -eqn.operands[row].type.size)
        for row in rows:
            own = self.axes(eqn.operands[row])
            for slicing in slicings:
                d = slicing.operands[row]
                for dimensions, to in zip(found, slicing.results, strict=True):
                    if d is not None and to is not None:
                        taken = {axis for axes in dimensions for axis in axes}
                        dimensions[to] += [axis for axis in own[d] if axis not in taken]
        return [tuple(map(tuple, dimensions)) for dimensions in found]

    def _said(self, eqn: Equation) -> Axes | None:
        """How the result of an equation is spread that says so itself; None of others."""
        op = eqn.op
        if not isinstance(op, Border | Placement):
            return None
        own = self.axes(eqn.operands[0])
        if isinstance(op, Placement):
            self._sizes = {**op.sizes, **self._sizes}
            said = op.spread or (None,) * len(own)
            return tuple([given if row is None else row for row, given in zip(said, own, strict=True)])
        self._sizes = {**dict(zip(op.axes_of_mesh, op.sizes, strict=True)), **self._sizes}
        free = [tuple([axis for axis in row if axis not in op.manual]) for row in own]
        rows = op.spec if isinstance(op, ShardToFull) else [()] * len(free)
        return tuple([(*row, *others) for row, others in zip(rows, free, strict=True)])

    def _of_regions(self, eqn: Equation) -> list[Axes] | None:
        """The same, of an op that runs graphs, whose parameters are spread as what they are given; None of others."""
        own, op = [self.axes(value) for value in eqn.operands], eqn.op
        for region, given in of_params(eqn, own):
            for param, axes in zip(region.params, given, strict=True):
                self._axes.setdefault(param, axes)
            self.follow(region)
        if isinstance(op, Scan):
            inner = [self.axes(value) for value in op.body.results]
            return [*inner[: op.carry], *[((), *axes) for axes in inner[op.carry :]]]
        if isinstance(op, While | Case | Call | Checkpoint):
            return [self.axes(value) for value in op.regions()[-1].results]
        return None

    def along(self, axes: Sequence[str]) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """Axes of the mesh, and how many devices there are along each."""
        return tuple(axes), tuple([self._sizes[axis] for axis in axes])

    def local(self, type: TensorType, axes: Sequence[Sequence[str]]) -> TensorType:
        """What one device holds of a value that is spread along these axes."""
        pairs = zip(type.shape, axes, strict=True)
        return type.with_shape(tuple([-(-size // self._devices(along)) for size, along in pairs]))

    def _devices(self, axes: Sequence[str] | set[str]) -> int:
        return math.prod([self._sizes[axis] for axis in axes])


def own_slicings(eqn: Equation) -> tuple[Slicing, ...]:
    """Those of an op that has no effects, and no graphs of arrays to look into instead."""
    is_asked = not (eqn.op.effect or eqn.op.is_cut_inside)
    return eqn.op.slicings(eqn.operand_types, eqn.result_types) if is_asked else ()


def whole_axes(value: Value) -> Axes:
    """Those of a value that is spread along no dimension."""
    return ((),) * value.type.rank


#: Of a program on one device.
WHOLE = Shards({}, {})


@dataclass(frozen=True, slots=True)
class Machine:
    """What a program is planned for.

    Attributes:
        device: one of the devices that it runs on.
        shards: what that one holds of each value.
    """

    device: Device
    shards: Shards = WHOLE


def of_params(
    eqn: Equation, operands: Sequence[Axes], carries: Sequence[Axes] | None = None
) -> list[tuple[Graph, list[Axes]]]:
    """The graphs that an equation runs, and how their parameters are spread where its operands are spread so.

    The carries of a loop are spread as these, or as they are given before the first step. Of what runs on each device
    by itself there are no graphs.
    """
    op = eqn.op
    if isinstance(op, Scan):
        parts = op.parts(operands)
        return [(op.body, [*parts.consts, *(carries or parts.carry), *[axes[1:] for axes in parts.xs]])]
    if isinstance(op, While):
        cond, body, carry = op.parts(operands)
        return [(op.cond, [*cond, *(carries or carry)]), (op.body, [*body, *(carries or carry)])]
    if isinstance(op, Case):
        return [(region, list(operands[1:])) for region in op.regions()]
    if isinstance(op, Call | Checkpoint):
        return [(op.body, list(operands))]
    return []
