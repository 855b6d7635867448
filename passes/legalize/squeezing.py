"""What is computed of products in batches of one, without that dimension.

Before:  %0: f32[64,256] = dot_general %x, %y   %1: f32[1,64,256] = reshape %0   %2: f32[1,64,256] = add %1, %z
After:   %0: f32[64,256] = dot_general %x, %y   %3: f32[64,256] = add %0, %4   %2: f32[1,64,256] = reshape %3
         for who reads %2 otherwise; %4 is %z, reshaped

JAX writes such products so, and of others XLA:CPU makes them. The next product reads the sum through a reshape, too,
and at one of those no kernel ends, as it does at a product: the sum is written for the product, and computed once more
by every other reader. So each step of an iteration reads the products of all steps before it, which are held for it,
and a softmax over one head writes its scores in both shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rematc.ir.core import Equation, Graph, Op
from rematc.ir.ops.dot import DotGeneral
from rematc.ir.ops.reduction import Reduction
from rematc.ir.ops.shape import BroadcastInDim, Reshape, Transpose
from rematc.ir.ops.structural import Name, OptimizationBarrier, StopGradient
from rematc.ir.traversal import all_equations
from rematc.ir.values import Value
from rematc.passes.regions import RegionRewriter

Shape = tuple[int, ...]


class Squeezing:
    """Rewrites graphs, and their regions.

    Attributes:
        origins: what is computed without dimensions of one element, and the value of the graph before that it is.
    """

    def __init__(self) -> None:
        self._regions = RegionRewriter(self._rewritten)
        self.origins: dict[Value, Value] = {}

    def graph(self, graph: Graph) -> Graph:
        """The graph without products in batches of one; the graph itself where there are none."""
        return self._rewritten(graph) if _may_begin(graph) else graph

    def _rewritten(self, graph: Graph) -> Graph:
        rewriting = _Rewriting(graph, self._regions, self.origins)
        for eqn in graph.equations:
            rewriting.equation(eqn)
        results = tuple([rewriting.whole(value) for value in graph.results])
        return Graph(graph.name, graph.params, tuple(rewriting.equations), results) if rewriting.has_changed else graph


class _Rewriting:
    """One graph, as far as it is rewritten.

    Attributes:
        equations: the new ones.
        has_changed: whether they are others than before.
    """

    def __init__(self, graph: Graph, regions: RegionRewriter, origins: dict[Value, Value]) -> None:
        self.equations: list[Equation] = []
        self.has_changed = False
        self._regions = regions
        self._origins = origins
        #: What is computed without dimensions of one element, and what has been reshaped for it.
        self._small: dict[Value, Value] = {}
        self._reshaped: dict[Value, Value] = {}
        self._whole: dict[Value, Value] = {}
        self._definitions: dict[Value, Equation] = {}
        self._eqn: Equation
        self._given = {*graph.params, *(value for eqn in graph.equations for value in eqn.results)}
        others = {value for eqn in graph.equations if not _is_squeezing(eqn) for value in eqn.operands}
        #: What is read otherwise than without its dimensions of one element.
        self._read_whole = others.union(graph.results)

    def equation(self, eqn: Equation) -> None:
        """Add what an equation becomes."""
        self._eqn = eqn
        if isinstance(eqn.op, OptimizationBarrier):
            self._barrier(eqn)
            return
        small = self._computed_small(eqn)
        if small is not None:
            self.has_changed = True
            (result,) = eqn.results
            self._small[result] = small
            if small not in self._given:
                self._origins.setdefault(small, result)
            return
        op = self._regions.op(eqn.op)
        operands = tuple([self.whole(value) for value in eqn.operands])
        is_same = op is eqn.op and operands == eqn.operands
        self.has_changed |= not is_same
        self._append(eqn if is_same else Equation(op, operands, eqn.results, eqn.loc))

    def whole(self, value: Value) -> Value:
        """A value in its own shape."""
        small = self._small.get(value)
        if small is None or small.type.shape == value.type.shape:
            return value if small is None else small
        if value not in self._whole:
            self._whole[value] = self._emit(Reshape(value.type.shape), small)
        return self._whole[value]

    def _computed_small(self, eqn: Equation) -> Value | None:
        """What an equation computes, without dimensions of one element; None where it is left."""
        op: Op = eqn.op
        if _has_batch_of_one(eqn):
            return self._product(op, *eqn.operands)  # type: ignore[arg-type]  # it is one
        if len(eqn.results) != 1:
            return None
        (result,) = eqn.results
        if self._small.keys().isdisjoint(eqn.operands) and not self._begins(eqn, result):
            return None
        shape, first = result.type.shape, eqn.operands[0]
        if op.is_elementwise or isinstance(op, (Name, StopGradient)):
            operands = [self._squeezed(x) if x.type.shape == shape else self.whole(x) for x in eqn.operands]
            return self._emit(op, *operands, name=result.name)
        kept = [d for d, size in enumerate(first.type.shape) if size != 1]
        match op:
            case Reshape() if 0 not in shape:
                small, rest = self._squeezed(first), _without_ones(shape)
                return small if small.type.shape == rest else self._emit(Reshape(rest), small)
            case Transpose(permutation=permutation):
                order = tuple([kept.index(d) for d in permutation if d in kept])
                small = self._squeezed(first)
                return small if order == tuple(range(len(order))) else self._emit(Transpose(order), small)
            case BroadcastInDim(dimensions=dimensions):
                return self._spread(first, result, dimensions)
            case Reduction(dimensions=dimensions) if any(d in kept for d in dimensions):
                reduced = tuple([kept.index(d) for d in dimensions if d in kept])
                return self._emit(replace(op, dimensions=reduced), self._small[first], name=result.name)  # type: ignore[type-var]
        return None

    def _begins(self, eqn: Equation, result: Value) -> bool:
        """Whether an equation of other operands is computed without dimensions of one element, too."""
        if isinstance(eqn.op, Transpose):
            return 1 in result.type.shape and result not in self._read_whole
        made = self._definitions.get(eqn.operands[0]) if eqn.operands else None
        return made is not None and made.op.is_product and _is_unsqueezing(eqn)

    def _product(self, op: DotGeneral, x: Value, y: Value) -> Value:
        def left(dimensions: tuple[Shape, Shape]) -> tuple[Shape, Shape]:
            sides = zip((x, y), dimensions, strict=True)
            one, other = [tuple([_place(value, d) for d in dims if not _is_one(value, d)]) for value, dims in sides]
            return one, other

        small = replace(op, contract=left(op.contract), batch=left(op.batch))
        return self._emit(small, self._squeezed(x), self._squeezed(y), name=self._eqn.results[0].name)

    def _barrier(self, eqn: Equation) -> None:
        operands = [self._small.get(value, value) for value in eqn.operands]
        results = []
        for value, operand, result in zip(eqn.operands, operands, eqn.results, strict=True):
            is_small = value in self._small
            results.append(Value(operand.type, result.name) if is_small else result)
            if is_small:
                self._small[result] = results[-1]
                self._origins[results[-1]] = result
        self._append(Equation(eqn.op, tuple(operands), tuple(results), eqn.loc))

    def _squeezed(self, value: Value) -> Value:
        """A value without dimensions of one element."""
        if value in self._small:
            return self._small[value]
        shape, made = _without_ones(value.type.shape), self._definitions.get(value)
        if shape == value.type.shape:
            return value
        if value not in self._reshaped:
            if made is not None and isinstance(made.op, BroadcastInDim):
                self._reshaped[value] = self._spread(made.operands[0], value, made.op.dimensions)
            else:
                self._reshaped[value] = self._emit(Reshape(shape), value)
        return self._reshaped[value]

    def _spread(self, operand: Value, result: Value, dimensions: Shape) -> Value:
        """What an operand is broadcast to along these dimensions, both without those of one element."""
        shape, small = _without_ones(result.type.shape), self._squeezed(operand)
        onto = tuple([_place(result, d) for d, size in zip(dimensions, operand.type.shape, strict=True) if size != 1])
        return small if small.type.shape == shape else self._emit(BroadcastInDim(shape, onto), small)

    def _emit(self, op: Op, *operands: Value, name: str | None = None) -> Value:
        (type,) = op.infer([value.type for value in operands])
        result = Value(type, name)
        self._append(Equation(op, operands, (result,), self._eqn.loc))
        return result

    def _append(self, eqn: Equation) -> None:
        self.equations.append(eqn)
        self._definitions.update(dict.fromkeys(eqn.results, eqn))


def _may_begin(graph: Graph) -> bool:
    """Whether something may be computed without dimensions of one element: of products, and transposed."""
    products = set[Value]()
    for eqn in all_equations(graph):
        op = eqn.op
        if isinstance(op, Transpose) and 1 in eqn.results[0].type.shape:
            return True
        if op.is_product:
            if _has_batch_of_one(eqn):
                return True
            products.update(eqn.results)
        elif isinstance(op, Reshape) and eqn.operands[0] in products and _is_unsqueezing(eqn):
            return True
    return False


def _is_squeezing(eqn: Equation) -> bool:
    """Whether an equation takes away all dimensions of one element."""
    return isinstance(eqn.op, Reshape) and _without_ones(eqn.operands[0].type.shape) == eqn.op.shape


def _is_unsqueezing(eqn: Equation) -> bool:
    """Whether an equation adds dimensions of one element to an array without any."""
    return isinstance(eqn.op, Reshape) and _without_ones(eqn.op.shape) == eqn.operands[0].type.shape


def _has_batch_of_one(eqn: Equation) -> bool:
    """Whether an equation is a product in batches of one, and has no other dimensions of one element."""
    if not isinstance(eqn.op, DotGeneral):
        return False
    for value, batch in zip(eqn.operands, eqn.op.batch, strict=True):
        if not all(size != 1 or d in batch for d, size in enumerate(value.type.shape)):
            return False
    return any(_is_one(eqn.operands[0], d) for d in eqn.op.batch[0])


def _is_one(value: Value, dimension: int) -> bool:
    return value.type.shape[dimension] == 1


def _place(value: Value, dimension: int) -> int:
    """Where a dimension is among those of more or less than one element."""
    return sum(size != 1 for size in value.type.shape[:dimension])


def _without_ones(shape: Sequence[int]) -> Shape:
    return tuple([size for size in shape if size != 1])
