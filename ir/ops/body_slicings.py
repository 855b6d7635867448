"""How an op with graphs acts along the dimensions of its operands: what its graphs do there.

Of a loop whose step is `(%w: f32[4,4], %h: f32[8,4], %x: f32[8,4]) -> add %h, (dot_general %x, %w)`, rows of `%x` in
parts make rows of the product in parts, and so `%h`, before the step and after it. Each op inside acts as its own
slicings say (`Op.slicings`); what nothing cuts is the same in each part. A sum over what is cut is a term in each part:
it may be given, or added to a carry that nothing else reads, and what is made of it until then is linear in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rematc.ir.core import Equation, Graph, GraphContext, Op, PartContext
from rematc.ir.facts import Effect
from rematc.ir.ops.arithmetic import Add, Divide, Multiply, Negate, Subtract
from rematc.ir.ops.conversion import Convert
from rematc.ir.ops.dynamic import DynamicSlice
from rematc.ir.ops.shape import BroadcastInDim, Reshape, Transpose
from rematc.ir.ops.structural import Constant
from rematc.ir.slicings import SAME, Part, Slicing, sum_dtype
from rematc.ir.types import I32, TensorType
from rematc.ir.values import Value


@dataclass(frozen=True, slots=True)
class Bodies:
    """The graphs of an op, and what becomes of what in them.

    Attributes:
        graphs: these.
        alike: values that are cut alike: what a step takes and gives, what branches take and give.
        held: parameters that a step may add to, and the result that takes their place.
    """

    graphs: tuple[Graph, ...]
    alike: Sequence[tuple[Value, Value]]
    held: Mapping[Value, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cut:
    """How graphs are applied in parts.

    Attributes:
        dims: the values of which each part has a part, and the dimension along which.
        ways: the equations that read or give such values.
        terms: the values of which each part has a term.
        sums: the values to which the parts add terms one after another, and the parameters that hold them before.
    """

    dims: Mapping[Value, int]
    ways: Mapping[Equation, Slicing]
    terms: frozenset[Value]
    sums: Mapping[Value, Value]

    def gives(self, value: Value) -> int | None:
        """What a slicing says of a result of a graph."""
        return None if value in self.terms or value in self.sums else self.dims.get(value, SAME)

    def goes_with(self, sizes: Iterable[int]) -> bool:
        """Whether all that is cut has as many parts as these sizes can have."""
        most = math.gcd(*sizes)
        return bool(most) and all(value.type.shape[d] % most == 0 for value, d in self.dims.items())


@dataclass(frozen=True, slots=True)
class Given:
    """A result of a graph as its op gives it, or a parameter as the op takes it.

    Attributes:
        value: it.
        is_stacked: whether the op has one for each step, along its first dimension.
        place: of a carry the number of the operand that it is in the first step; None of others.
        before: of a carry the parameter that the next step has for it.
        others: what stands for it in the other graphs, each of which may be applied.
    """

    value: Value
    is_stacked: bool = False
    place: int | None = None
    before: Value | None = None
    others: tuple[Value, ...] = ()

    def outside(self, d: int | None) -> int | None:
        """A dimension as the op counts it."""
        return d + 1 if self.is_stacked and d is not None and d != SAME else d

    def inside(self, d: int | None) -> int | None:
        """A dimension as the graph counts it."""
        return d - 1 if self.is_stacked and d is not None and d != SAME else d


class Cutting:
    """Finds how graphs can be applied in parts."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._producer: dict[Value, Equation] = {}
        self._readers: dict[Value, list[Equation]] = {}
        self._alike: dict[Value, list[Value]] = {}
        self._slicings: dict[Equation, tuple[Slicing, ...]] = {}
        self._found: dict[tuple[Value, int], Cut | None] = {}
        self._is_cut = all(map(_may_be_cut, bodies.graphs))
        for graph in bodies.graphs:
            for eqn in graph.equations:
                self._producer.update(dict.fromkeys(eqn.results, eqn))
                for value in dict.fromkeys(eqn.operands):
                    self._readers.setdefault(value, []).append(eqn)
        for one, other in bodies.alike:
            self._alike.setdefault(one, []).append(other)
            self._alike.setdefault(other, []).append(one)

    def cut(self, seed: Value, dimension: int) -> Cut | None:
        """How the graphs are applied in parts of one value along a dimension, and of all that this leads to."""
        key = seed, dimension
        if key not in self._found:
            found = self._leading_from(seed, dimension) if self._is_cut else None
            self._found[key] = None if found is None else self._with_terms(*found)
        return self._found[key]

    def slicings(self, params: Sequence[Given], results: Sequence[Given]) -> tuple[Slicing, ...]:
        """The ways in which an op with these operands and results can be applied in parts."""
        found, seen = list[Slicing](), set[tuple[int, int | None]]()
        for place, param in enumerate(params):
            for d in range(param.value.type.rank):
                cut = None if (place, d) in seen else self.cut(param.value, d)
                slicing = None if cut is None else self._slicing(cut, params, results)
                if slicing is not None:
                    found.append(slicing)
                    seen.update((row, params[row].inside(one)) for row, one in enumerate(slicing.operands))
        return tuple(found)

    def cut_of(self, slicing: Slicing, params: Sequence[Given]) -> Cut:
        """How the graphs are applied for one of these ways."""
        rows = zip(params, slicing.operands, strict=True)
        param, d = next((param, param.inside(d)) for param, d in rows if d is not None)
        cut = None if d is None else self.cut(param.value, d)
        assert cut is not None, "it is one of the ways"
        return cut

    def _slicing(self, cut: Cut, params: Sequence[Given], results: Sequence[Given]) -> Slicing | None:
        """What a way of the graphs is for their op; None where it is no way to apply that in parts."""
        gives, into = list[int | None](), list[int | None]()
        for result in results:
            values = (result.value, *result.others)
            if result.before is not None and result.value in cut.terms:
                return None  # the next step reads it
            if any(value in cut.terms for value in values):
                if not all(value in cut.terms or self._is_zero(value) for value in values):
                    return None
                d = None
            elif result.before is not None and result.before in cut.dims:
                d = cut.dims[result.before]
            else:
                d = next((found for found in map(cut.gives, values) if found != SAME), SAME)
            gives.append(d)
            into.append(result.place if result.value in cut.sums else None)
        own = [cut.dims.get(param.value) for param in params]
        named = [*zip(params, own, strict=True), *zip(results, gives, strict=True)]
        if not cut.goes_with([given.value.type.shape[d] for given, d in named if d is not None and d != SAME]):
            return None
        return Slicing(
            tuple(map(Given.outside, params, own)),
            tuple(map(Given.outside, results, gives)),
            tuple(into) if any(one is not None for one in into) else (),
        )

    def _ways(self, eqn: Equation) -> tuple[Slicing, ...]:
        if eqn not in self._slicings:
            self._slicings[eqn] = eqn.op.slicings(eqn.operand_types, eqn.result_types)
        return self._slicings[eqn]

    def _leading_from(self, seed: Value, dimension: int) -> tuple[dict[Value, int], dict[Equation, Slicing]] | None:
        """All that must be cut if one value is; None where it cannot be."""
        dims, ways = {seed: dimension}, dict[Equation, Slicing]()
        work = [seed]
        while work:
            value = work.pop()
            needed = [(other, dims[value]) for other in self._alike.get(value, ())]
            own = self._producer.get(value)
            for eqn in (*([] if own is None else [own]), *self._readers.get(value, ())):
                if eqn in ways:
                    continue
                way = self._fitting(eqn, value, dims)
                if way is None:
                    return None
                ways[eqn] = way
                needed += [(x, d) for x, d in zip(eqn.operands, way.operands, strict=True) if d is not None]
                needed += [(x, d) for x, d in zip(eqn.results, way.results, strict=True) if d is not None and d != SAME]
            for other, d in needed:
                if other in dims:
                    if dims[other] != d:
                        return None
                elif self.made_alone(other, d) is None:
                    dims[other] = d
                    work.append(other)
        return (dims, ways) if self._is_consistent(dims, ways) else None

    def _fitting(self, eqn: Equation, value: Value, dims: Mapping[Value, int]) -> Slicing | None:
        for way in self._ways(eqn):
            named = [*zip(eqn.operands, way.operands, strict=True), *zip(eqn.results, way.results, strict=True)]
            if all(d == dims[value] for other, d in named if other is value) and all(
                d == dims[other] for other, d in named if other in dims
            ):
                return way
        return None

    def _is_consistent(self, dims: Mapping[Value, int], ways: Mapping[Equation, Slicing]) -> bool:
        """Whether nothing is read otherwise than it is cut, and nothing large is computed again in each part."""
        for eqn, way in ways.items():
            for value, d in zip(eqn.operands, way.operands, strict=True):
                if value in dims and dims[value] != d:
                    return False
        whole = (eqn for graph in self._bodies.graphs for eqn in graph.equations if eqn not in ways)
        return not any(_has_products(eqn.op) for eqn in whole)

    def made_alone(self, value: Value, d: int) -> tuple[Equation, Slicing] | None:
        """What makes parts of a value where they are read, of what is the same in all parts; None if they are not."""
        eqn = self._producer.get(value)
        if eqn is None or not eqn.op.is_fusible:
            return None
        if isinstance(eqn.op, Constant):
            return eqn, Slicing((), (d,))
        ways = (way for way in self._ways(eqn) if way.results == (d,))
        way = next((way for way in ways if not any(one is not None for one in way.operands)), None)
        return None if way is None else (eqn, way)

    # -- sums over what is cut -------------------------------------------------------------------------------------

    def _with_terms(self, dims: Mapping[Value, int], ways: Mapping[Equation, Slicing]) -> Cut | None:
        """The same with what becomes of sums; None where one is read before the last part has added its term."""
        terms, sums = set[Value](), dict[Value, Value]()
        for graph in self._bodies.graphs:
            for eqn in graph.equations:
                if not sums.keys().isdisjoint(eqn.operands):
                    return None
                is_linear = not terms.isdisjoint(eqn.operands)
                if eqn in ways:
                    found = None if is_linear else self._summed(eqn, ways[eqn])
                else:
                    found = self._linear(eqn, terms) if is_linear else {}
                if found is None:
                    return None
                terms.update(value for value, held in found.items() if held is None)
                sums.update({value: held for value, held in found.items() if held is not None})
        return Cut(dims, ways, frozenset(terms), sums)

    def _summed(self, eqn: Equation, way: Slicing) -> dict[Value, Value | None] | None:
        """The results that are combined, and what holds each before; None for terms."""
        found: dict[Value, Value | None] = {}
        for place, (value, d) in enumerate(zip(eqn.results, way.results, strict=True)):
            if d is None:
                into = way.into_of(place)
                held = None if into is None else eqn.operands[into]
                if held is not None and not self._is_zero(held) and not self._holds(held, eqn, value):
                    return None
                found[value] = None if held is None or self._is_zero(held) else held
        return found

    def _linear(self, eqn: Equation, terms: set[Value]) -> dict[Value, Value | None] | None:
        """The same of an equation that is linear in terms, or adds one."""
        others = [value for value in eqn.operands if value not in terms]
        is_term: dict[Value, Value | None] = {eqn.results[0]: None}
        match eqn.op:
            case Negate() | Reshape() | Transpose() | BroadcastInDim():
                return is_term
            case Convert(dtype):
                return is_term if dtype.is_float and eqn.operands[0].type.dtype.is_float else None
            case Add() if others and self._holds(others[0], eqn, eqn.results[0]):
                return {eqn.results[0]: others[0]}
            case Add() | Subtract():
                return is_term if all(map(self._is_zero, others)) else None
            case Multiply():
                return is_term if others else None
            case Divide():
                return is_term if others == [eqn.operands[1]] else None
        return None

    def _holds(self, held: Value, eqn: Equation, value: Value) -> bool:
        """Whether a parameter is what parts have added up before, read by nothing else than what adds to it."""
        if self._bodies.held.get(held) is not value or self._readers[held] != [eqn] or eqn.operands.count(held) > 1:
            return False
        results = [result for graph in self._bodies.graphs for result in graph.results]
        return value not in self._readers and results.count(value) == 1 and held not in results

    def _is_zero(self, value: Value) -> bool:
        eqn = self._producer.get(value)
        if eqn is not None and isinstance(eqn.op, BroadcastInDim):
            return self._is_zero(eqn.operands[0])
        return eqn is not None and isinstance(eqn.op, Constant) and not any(eqn.op.data)

    # -- one part --------------------------------------------------------------------------------------------------

    def part_of(
        self, b: PartContext, graph: Graph, cut: Cut, part: Part, gives: Sequence[int | None], place: int | None = None
    ) -> Graph:
        """What one part computes of one of the graphs, whose results are cut so.

        It has a parameter more, the number of the part, after so many others; by default after all of them.
        """
        inner = b.inside(graph.name)

        def taken(param: Value) -> Value:
            shape = part.cut(param.type.shape, cut.dims.get(param))
            return inner.parameter(param.type.with_shape(shape), param.name)

        place = len(graph.params) if place is None else place
        params = list(map(taken, graph.params[:place]))
        own = Part(part.slicing, part.count, inner.parameter(TensorType(I32, ()), "part"))
        params += map(taken, graph.params[place:])
        written = _Written(self, inner, graph, cut, own, params)
        return inner.build(*[written.result(value, d) for value, d in zip(graph.results, gives, strict=True)])


