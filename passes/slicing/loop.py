"""A stage as one loop over parts of a dimension.

Before:  %3: f32[8,100] = dot_general %x, %w   %4 = exponential %3   %5: f32[8] = reduce_sum %4 {dimensions=[1]}
         %10: f32[4,100] = dot_general %x, %4 {contract=[[0],[0]], batch=[[],[]]}
After, in four parts:
         %11: f32[4,2,4] = reshape %x   %12: f32[4,100] = zeros   %13: f32[8] = zeros   %14: i32[4] = iota
         %10: f32[4,100], %5: f32[8] = scan %w, %12, %13, %11, %14 {body=
           graph @stage(%w, %sum, %all, %x: f32[2,4], %part) {
             %3: f32[2,100] = dot_general %x, %w   %4 = exponential %3   %5: f32[2] = reduce_sum %4 {dimensions=[1]}
             %6: f32[4,100] = dot_general %x, %4 {contract=[[0],[0]], batch=[[],[]]}   %7 = add %sum, %6
             %8 = dynamic_update_slice %all, %5, ...   return %7, %8 }, length=4, consts=1, carry=2}

What is cut along its first dimension is read as the slices of a loop; along another one, and what is written, in place
at a start that is computed. Sums are carried in the element type in which devices add up. What has no operands, or none
of the stage, and costs nothing is made again in each part. Nothing else of the stage exists but in parts.

What is written is no result of the steps for the loop to stack: where JAX writes the loop, its stacks begin as zeros
that XLA makes at the beginning of the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rematc.ir.builder import Builder
from rematc.ir.core import Equation, Graph
from rematc.ir.errors import CompileError
from rematc.ir.ops.conversion import Convert
from rematc.ir.ops.dynamic import DynamicSlice, DynamicUpdateSlice
from rematc.ir.ops.scan.op import Scan
from rematc.ir.ops.structural import Constant, OptimizationBarrier
from rematc.ir.slicings import SAME, Part, Slicing, sum_dtype
from rematc.ir.types import I32, DType, TensorType
from rematc.ir.values import Value
from rematc.passes.slicing.stacked_terms import added_in_steps
from rematc.passes.slicing.stages import Stage, Stages


def in_parts(stages: Stages, stage: Stage, count: int) -> Graph:
    """The graph with a stage of it in so many parts, that all that is cut has.

    The loop stands before the first equation that needs the whole stage. What it reads comes before it.

    Raises CompileError where that would move what prints or calls back before something that does.
    """
    graph = stages.graph
    loop = _Loop(stages, stage, count)
    needed = _needed(graph, loop)
    before, after, hoisted = list[Equation](), list[Equation](), list[Equation]()
    for eqn in graph.equations:
        if eqn in stage.slicings and not (loop.is_made_again(eqn) and stages.is_read_outside(stage, eqn.results[0])):
            continue
        if not stage.after.isdisjoint(eqn.operands) or not loop.given.keys().isdisjoint(eqn.operands):
            after.append(eqn)
        elif not after:
            before.append(eqn)
        elif needed.isdisjoint(eqn.results):
            after.append(eqn)
        else:
            if eqn.op.effect and any(other.op.effect for other in after):
                raise CompileError(
                    f"'{eqn.op.name}' has effects between parts of a stage that is to run in slices", eqn.loc
                )
            hoisted.append(eqn)
    return Graph(graph.name, graph.params, (*before, *hoisted, *loop.equations, *after), graph.results)


def _needed(graph: Graph, loop: _Loop) -> set[Value]:
    """The values that the loop depends on."""
    needed = {value for eqn in loop.equations for value in eqn.operands}
    for eqn in reversed(graph.equations):
        if not needed.isdisjoint(eqn.results):
            needed.update(eqn.operands)
    return needed


@dataclass
class _Operand:
    """What the loop takes, and the parameter of its step that it is; None for zeros."""

    outer: Value | None
    inner: Value


@dataclass
class _Result:
    """What a step gives, and how the graph has it: behind these equations."""

    inner: Value
    outer: Value
    following: list[Equation] = field(default_factory=list)


class _Loop:
    """Writes a stage as the step of a loop.

    Attributes:
        equations: the loop, what prepares its operands, and what makes the graph's values of its results.
        given: the values of the graph that it gives.
    """

    def __init__(self, stages: Stages, stage: Stage, count: int) -> None:
        self._stages, self._stage, self._count = stages, stage, count
        self._outer, self._body = Builder(), Builder("stage")
        self._index = self._body.parameter(TensorType(I32, ()), "part")
        self._consts: dict[Value, _Operand] = {}
        self._pieces: dict[tuple[Value, int], Value] = {}
        self._made: dict[Value, Value] = {}
        self._again: dict[tuple[Value, int | None], Value] = {}
        self._xs = [_Operand(self._outer.iota(TensorType(I32, (count,)), 0), self._index)]
        self._carries: list[tuple[_Operand, _Result]] = []
        self._read: list[Value] = []
        self.given: dict[Value, None] = {}
        for eqn, slicing in stage.slicings.items():
            self._equation(eqn, slicing)
        self.equations = self._loop()

    def is_made_again(self, eqn: Equation) -> bool:
        """Whether an equation of the stage reads nothing in parts and costs nothing: it stays outside, too."""
        slicing = self._stage.slicings[eqn]
        return eqn.op.is_fusible and not slicing.is_sum and not any(d is not None for d in slicing.operands)

    def _equation(self, eqn: Equation, slicing: Slicing) -> None:
        b = self._body
        b.loc = self._outer.loc = eqn.loc
        operands = [self._operand(value, d) for value, d in zip(eqn.operands, slicing.operands, strict=True)]
        into = [slicing.into_of(place) for place in range(len(eqn.results))]
        carries = [
            None if one is None else _Operand(eqn.operands[one], b.parameter(eqn.operands[one].type)) for one in into
        ]
        for one, carry in zip(into, carries, strict=True):
            if one is not None and carry is not None:
                operands[one] = carry.inner
        found = eqn.op.part(b, Part(slicing, self._count, self._index), operands)
        for value, d, inner, carry in zip(eqn.results, slicing.results, found, carries, strict=True):
            if d is None:
                self._combined(value, inner, carry)
                continue
            self._made[value] = inner
            if self._stages.is_read_outside(self._stage, value) and not self.is_made_again(eqn):
                self._written(value, d, inner)

    # -- what a step reads ---------------------------------------------------------------------------------------

    def _operand(self, value: Value, d: int | None) -> Value:
        if value in self._made:
            return self._made[value]
        again = self._made_again(value, d)
        if again is not None:
            return again
        if d is None:
            return self._const(value)
        if (value, d) not in self._pieces:
            self._pieces[value, d] = self._slice(value) if d == 0 else self._window(value, d)
        return self._pieces[value, d]

    def _made_again(self, value: Value, d: int | None) -> Value | None:
        """What comes from outside and is made in the step of less: scalars, what is repeated or counted, masks."""
        if (value, d) in self._again:
            return self._again[value, d]
        if d is None:
            eqn = self._stages.producer.get(value)
            if eqn is None or not isinstance(eqn.op, Constant) or value.type.rank:
                return None
            found = self._body.emit1(eqn.op)
        else:
            way = self._stages.made_of_less(value, d)
            if way is None:
                return None
            eqn = self._stages.producer[value]
            operands = [self._operand(operand, o) for operand, o in zip(eqn.operands, way.operands, strict=True)]
            (found,) = eqn.op.part(self._body, Part(way, self._count, self._index), operands)
        self._again[value, d] = found
        return found

    def _const(self, value: Value) -> Value:
        if value not in self._consts:
            self._read.append(value)
            self._consts[value] = _Operand(value, self._body.parameter(value.type, value.name))
        return self._consts[value].inner

    def _slice(self, value: Value) -> Value:
        self._read.append(value)
        size, *rest = value.type.shape
        shape = (size // self._count, *rest)
        inner = self._body.parameter(value.type.with_shape(shape), value.name)
        self._xs.append(_Operand(self._outer.reshape(value, (self._count, *shape)), inner))
        return inner

    def _window(self, value: Value, d: int) -> Value:
        sizes = Part(Slicing((), ()), self._count, self._index).cut(value.type.shape, d)
        whole = self._const(value)
        return self._body.emit1(DynamicSlice(sizes), whole, *self._start(d, value.type))

    def _start(self, d: int, type: TensorType) -> list[Value]:
        b = self._body
        first = b.multiply(self._index, b.full(self._index.type, type.shape[d] // self._count))
        zero = b.zeros(self._index.type)
        return [first if place == d else zero for place in range(type.rank)]

    # -- what a step gives ---------------------------------------------------------------------------------------

    def _combined(self, value: Value, term: Value, carry: _Operand | None) -> None:
        self.given[value] = None
        if carry is not None:
            self._carries.append((carry, _Result(term, value)))
            return
        type = value.type.with_dtype(sum_dtype(value.type.dtype))
        carry = _Operand(None, self._body.parameter(type))
        total = self._body.add(carry.inner, self._body.convert(term, type.dtype))
        result = _Result(total, value)
        if type != value.type:
            result.outer = Value(type)
            result.following.append(Equation(Convert(value.type.dtype), (result.outer,), (value,), self._outer.loc))
        self._carries.append((carry, result))

    def _written(self, value: Value, d: int, inner: Value) -> None:
        self.given[value] = None
        carry = _Operand(None, self._body.parameter(value.type))
        if d == SAME:
            self._carries.append((carry, _Result(inner, value)))
            return
        updated = self._body.emit1(DynamicUpdateSlice(), carry.inner, inner, *self._start(d, value.type))
        self._carries.append((carry, _Result(updated, value)))

    def _loop(self) -> list[Equation]:
        consts = list(self._consts.values())
        operands = [*consts, *[operand for operand, _ in self._carries], *self._xs]
        results = [result for _, result in self._carries]
        params = tuple([operand.inner for operand in operands])
        given = tuple([result.inner for result in results])
        body = added_in_steps(Graph("stage", params, tuple(self._body.equations), given))
        op = Scan(body, self._count, len(consts), len(self._carries))
        loc = next((eqn.loc for eqn in self._stage.slicings if eqn.loc is not None), None)
        zeros = _Zeros(self._stages, self._outer, self._read)
        taken = tuple([zeros.like(one.inner.type) if one.outer is None else one.outer for one in operands])
        loop = Equation(op, taken, tuple([result.outer for result in results]), loc)
        return [*self._outer.equations, loop, *[eqn for result in results for eqn in result.following]]


class _Zeros:
    """Zeros that are there only when a loop may begin.

    XLA makes constants whenever it likes: those of all loops of a program would lie in memory from its beginning. A
    barrier lets a zero wait for an element of what the loop reads and is computed last.
    """

    def __init__(self, stages: Stages, b: Builder, read: Sequence[Value]) -> None:
        self._b = b
        self._zeros: dict[DType, Value] = {}
        place = {value: number for number, eqn in enumerate(stages.graph.equations) for value in eqn.results}
        made = [value for value in read if value in place and value.type.size]
        self._latest = max(made, key=lambda value: place[value], default=None)

    def like(self, type: TensorType) -> Value:
        """Zeros of a type."""
        if type.dtype not in self._zeros:
            self._zeros[type.dtype] = self._zero(type.with_shape(()))
        return self._b.broadcast_in_dim(self._zeros[type.dtype], type.shape, ())

    def _zero(self, type: TensorType) -> Value:
        zero = self._b.zeros(type)
        if self._latest is None:
            return zero
        rank = self._latest.type.rank
        element = self._b.slice(self._latest, (0,) * rank, (1,) * rank) if rank else self._latest
        return self._b.emit(OptimizationBarrier(), zero, element)[0]
