"""Graphs with values of one device beside whole ones, evaluated for all devices of a mesh, step by step."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rematc.ir.core import Equation, Graph
from rematc.ir.ops.case.op import Case
from rematc.ir.ops.collective import AxisIndex
from rematc.ir.ops.devices import DeviceCollective, DeviceExtremum, DeviceScatter, DeviceSum
from rematc.ir.ops.mapped import FullToShard, Manual, ShardToFull, Spec
from rematc.ir.ops.regions import Call, Checkpoint
from rematc.ir.ops.scan.op import Scan
from rematc.ir.ops.while_.op import While
from rematc.ir.values import Array, Value

Place = tuple[int, ...]


@dataclass
class Mesh:
    """Devices that compute in step; a value is one array, or one for each of them.

    Attributes:
        where: the mesh.
    """

    where: Manual
    places: list[Place] = field(init=False)

    def __post_init__(self) -> None:
        self.places = list(itertools.product(*map(range, self.where.sizes)))

    def evaluate(self, graph: Graph, operands: Sequence[Any]) -> list[Any]:
        """The results of a graph, each one array, or a list of one for each device."""
        known = dict(zip(graph.params, operands, strict=True))
        for eqn in graph.equations:
            known.update(zip(eqn.results, self._equation(eqn, [known[value] for value in eqn.operands]), strict=True))
        return [known[value] for value in graph.results]

    def _equation(self, eqn: Equation, operands: list[Any]) -> list[Any]:
        op = eqn.op
        if isinstance(op, ShardToFull | DeviceCollective) and not isinstance(operands[0], list):
            operands = [[operands[0]] * len(self.places)]  # such as constants, which all have alike
        if isinstance(op, FullToShard):
            return [[operands[0][self._window(op.spec, eqn.results[0], place)] for place in self.places]]
        if isinstance(op, ShardToFull):
            whole = np.zeros(eqn.results[0].type.shape, eqn.results[0].type.dtype.numpy)
            for place, part in zip(self.places, operands[0], strict=True):
                whole[self._window(op.spec, eqn.operands[0], place)] = part
            return [whole]
        if isinstance(op, AxisIndex):
            axis = self.where.axes.index(op.axis)
            return [[np.asarray(place[axis], np.int32) for place in self.places]]
        if isinstance(op, Call | Checkpoint):
            return self.evaluate(op.body, operands)
        if isinstance(op, Scan | While | Case) and not any(isinstance(operand, list) for operand in operands):
            return self._control(op, operands)
        if isinstance(op, DeviceCollective):
            return [self._together(op, operands[0])]
        if not any(isinstance(operand, list) for operand in operands):
            return list(op.reference(operands))
        each = [
            op.reference([operand[index] if isinstance(operand, list) else operand for operand in operands])
            for index in range(len(self.places))
        ]
        return [list(parts) for parts in zip(*each, strict=True)]

    def _control(self, op: Scan | While | Case, operands: list[Any]) -> list[Any]:
        """A loop or branch of whole values, which may have borders inside."""
        if isinstance(op, Case):
            index, last = int(operands[0]), len(op.branches) - 1
            return self.evaluate(op.branches[index if 0 <= index <= last else last], operands[1:])
        if isinstance(op, While):
            cond_consts, body_consts, carry = op.parts(operands)
            while self.evaluate(op.cond, [*cond_consts, *carry])[0]:
                carry = tuple(self.evaluate(op.body, [*body_consts, *carry]))
            return list(carry)
        consts, carry, xs = op.parts(operands)
        types = op.body.result_types[op.carry :]
        stacks = [np.zeros((op.length, *type.shape), type.dtype.numpy) for type in types]
        steps = range(op.length)
        for step in reversed(steps) if op.is_reversed else steps:
            results = self.evaluate(op.body, [*consts, *carry, *[np.asarray(x[step]) for x in xs]])
            carry = tuple(results[: op.carry])
            for stack, y in zip(stacks, results[op.carry :], strict=True):
                stack[step] = y
        return [*carry, *stacks]

    def _window(self, spec: Spec, part: Value, place: Place) -> tuple[slice, ...]:
        found = []
        for row, size in zip(spec, part.type.shape, strict=True):
            number = self._number(row, place)
            found.append(slice(number * size, (number + 1) * size))
        return tuple(found)

    def _number(self, axes: Sequence[str], place: Place) -> int:
        """That of a device along these axes, the first of which are the major ones."""
        number = 0
        for axis in axes:
            number = number * self.where.size((axis,)) + place[self.where.axes.index(axis)]
        return number

    def _together(self, op: DeviceCollective, parts: list[Array]) -> list[Array]:
        kept = [index for index, axis in enumerate(self.where.axes) if axis not in op.over]
        combine: Any = np.add
        if isinstance(op, DeviceExtremum):
            combine = np.maximum if op.is_max else np.minimum
        found = []
        for place in self.places:
            group = [
                part
                for other, part in zip(self.places, parts, strict=True)
                if [other[index] for index in kept] == [place[index] for index in kept]
            ]
            total = np.asarray(combine.reduce(group)).astype(group[0].dtype)
            if isinstance(op, DeviceScatter):
                total = np.split(total, op.count, op.dimension)[self._number(op.over, place)]
            else:
                assert isinstance(op, DeviceSum | DeviceExtremum), "what parts of values need"
            found.append(total)
        return found
