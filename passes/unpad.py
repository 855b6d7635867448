"""Products of what is padded with zeros, without these; in regions too.

Before:  %0: f32[4,256,32000] = pad %ct, 0.0 {low=[0,0,0], high=[0,1,0]}
         %1: f32[256,32000] = dot_general %x, %0 {contract=[[0,1],[0,1]]}
         %2: f32[4,256,256] = dot_general %0, %w {contract=[[2],[1]]}
After:   %3: f32[4,255,256] = slice %x {limit=[4,255,256]}
         %1: f32[256,32000] = dot_general %3, %ct {contract=[[0,1],[0,1]]}
         %4: f32[4,255,256] = dot_general %ct, %w {contract=[[2],[1]]}
         %2: f32[4,256,256] = pad %4, 0.0 {high=[0,1,0]}

That is the derivative of reading the logits of all tokens but the last: with zeros it is as large as the logits, and
in another shape, so that it is not written in their place.

Zero times what is not finite is not a number, and stays so: 0 times the greatest and the least of what is multiplied
by the zeros alone, which is 0 or NaN, is added to what else it would have come to, or stands there.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from rematc.ir.builder import Builder
from rematc.ir.core import Equation, Graph
from rematc.ir.ops.conversion import Convert
from rematc.ir.ops.dot import DotGeneral
from rematc.ir.ops.reduction import ReduceSum
from rematc.ir.ops.shape import Pad
from rematc.ir.ops.structural import Constant, OptimizationBarrier
from rematc.ir.values import Value
from rematc.passes.manager import Pass, register_pass
from rematc.passes.regions import RegionRewriter


@register_pass
@dataclass(frozen=True, slots=True)
class Unpad(Pass):
    """Multiply what is padded with zeros along one dimension as it was before, where products alone read it."""

    name: ClassVar[str] = "unpad"
    keeps_bits: ClassVar[bool] = False

    def run(self, graph: Graph) -> Graph:
        return _Unpadding().graph(graph)


@dataclass(frozen=True, slots=True)
class _Zeros:
    """How an array is padded with zeros: along which dimension, and how many before and after what it was."""

    dimension: int
    before: int
    after: int


class _Unpadding:
    """Rewrites graphs, and their regions."""

    def __init__(self) -> None:
        self._regions = RegionRewriter(self.graph)

    def graph(self, graph: Graph) -> Graph:
        """The graph without zeros in products; the graph itself where there are none."""
        padded = _padded(graph)
        ops = [self._regions.op(eqn.op) for eqn in graph.equations]
        if not padded and all(op is eqn.op for op, eqn in zip(ops, graph.equations, strict=True)):
            return graph
        b = Builder(graph.name)
        small: dict[Value, Value] = {}
        for op, eqn in zip(ops, graph.equations, strict=True):
            b.loc = eqn.loc
            if eqn.results and eqn.results[0] in padded and isinstance(op, Pad):
                small[eqn.results[0]] = eqn.operands[0]
            elif small.keys().isdisjoint(eqn.operands):
                b.equations.append(eqn if op is eqn.op else Equation(op, eqn.operands, eqn.results, eqn.loc))
            else:
                _unpadded(b, eqn, padded, small)
        return Graph(graph.name, graph.params, tuple(b.equations), graph.results)


def _unpadded(b: Builder, eqn: Equation, padded: dict[Value, _Zeros], small: dict[Value, Value]) -> None:
    """An equation that reads what is padded, of what it was before."""
    op = eqn.op
    if isinstance(op, DotGeneral):
        _write_product(b, op, eqn, padded, small)
        return
    operands = tuple([small.get(value, value) for value in eqn.operands])
    types = op.infer([value.type for value in operands])
    results = []
    for type, result in zip(types, eqn.results, strict=True):
        results.append(Value(type, result.name) if result in padded else result)
        if result in padded:
            small[result] = results[-1]
    b.equations.append(Equation(op, operands, tuple(results), eqn.loc))


def _write_product(
    b: Builder, op: DotGeneral, eqn: Equation, padded: dict[Value, _Zeros], small: dict[Value, Value]
) -> None:
    side = 0 if eqn.operands[0] in padded else 1
    zeros, x, y = padded[eqn.operands[side]], small[eqn.operands[side]], eqn.operands[1 - side]
    mine, others = op.contract[side], op.contract[1 - side]
    if zeros.dimension in mine:
        y = _without(b, y, others[mine.index(zeros.dimension)], zeros, others)
    product = b.emit1(op, *((x, y) if side == 0 else (y, x)))
    if zeros.dimension in mine:
        _name(b, product, eqn)
        return
    free = [d for d in range(x.type.rank) if d not in mine and d not in op.batch[side]]
    rest = y.type.rank - len(others) - len(op.batch[1 - side])
    place = len(op.batch[0]) + free.index(zeros.dimension) + (0 if side == 0 else rest)
    fill = _not_finite(b, y, others)
    kept = [d for d in range(y.type.rank) if d not in others]
    # Of what is not contracted, batches come first in the result, in their order.
    order = [kept.index(d) for d in op.batch[1 - side]]
    order += [at for at in range(len(kept)) if at not in order]
    begin = len(op.batch[0]) + (len(free) if side == 0 else 0)
    onto = [*range(len(op.batch[0])), *range(begin, begin + rest)]
    parts = [product]
    for size, index in ((zeros.before, 0), (zeros.after, 1)):
        if size:
            shape = [size if d == place else length for d, length in enumerate(product.type.shape)]
            part = b.zeros(product.type.with_shape(tuple(shape)))
            if fill is not None:
                part = b.broadcast_in_dim(b.convert(b.transpose(fill, order), product.type.dtype), shape, onto)
            parts.insert(index * len(parts), part)
    _name(b, b.concatenate(parts, place), eqn)


def _name(b: Builder, value: Value, eqn: Equation) -> None:
    """What was written last is the result of an equation."""
    last = b.equations.pop()
    assert last.results == (value,), "it was written last"
    b.equations.append(Equation(last.op, last.operands, eqn.results, eqn.loc))


def _without(b: Builder, y: Value, dimension: int, zeros: _Zeros, contract: Sequence[int]) -> Value:
    """A factor without what the zeros are multiplied by; 0 or NaN of that is added to all that is summed with it."""
    ends = [0, zeros.before, y.type.shape[dimension] - zeros.after, y.type.shape[dimension]]
    cuts = []
    for begin, end in pairwise(ends):
        start = [begin if d == dimension else 0 for d in range(y.type.rank)]
        limit = [end if d == dimension else size for d, size in enumerate(y.type.shape)]
        cuts.append(b.slice(y, start, limit) if begin < end else None)
    first, inside, last = cuts
    assert inside is not None, "what is padded has elements"
    for outside in (first, last):
        found = None if outside is None else _not_finite(b, outside, contract)
        if found is not None:
            kept = [d for d in range(y.type.rank) if d not in contract]
            inside = b.add(inside, b.broadcast_in_dim(found, inside.type.shape, kept))
    return inside


def _not_finite(b: Builder, x: Value, dimensions: Sequence[int]) -> Value | None:
    """0 where all is finite along dimensions, and NaN where it is not; None where everything is."""
    if not x.type.dtype.is_float:
        return None
    extremes = [b.reduce_max(x, dimensions), b.reduce_min(x, dimensions)]
    nothing = b.zeros(extremes[0].type)
    return b.add(*[b.multiply(extreme, nothing) for extreme in extremes])


def _padded(graph: Graph) -> dict[Value, _Zeros]:
    """What is padded with zeros, and what follows from it, where products alone read that."""
    readers: dict[Value, list[tuple[Equation, int]]] = {}
    zero: set[Value] = set()
    begins: list[tuple[Value, _Zeros]] = []
    for eqn in graph.equations:
        for place, value in enumerate(eqn.operands):
            readers.setdefault(value, []).append((eqn, place))
        if isinstance(eqn.op, Constant) and not eqn.op.array.any() and not eqn.op.type.dtype.is_complex:
            zero.update(eqn.results)
        elif isinstance(eqn.op, Pad) and eqn.operands[1] in zero:
            zeros = _zeros(eqn.op)
            begins += [(eqn.results[0], zeros)] if zeros and eqn.operands[0].type.size else []
    results = set(graph.results)
    padded: dict[Value, _Zeros] = {}
    for begin, zeros in begins:
        found: dict[Value, _Zeros] = {begin: zeros}
        has_product, waiting = False, [begin]
        while waiting:
            value = waiting.pop()
            for eqn, place in readers.get(value, ()):
                has_product |= isinstance(eqn.op, DotGeneral)
                also = _also_padded(eqn, place, found[value], found.keys() | padded.keys())
                if also is None:
                    waiting, has_product = [], False
                    break
                new = [result for result in also if result not in found]
                found.update(dict.fromkeys(new, zeros))
                waiting += new
        if has_product and results.isdisjoint(found):
            padded |= found
    return padded


def _zeros(op: Pad) -> _Zeros | None:
    along = [d for d, sizes in enumerate(zip(op.low, op.high, strict=True)) if any(sizes)]
    if len(along) != 1 or any(op.interior) or min(*op.low, *op.high) < 0:
        return None
    (dimension,) = along
    return _Zeros(dimension, op.low[dimension], op.high[dimension])


def _also_padded(eqn: Equation, place: int, zeros: _Zeros, padded: Set[Value]) -> list[Value] | None:
    """What of the results of a reader is padded as its operand is; None where it has to read the zeros."""
    match eqn.op:
        case Convert():
            return [eqn.results[0]]
        case OptimizationBarrier():
            return [eqn.results[place]]
        case ReduceSum(dimensions=dimensions) if zeros.dimension in dimensions:
            return []
        case DotGeneral() as op:
            other = eqn.operands[1 - place]
            is_larger = eqn.operands[place].type.size > other.type.size
            is_one = other not in padded and zeros.dimension not in op.batch[place]
            return [] if is_larger and is_one and not other.type.dtype.is_complex else None
    return None