class _Written:
    """One part of a graph."""

    def __init__(
        self, cutting: Cutting, b: GraphContext, graph: Graph, cut: Cut, part: Part, params: Sequence[Value]
    ) -> None:
        self._cutting, self._b, self._cut, self._part = cutting, b, cut, part
        self._names = dict(zip(graph.params, params, strict=True))
        self._made: dict[tuple[Value, int], Value] = {}
        for eqn in graph.equations:
            with b.at(eqn.loc):
                self._equation(eqn)

    def result(self, value: Value, d: int | None) -> Value:
        """A result of the graph, as a slicing says it."""
        if d is None and value not in self._cut.sums:
            return self._widened(self._names[value])
        return self._read(value, None if d is None or d == SAME else d)

    def _equation(self, eqn: Equation) -> None:
        way = self._cut.ways.get(eqn)
        if way is not None:
            operands = [self._read(value, d) for value, d in zip(eqn.operands, way.operands, strict=True)]
            part = Part(way, self._part.count, self._part.index)
            found = eqn.op.part(self._b, part, operands)
        elif not self._cut.terms.isdisjoint(eqn.operands):
            found = (self._of_terms(eqn),)
        else:
            found = self._b.emit(eqn.op, *[self._names[value] for value in eqn.operands])
        self._names.update(zip(eqn.results, found, strict=True))

    def _read(self, value: Value, d: int | None) -> Value:
        if d is None or value in self._cut.dims:
            return self._names[value]
        if (value, d) not in self._made:
            self._made[value, d] = self._alone(value, d)
        return self._made[value, d]

    def _alone(self, value: Value, d: int) -> Value:
        found = self._cutting.made_alone(value, d)
        assert found is not None, "what is not cut and read in parts is made there"
        eqn, way = found
        part = Part(way, self._part.count, self._part.index)
        if not isinstance(eqn.op, Constant):
            return eqn.op.part(self._b, part, [self._names[operand] for operand in eqn.operands])[0]
        sizes = part.cut(value.type.shape, d)
        zero = self._b.zeros(part.index.type)
        first = self._b.multiply(part.index, self._b.full(part.index.type, sizes[d]))
        return self._b.emit1(
            DynamicSlice(sizes), self._names[value], *[first if at == d else zero for at in range(len(sizes))]
        )

    def _of_terms(self, eqn: Equation) -> Value:
        """What is linear in terms, in the element type in which they are added up."""
        if eqn.results[0] in self._cut.sums:
            held = self._cut.sums[eqn.results[0]]
            (term,) = [value for value in eqn.operands if value is not held]
            return self._b.add(self._names[held], self._b.convert(self._names[term], held.type.dtype))
        operands = [self._widened(self._names[value]) for value in eqn.operands]
        if isinstance(eqn.op, Convert):
            return self._b.convert(operands[0], sum_dtype(eqn.op.dtype))
        return self._b.emit1(eqn.op, *operands)

    def _widened(self, value: Value) -> Value:
        return self._b.convert(value, sum_dtype(value.type.dtype))


def _may_be_cut(graph: Graph) -> bool:
    """Whether what it does in each part again is seen by nobody: no effects, collectives or functions of others."""
    return graph.effect is Effect.NONE and not graph.axes and not any(op.is_opaque for op in graph.op_types)


def _has_products(op: Op) -> bool:
    return op.is_product or any(_has_products(eqn.op) for graph in op.regions() for eqn in graph.equations)
