"""Narrowing: of arrays put together or multiplied, and then only read in slices, these are computed; in regions too.

Before:  %0: f32[4,3] = concatenate %x, %y {dimension=1}
         %1: f32[4,3] = multiply %0, %w
         %2: f32[4,1] = slice %1 {start=[0,0], limit=[4,1], strides=[1,1]}
         %3: f32[4,2] = slice %1 {start=[0,1], limit=[4,3], strides=[1,1]}
After:   %4: f32[4,1] = slice %w {start=[0,0], limit=[4,1], strides=[1,1]}
         %5: f32[4,1] = multiply %x, %4
         %6: f32[4,2] = slice %w {start=[0,1], limit=[4,3], strides=[1,1]}
         %7: f32[4,2] = multiply %y, %6

Why: a program that stacks arrays, computes with the stack and takes it apart has a derivative that does so the other
way round. XLA writes concatenations and padded arrays to memory where several kernels read them, as their code
branches; what is computed in slices is a part of the kernels that read it. Arrays whose slices overlap are left alone,
so that nothing is computed twice.

Of a product one slice is computed where it is larger than the slice of the factor, which is written: the logits of all
tokens but the last, as losses of language models read them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar

from rematc.ir.core import Equation, Graph, Op
from rematc.ir.facts import Storage
from rematc.ir.ops.dot import DotGeneral
from rematc.ir.ops.shape import BroadcastInDim, Concatenate, Pad, Slice
from rematc.ir.ops.structural import OptimizationBarrier
from rematc.ir.values import Value
from rematc.passes.dce import DeadCode
from rematc.passes.manager import Pass, register_pass
from rematc.passes.regions import RegionRewriter

#: A part of an array: for each dimension where it starts, and before which index it ends.
Box = tuple[tuple[int, int], ...]


@register_pass
@dataclass(frozen=True, slots=True)
class Narrow(Pass):
    """Compute the slices that are read of concatenations and padded arrays.

    Attributes:
        max_slices: of how many slices at most an array is computed; each has equations of its own.
    """

    name = "narrow"
    keeps_bits: ClassVar[bool] = False  # a product of fewer rows may be summed in another order
    max_slices: int = 8

    def run(self, graph: Graph) -> Graph:
        return _Narrowing(self.max_slices).graph(graph)


class _Narrowing:
    def __init__(self, max_slices: int) -> None:
        self._max_slices = max_slices
        self._regions = RegionRewriter(self.graph)

    def graph(self, graph: Graph) -> Graph:
        """The graph with slices in the place of what is only read in slices; the graph itself if nothing is."""
        ops = [self._regions.op(eqn.op) for eqn in graph.equations]
        narrowed = self._narrowed(graph)
        if not narrowed and all(op is eqn.op for op, eqn in zip(ops, graph.equations, strict=True)):
            return graph
        writer = _Writer(narrowed)
        for op, eqn in zip(ops, graph.equations, strict=True):
            writer.write(eqn if op is eqn.op else Equation(op, eqn.operands, eqn.results, eqn.loc))
        results = tuple([writer.current(value) for value in graph.results])
        new = Graph(graph.name, graph.params, tuple(writer.equations), results)
        return DeadCode().run(new) if narrowed else new  # broadcasts are made anew, smaller

    def _narrowed(self, graph: Graph) -> dict[Value, Sequence[Box]]:
        """The values to compute in slices, and in which: those that lead from joined arrays to slices."""
        if not any(_begins(eqn.op) for eqn in graph.equations):
            return {}
        found = self._only_read_in_slices(graph)
        joined: dict[Value, Sequence[Box]] = {}
        for eqn in graph.equations:
            if isinstance(eqn.op, OptimizationBarrier):
                pairs = zip(eqn.operands, eqn.results, strict=True)
                joined |= {value: found[value] for operand, value in pairs if operand in joined and value in found}
                continue
            value = eqn.results[0] if eqn.results else None
            if value in found and (_begins(eqn.op) or not joined.keys().isdisjoint(eqn.operands)):
                joined[value] = found[value]
        return joined

    def _only_read_in_slices(self, graph: Graph) -> dict[Value, Sequence[Box]]:
        found: dict[Value, Sequence[Box]] = {}
        read: dict[Value, set[Box]] = {}
        whole = set(graph.results)
        for eqn in reversed(graph.equations):
            if isinstance(eqn.op, OptimizationBarrier):
                for operand, value in zip(eqn.operands, eqn.results, strict=True):
                    if value not in whole and len(read.get(value, ())) == 1:
                        found[value] = tuple(read[value])
                        read.setdefault(operand, set()).update(read[value])
                    else:
                        whole.add(operand)
                continue
            is_whole = len(eqn.results) != 1 or eqn.results[0] in whole
            boxes = () if is_whole else sorted(read.get(eqn.results[0], ()))
            if isinstance(eqn.op, Slice) and _is_contiguous(eqn.op):
                read.setdefault(eqn.operands[0], set()).add(_box(eqn.op))
            elif len(boxes) <= self._max_slices and _is_sliceable(eqn, boxes) and _are_apart(boxes):
                found[eqn.results[0]] = boxes
                for box in boxes:
                    for operand, part in zip(eqn.operands, _sliced(eqn, box)[1], strict=True):
                        if part is not None:
                            read.setdefault(operand, set()).add(part)
            else:
                whole.update(eqn.operands)
        return found


class _Writer:
    """The equations of the new graph."""

    def __init__(self, narrowed: dict[Value, Sequence[Box]]) -> None:
        self.equations: list[Equation] = []
        self._narrowed = narrowed
        self._parts: dict[tuple[Value, Box], Value] = {}
        self._broadcasts: dict[Value, Equation] = {}
        self._env: dict[Value, Value] = {}
        self._written: dict[tuple[Op, tuple[Value, ...]], Value] = {}

    def current(self, value: Value) -> Value:
        """The value of the new graph that stands for one of the old."""
        return self._env.get(value, value)

    def write(self, eqn: Equation) -> None:
        """Write an equation, or what is needed of it."""
        if isinstance(eqn.op, OptimizationBarrier):
            self._write_barrier(eqn)
            return
        if len(eqn.results) == 1:
            if eqn.results[0] in self._narrowed:
                for box in self._narrowed[eqn.results[0]]:
                    self._parts[eqn.results[0], box] = self._slice_of(eqn, box)
                return
            if isinstance(eqn.op, Slice) and eqn.operands[0] in self._narrowed:
                self._env[eqn.results[0]] = self._parts[eqn.operands[0], _box(eqn.op)]
                return
            if isinstance(eqn.op, BroadcastInDim):
                self._broadcasts[eqn.results[0]] = eqn
        if not self._env.keys().isdisjoint(eqn.operands):
            operands = tuple([self.current(operand) for operand in eqn.operands])
            eqn = Equation(eqn.op, operands, eqn.results, eqn.loc)
        self.equations.append(eqn)

    def _write_barrier(self, eqn: Equation) -> None:
        """One that holds slices of what is computed so; each is read in one."""
        operands, results = [], []
        for operand, result in zip(eqn.operands, eqn.results, strict=True):
            if result in self._narrowed:
                (box,) = self._narrowed[result]
                operands.append(self._part(operand, box, eqn))
                results.append(Value(operands[-1].type, result.name))
                self._parts[result, box] = results[-1]
            else:
                operands.append(self.current(operand))
                results.append(result)
        self.equations.append(Equation(eqn.op, tuple(operands), tuple(results), eqn.loc))

    def _slice_of(self, eqn: Equation, box: Box) -> Value:
        """A slice of an equation's result, computed from slices of its operands."""
        op, boxes = _sliced(eqn, box)
        pairs = zip(eqn.operands, boxes, strict=True)
        parts = tuple([self._part(operand, part, eqn) for operand, part in pairs if part is not None])
        return parts[0] if op is None else self._emit(op, parts, eqn)

    def _part(self, value: Value, box: Box, reader: Equation) -> Value:
        """A slice of an operand; of a broadcast that stays for others, a broadcast of its own."""
        key = (value, box)
        if key not in self._parts:
            if box == _whole(value):
                return self.current(value)
            if value in self._broadcasts:
                self._parts[key] = self._slice_of(self._broadcasts[value], box)
            else:
                start, limit = zip(*box, strict=True)
                self._parts[key] = self._emit(Slice(start, limit, (1,) * len(box)), (self.current(value),), reader)
        return self._parts[key]

    def _emit(self, op: Op, operands: tuple[Value, ...], eqn: Equation) -> Value:
        found = self._written.get((op, operands))
        if found is None:
            (type,) = op.infer([operand.type for operand in operands])
            found = self._written[op, operands] = Value(type)
            self.equations.append(Equation(op, operands, (found,), eqn.loc))
        return found


