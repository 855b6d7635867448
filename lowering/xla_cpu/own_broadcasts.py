"""Arrays that only repeat a smaller one, which XLA:CPU would write for several kernels, are repeated in each of them.

Before:  %1 = broadcast_in_dim %s        After:  %7, %8 = optimization_barrier %s, %s
         %3 = multiply %2, %1                    %3 = multiply %2, broadcast_in_dim %7   %4 = reduce_max %3
         %4 = reduce_max %3                      %6 = multiply %5, broadcast_in_dim %8
         %6 = multiply %5, %1

A library that reduces computes with it only what nothing else reads: of a number that all layers of a network multiply
their scores by, XLA writes an array as large as the scores, before the first layer, and holds it to the last one. XLA
merges equal arrays, but not what two results of a barrier are repeated to. Zeros that something is scattered into have
to be written, but not from the beginning: behind a barrier with what is scattered they wait for that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rematc.ir.core import Equation, Graph
from rematc.ir.ops.dot import DotGeneral
from rematc.ir.ops.indexing import Scattering
from rematc.ir.ops.reduction import Reduction
from rematc.ir.ops.shape import BroadcastInDim, Reshape
from rematc.ir.ops.special import Erfc
from rematc.ir.ops.structural import Constant, OptimizationBarrier
from rematc.ir.values import Value
from rematc.lowering.xla_cpu.buffers import Placement
from rematc.lowering.xla_cpu.instructions import Instruction, Kind

#: What is less than this part of the peak all together is left as it is.
_PART = 128
#: So many steps element by element may be between a product and the reduction behind it: a scale, a mask.
_STEPS = 3
#: The simple numbers in the arithmetic that XLA expands `erfc` to.
_OF_ERFC = (0.0, 1.0, 2.0)


def with_own_broadcasts(graph: Graph, placed: Placement) -> Graph:
    """The graph, after the passes, in which they are; the graph itself where none is written.

    Args:
        graph: a program.
        placed: its buffers.
    """
    written = [one for one in placed.program.instructions if one.name == "broadcast_in_dim" and one.is_written]
    least = _least([owner.size for owner in written], placed.peak // _PART)
    producer = {value: index for index, eqn in enumerate(graph.equations) for value in eqn.results}
    owns = _Owns(graph, producer)
    for owner in written:
        if owner.size >= least:
            for user in owner.users:
                for value in placed.values(user):
                    if value in producer:
                        owns.give(producer[value], user, owner)
    owns.give_beside_expansions(placed, least)
    owns.give_to_scaled_products(least)
    return owns.graph()


def _least(sizes: Sequence[int], left: int) -> int:
    """So many bytes that all smaller ones of these sizes are together at most what may be left."""
    for size in sorted(sizes):
        left -= size
        if left < 0:
            return max(1, size)
    return 1 + max(sizes, default=0)


class _Owns:
    """The equations that are to have arrays of their own."""

    def __init__(self, graph: Graph, producer: dict[Value, int]) -> None:
        self._graph = graph
        self._producer = producer
        #: For what is repeated, by whom: the group that a library evaluates together, and the equations in it.
        self._groups: dict[Value, dict[Instruction | int, list[int]]] = {}
        self._scattering: set[int] = set()

    def give(self, at: int, user: Instruction, owner: Instruction) -> None:
        """Give an equation an array of its own in the place of one that is written, if it has a part in that."""
        eqn = self._graph.equations[at]
        if user.group is not None:
            for operand in eqn.operands:
                repeat = self._repeat(operand)
                if repeat is not None and operand.type.size == owner.elements:
                    self._add(repeat, user.group.root or user, at)
        elif user.kind is Kind.OPAQUE and isinstance(eqn.op, Scattering) and self._repeat(eqn.operands[0]) is not None:
            self._scattering.add(at)

    def give_beside_expansions(self, placed: Placement, least: int) -> None:
        """Give what a library evaluates a number of its own where XLA has the same one, as often, for an `erfc`.

        XLA expands that to arithmetic with these numbers before it merges equal arrays.
        """
        expanded = {eqn.operands[0].type.size for eqn in self._graph.equations if isinstance(eqn.op, Erfc)}
        if not expanded:
            return
        for user in placed.program.instructions:
            if user.group is None:
                continue
            for value in placed.values(user):
                at = self._producer.get(value)
                for operand in () if at is None else self._graph.equations[at].operands:
                    repeat = self._repeat(operand)
                    if repeat is None or operand.type.size not in expanded or operand.type.bytes < least:
                        continue
                    if self._number(repeat.operands[0]) in _OF_ERFC and at is not None:
                        self._add(repeat, user.group.root or user, at)

    def _add(self, repeat: Equation, group: Instruction | int, at: int) -> None:
        """An equation of a group gets its own name of what is repeated."""
        self._groups.setdefault(repeat.operands[0], {}).setdefault(group, []).append(at)

    def _number(self, value: Value) -> float | None:
        eqn = self._graph.equations[self._producer[value]] if value in self._producer else None
        if eqn is None or not isinstance(eqn.op, Constant) or value.type.size != 1 or not value.type.dtype.is_float:
            return None
        return float(eqn.op.array.item())

    def give_to_scaled_products(self, least: int) -> None:
        """Give each equation that scales a product by a number, repeated to so many bytes or more, an array of its own.

        A library may evaluate it with the reductions of a softmax behind it. That is not always predicted, and an array
        of its own costs nothing.
        """
        equations = self._graph.equations
        readers: dict[Value, list[Equation]] = {}
        for eqn in equations:
            for value in eqn.operands:
                readers.setdefault(value, []).append(eqn)
        known = {at for groups in self._groups.values() for row in groups.values() for at in row}
        for at, eqn in enumerate(equations):
            if at in known or not any(self._is_product(operand) for operand in eqn.operands):
                continue
            if not _is_reduced(eqn, readers):
                continue
            for operand in eqn.operands:
                repeat = self._repeat(operand) if operand.type.bytes >= least else None
                if repeat is not None and repeat.operands[0].type.size == 1 and len(readers[operand]) > 1:
                    self._add(repeat, at, at)

    def _is_product(self, value: Value) -> bool:
        while value in self._producer:
            eqn = self._graph.equations[self._producer[value]]
            if not isinstance(eqn.op, Reshape):
                return isinstance(eqn.op, DotGeneral)
            (value,) = eqn.operands
        return False

    def _repeat(self, value: Value) -> Equation | None:
        eqn = self._graph.equations[self._producer[value]] if value in self._producer else None
        return eqn if eqn is not None and isinstance(eqn.op, BroadcastInDim) else None

    def graph(self) -> Graph:
        """The graph in which they have; the graph itself where there are none."""
        if not self._groups and not self._scattering:
            return self._graph
        equations: list[Equation] = []
        # For each equation in a group, by what is repeated for it, its own name of that.
        own: dict[tuple[int, Value], Value] = {}
        for source in [param for param in self._graph.params if param in self._groups]:
            self._name(source, equations, own)
        for index, given in enumerate(self._graph.equations):
            eqn = self._late(given, equations) if index in self._scattering else given
            operands = [self._repeated(index, operand, own, equations) for operand in eqn.operands]
            equations.append(replace(eqn, operands=tuple(operands)))
            for result in eqn.results:
                if result in self._groups:
                    self._name(result, equations, own)
        return replace(self._graph, equations=tuple(equations))

    def _name(self, source: Value, equations: list[Equation], own: dict[tuple[int, Value], Value]) -> None:
        groups: Sequence[Sequence[int]] = list(self._groups[source].values())
        names = tuple([Value(source.type) for _ in groups])
        loc = self._graph.equations[groups[0][0]].loc
        equations.append(Equation(OptimizationBarrier(), (source,) * len(groups), names, loc))
        own.update({(index, source): name for name, row in zip(names, groups, strict=True) for index in row})

    def _repeated(
        self, index: int, operand: Value, own: dict[tuple[int, Value], Value], equations: list[Equation]
    ) -> Value:
        repeat = self._repeat(operand)
        name = None if repeat is None else own.get((index, repeat.operands[0]))
        if repeat is None or name is None:
            return operand
        result = Value(operand.type)
        equations.append(Equation(repeat.op, (name,), (result,), repeat.loc))
        return result

    def _late(self, eqn: Equation, equations: list[Equation]) -> Equation:
        """A scattering whose array is written when there is something to scatter."""
        into, updates = eqn.operands[0], eqn.operands[-1]
        repeat = self._repeat(into)
        assert repeat is not None, "it has been looked at"
        (source,) = repeat.operands
        waited, late, result = Value(source.type), Value(updates.type), Value(into.type)
        equations.append(Equation(OptimizationBarrier(), (source, updates), (waited, late), eqn.loc))
        equations.append(Equation(repeat.op, (waited,), (result,), repeat.loc))
        return replace(eqn, operands=(result, *eqn.operands[1:-1], late))


def _is_reduced(eqn: Equation, readers: Mapping[Value, Sequence[Equation]]) -> bool:
    """Whether what an equation gives is reduced a few steps later."""
    reached = [eqn]
    for _ in range(_STEPS):
        reached = [reader for one in reached for value in one.results for reader in readers.get(value, ())]
        if any(isinstance(one.op, Reduction) for one in reached):
            return True
        reached = [one for one in dict.fromkeys(reached) if one.op.is_fusible]
    return False
