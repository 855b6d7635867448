"""Elementwise work on products in the shape that libraries write them in.

Before:  %0: f32[8,1024,512] = dot_general %x, %w   %1: f32[8,1024,512] = tanh %0
After:   %0: f32[8,1024,512] = dot_general %x, %w   %2: f32[8192,512] = reshape %0   %3: f32[8192,512] = tanh %2
         %1: f32[8,1024,512] = reshape %3           for who reads %1 otherwise

XLA multiplies matrices: a product of more dimensions is written as one, and reshaped. What is computed of it element by
element could be written in its place, but XLA sees through no reshape there, and takes as much memory again; of the
logits of a head that is as much as there is. XLA drops the reshape that follows its own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from rematc.ir.core import Equation, Graph, Op, has_regions
from rematc.ir.facts import Storage
from rematc.ir.locations import Location
from rematc.ir.ops.dot import DotGeneral
from rematc.ir.ops.reduction import Reduction
from rematc.ir.ops.shape import BroadcastInDim, Reshape
from rematc.ir.ops.structural import Iota, Name, OptimizationBarrier, StopGradient
from rematc.ir.traversal import all_equations
from rematc.ir.types import TensorType
from rematc.ir.values import Value
from rematc.passes.legalize.rules import MOST_IN_PLACE
from rematc.passes.regions import RegionRewriter

#: How many dimensions, one after the other, each dimension of the flat shape stands for.
_Groups = tuple[int, ...]


class Flattening:
    """Rewrites graphs, and their regions.

    Attributes:
        origins: what is computed flat, and the value of the graph before that it is.
    """

    def __init__(self) -> None:
        self._regions = RegionRewriter(self._rewritten)
        self.origins: dict[Value, Value] = {}

    def graph(self, graph: Graph) -> Graph:
        """The graph with its elementwise work on products flat; the graph itself where there is none."""
        may_join = DotGeneral in graph.op_types and any(map(_is_joined, all_equations(graph)))
        return self._rewritten(graph) if may_join else graph

    def _rewritten(self, graph: Graph) -> Graph:
        rewriting = _Rewriting(self._regions, self.origins)
        for eqn in graph.equations:
            rewriting.equation(eqn)
        results = tuple([rewriting.whole(value, None) for value in graph.results])
        return Graph(graph.name, graph.params, tuple(rewriting.equations), results) if rewriting.has_changed else graph


class _Rewriting:
    """One graph, as far as it is rewritten.

    What no kernel writes but its readers, a mask or a broadcast bias, is done once more in the shape of a product, if
    that takes few equations; what takes more is reshaped.

    Attributes:
        equations: the new ones.
        has_changed: whether they are others than before.
    """

    def __init__(self, regions: RegionRewriter, origins: dict[Value, Value]) -> None:
        self.equations: list[Equation] = []
        self.has_changed = False
        self._regions = regions
        self._origins = origins
        self._definitions: dict[Value, Equation] = {}
        self._groups: dict[Value, _Groups] = {}
        self._flat: dict[tuple[Value, _Groups], Value] = {}
        self._whole: dict[Value, Value] = {}
        self._unwritten: dict[Value, int] = {}

    def equation(self, eqn: Equation) -> None:
        """Add what an equation becomes."""
        if isinstance(eqn.op, OptimizationBarrier):
            self._barrier(eqn)
            return
        if self._groups.keys().isdisjoint(eqn.operands) and not has_regions(eqn.op):
            self._as_it_is(eqn)
            return
        groups = self._groups_of(eqn)
        if groups is not None and self._is_flat_op(eqn, groups):
            return
        op = self._regions.op(eqn.op)
        operands = tuple([self.whole(value, eqn.loc) for value in eqn.operands])
        is_same = op is eqn.op and all(new is old for new, old in zip(operands, eqn.operands, strict=True))
        self.has_changed |= not is_same
        self._as_it_is(eqn if is_same else Equation(op, operands, eqn.results, eqn.loc))

    def _as_it_is(self, eqn: Equation) -> None:
        self._append(eqn)
        if isinstance(eqn.op, DotGeneral):
            found = _groups_of_product(eqn.op, eqn)
            if found is not None:
                self._groups[eqn.results[0]] = found

    def whole(self, value: Value, loc: Location | None) -> Value:
        """A value in its own shape."""
        if value in self._definitions or value not in self._groups:
            return value
        if value not in self._whole:
            self._whole[value] = self._emit(Reshape(value.type.shape), (self._flat[value, self._groups[value]],), loc)
        return self._whole[value]

    def _groups_of(self, eqn: Equation) -> _Groups | None:
        """The shape in which an equation is computed, if it is flat."""
        if len(eqn.results) != 1:
            return None
        if isinstance(eqn.op, Reduction):
            return self._groups.get(eqn.operands[0])
        if not (eqn.op.is_elementwise or isinstance(eqn.op, (Name, StopGradient))):
            return None
        shape = eqn.results[0].type.shape
        found = (self._groups[value] for value in eqn.operands if value in self._groups and value.type.shape == shape)
        return next(found, None)

    def _is_flat_op(self, eqn: Equation, groups: _Groups) -> bool:
        """Compute an equation flat, if it can be."""
        (result,) = eqn.results
        op: Op = eqn.op
        left = groups
        if isinstance(op, Reduction):
            reduced = _reduced(op.dimensions, groups)
            if reduced is None:
                return False
            op = replace(op, dimensions=reduced)  # type: ignore[type-var]
            left = tuple([size for place, size in enumerate(groups) if place not in reduced])
        shape = eqn.operands[0].type.shape if isinstance(eqn.op, Reduction) else result.type.shape
        if not all(self._is_free(value, groups) for value in eqn.operands if value.type.shape == shape):
            return False
        operands = [
            self._flattened(value, groups, eqn.loc) if value.type.shape == shape else self.whole(value, eqn.loc)
            for value in eqn.operands
        ]
        flat = result
        if (shape := _shape(result.type.shape, left)) != result.type.shape:
            flat = Value(result.type.with_shape(shape), result.name)
            self._groups[result] = left
            self._flat[result, left] = flat
            self._origins[flat] = result
        self._append(Equation(op, tuple(operands), (flat,), eqn.loc))
        self.has_changed = True
        return True

    def _barrier(self, eqn: Equation) -> None:
        operands, results = [], []
        for value, result in zip(eqn.operands, eqn.results, strict=True):
            groups = self._groups.get(value)
            if groups is None:
                operands.append(value)
                results.append(result)
                continue
            operands.append(self._flattened(value, groups, eqn.loc))
            results.append(Value(operands[-1].type, result.name))
            self._groups[result], self._flat[result, groups] = groups, results[-1]
            self._origins[results[-1]] = result
            self.has_changed = True
        self.equations.append(Equation(eqn.op, tuple(operands), tuple(results), eqn.loc))

    def _flattened(self, value: Value, groups: _Groups, loc: Location | None) -> Value:
        key = value, groups
        if key not in self._flat:
            self._flat[key] = self._made(value, groups, loc)
        return self._flat[key]

    def _is_free(self, value: Value, groups: _Groups) -> bool:
        """Whether a value is flat, or can be without being written: what is fused into its readers stays so."""
        made = self._definitions.get(value)
        if (value, groups) in self._flat or made is None or value in self._groups:
            return True
        if value not in self._unwritten:
            return made.op.is_elementwise or made.op.storage is not Storage.FUSED
        if isinstance(made.op, Iota):
            return _place(made.op.dimension, groups)[1]
        if isinstance(made.op, BroadcastInDim):
            return _broadcast(made.op, made.operands[0].type.shape, groups) is not None
        return all(self._is_free(operand, groups) for operand in _alike(made))

    def _made(self, value: Value, groups: _Groups, loc: Location | None) -> Value:
        shape, made = _shape(value.type.shape, groups), self._definitions.get(value)
        if made is None or value not in self._unwritten or value in self._groups:
            return self._emit(Reshape(shape), (self.whole(value, loc),), loc)
        if isinstance(made.op, Iota):
            place, is_alone = _place(made.op.dimension, groups)
            if is_alone:
                return self._emit(Iota(made.op.type.with_shape(shape), place), (), made.loc)
        elif isinstance(made.op, BroadcastInDim):
            found = _broadcast(made.op, made.operands[0].type.shape, groups)
            if found is not None:
                operand, dimensions = made.operands[0], found
                small = tuple([shape[d] for d in dimensions])
                if operand.type.shape != small:
                    operand = self._reshaped(operand, small, loc)
                return self._emit(BroadcastInDim(shape, dimensions), (operand,), made.loc)
        else:
            alike = set(_alike(made))
            operands = [
                self._flattened(operand, groups, loc) if operand in alike else operand for operand in made.operands
            ]
            return self._emit(made.op, operands, made.loc, value.type.with_shape(shape))
        return self._emit(Reshape(shape), (self.whole(value, loc),), loc)

    def _reshaped(self, value: Value, shape: tuple[int, ...], loc: Location | None) -> Value:
        """A value in another shape, from its flat form where that has it."""
        made = self._definitions.get(value)
        if made is not None and isinstance(made.op, Reshape):
            (source,) = made.operands
            if source.type.shape == shape:
                return source
        return self._emit(Reshape(shape), (self.whole(value, loc),), loc)

    def _emit(self, op: Op, operands: Sequence[Value], loc: Location | None, type: TensorType | None = None) -> Value:
        result = Value(type or op.infer([value.type for value in operands])[0])
        self.has_changed = True
        self._append(Equation(op, tuple(operands), (result,), loc))
        return result

    def _append(self, eqn: Equation) -> None:
        self.equations.append(eqn)
        for value in eqn.results:
            self._definitions[value] = eqn
        if len(eqn.results) == 1 and (eqn.op.is_elementwise or isinstance(eqn.op, (Iota, BroadcastInDim))):
            operands = () if isinstance(eqn.op, BroadcastInDim) else _alike(eqn)
            size = 1 + sum([self._unwritten.get(operand, 0) for operand in operands])
            if size <= MOST_IN_PLACE:
                self._unwritten[eqn.results[0]] = size


def _alike(eqn: Equation) -> list[Value]:
    """The operands of the shape of an elementwise result."""
    shape = eqn.results[0].type.shape
    return [operand for operand in eqn.operands if operand.type.shape == shape]


def _is_joined(eqn: Equation) -> bool:
    """Whether XLA joins dimensions of a result."""
    return isinstance(eqn.op, DotGeneral) and _groups_of_product(eqn.op, eqn) is not None


def _groups_of_product(op: DotGeneral, eqn: Equation) -> _Groups | None:
    """How XLA joins the dimensions of a product; None where it does not."""
    batch = len(op.batch[0])
    free = [x.type.rank - len(contract) - batch for x, contract in zip(eqn.operands, op.contract, strict=True)]
    if max(free) <= 1:
        return None
    return (*[1] * batch, *[count for count in free if count])


def _shape(shape: tuple[int, ...], groups: _Groups) -> tuple[int, ...]:
    begin, joined = 0, []
    for count in groups:
        joined.append(shape[begin] if count == 1 else math.prod(shape[begin : begin + count]))
        begin += count
    return tuple(joined)


def _place(dimension: int, groups: _Groups) -> tuple[int, bool]:
    """The group of a dimension, and whether it is alone there."""
    ends = list(itertools.accumulate(groups))
    place = next(place for place, end in enumerate(ends) if dimension < end)
    return place, groups[place] == 1


def _reduced(dimensions: Sequence[int], groups: _Groups) -> tuple[int, ...] | None:
    """The groups that are reduced; None where one is in part."""
    begin, found = 0, []
    for place, size in enumerate(groups):
        inside = sum(begin <= dimension < begin + size for dimension in dimensions)
        if inside == size:
            found.append(place)
        elif inside:
            return None
        begin += size
    return tuple(found)


def _broadcast(op: BroadcastInDim, operand: Sequence[int], groups: _Groups) -> tuple[int, ...] | None:
    """The groups that a broadcast operand has, whole; None where it has one in part."""
    sizes = dict(zip(op.dimensions, operand, strict=True))
    begin, found = 0, []
    for place, count in enumerate(groups):
        dims = range(begin, begin + count)
        has = [d in sizes and sizes[d] == op.shape[d] for d in dims]
        if all(has):
            found.append(place)
        elif any(d in sizes and sizes[d] != 1 for d in dims):
            return None
        begin += count
    return tuple(found)