def _box(op: Slice) -> Box:
    return tuple(zip(op.start, op.limit, strict=True))


def _whole(value: Value) -> Box:
    return tuple([(0, size) for size in value.type.shape])


def _is_contiguous(op: Slice) -> bool:
    return all(step == 1 for step in op.strides) and all(map(int.__lt__, op.start, op.limit))


def _are_apart(boxes: Sequence[Box]) -> bool:
    """Whether no element is in two of them; false where there are none."""
    return len(boxes) > 0 and all(
        any(first[1] <= second[0] or second[1] <= first[0] for first, second in zip(*pair, strict=True))
        for pair in combinations(boxes, 2)
    )


def _begins(op: Op) -> bool:
    """Whether slices are computed on from here: of what is put together, and of products."""
    return op.storage is Storage.FUSED_ONCE or isinstance(op, DotGeneral)


def _is_sliceable(eqn: Equation, boxes: Sequence[Box]) -> bool:
    match eqn.op:
        case Pad() as op:
            return not any(op.interior)
        case DotGeneral() as op:
            return len(boxes) == 1 and _takes_less(op, eqn, boxes[0])
    return eqn.op.is_elementwise or isinstance(eqn.op, (BroadcastInDim, Concatenate))


def _takes_less(op: DotGeneral, eqn: Equation, box: Box) -> bool:
    """Whether what is read of a product is more than the parts of its factors that are written for it."""
    parts = zip(eqn.operands, _of_product(op, eqn.operands, box), strict=True)
    written = [math.prod(end - begin for begin, end in part) for x, part in parts if part != _whole(x)]
    return 0 < sum(written) < math.prod(end - begin for begin, end in box)


def _sliced(eqn: Equation, box: Box) -> tuple[Op | None, list[Box | None]]:
    """An op that gives this slice of an equation's result, and the slices of the operands that it takes.

    Operands of which it takes none are None. So is the op, where the slice is that of the one operand.
    """
    match eqn.op:
        case Concatenate() as op:
            return _of_joined(op, eqn.operands, box)
        case Pad() as op:
            return _of_padded(op, eqn.operands[0], box)
        case BroadcastInDim() as op:
            return _of_broadcast(op, eqn.operands[0], box)
        case DotGeneral() as op:
            return op, [*_of_product(op, eqn.operands, box)]
        case op:
            return op, [box if operand.type.rank else () for operand in eqn.operands]


def _of_joined(op: Concatenate, operands: Sequence[Value], box: Box) -> tuple[Op | None, list[Box | None]]:
    boxes: list[Box | None] = []
    begin, end = box[op.dimension]
    for operand in operands:
        size = operand.type.shape[op.dimension]
        inside = (max(begin, 0), min(end, size))
        is_needed = inside[0] < inside[1]
        boxes.append((*box[: op.dimension], inside, *box[op.dimension + 1 :]) if is_needed else None)
        begin, end = begin - size, end - size
    return (op if sum(each is not None for each in boxes) > 1 else None), boxes


def _of_padded(op: Pad, x: Value, box: Box) -> tuple[Op | None, list[Box | None]]:
    shifted = [(begin - low, end - low) for (begin, end), low in zip(box, op.low, strict=True)]
    inside = tuple([(max(begin, 0), min(end, size)) for (begin, end), size in zip(shifted, x.type.shape, strict=True)])
    if any(begin >= end for begin, end in inside):
        return BroadcastInDim(tuple([end - begin for begin, end in box]), ()), [None, ()]
    low = tuple([begin - outer for (begin, _), (outer, _) in zip(inside, shifted, strict=True)])
    high = tuple([outer - end for (_, end), (_, outer) in zip(inside, shifted, strict=True)])
    if not any(low) and not any(high):
        return None, [inside, None]
    return Pad(low, high, op.interior), [inside, ()]


def _of_product(op: DotGeneral, operands: Sequence[Value], box: Box) -> list[Box]:
    """The parts of the factors; a result has dimensions of the batch, the rest of one, and the rest of the other."""
    parts = [[*_whole(x)] for x in operands]
    begin = len(op.batch[0])
    for side, part in enumerate(parts):
        rest = [d for d in range(len(part)) if d not in op.contract[side] and d not in op.batch[side]]
        for place, d in [*enumerate(op.batch[side]), *enumerate(rest, begin)]:
            part[d] = box[place]
        begin += len(rest)
    return [tuple(part) for part in parts]


def _of_broadcast(op: BroadcastInDim, x: Value, box: Box) -> tuple[Op | None, list[Box | None]]:
    sizes = zip(op.dimensions, x.type.shape, strict=True)
    inside = tuple([(0, 1) if size == 1 else box[dimension] for dimension, size in sizes])
    return BroadcastInDim(tuple([end - begin for begin, end in box]), op.dimensions), [inside]
