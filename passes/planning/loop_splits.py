"""Loops in chunks: the backward loop takes the forward one's steps again, a chunk at a time, and stacks no more.

Before:  %1, %2 = scan %x {length=60, body: ... return %c, %h}
         %8 = scan %7, %1, %2 {is_reversed, length=60, body: reads %c and %h}
After:   %1 = scan %x {length=10, body: scan of 6 steps   return the carry that comes in}
         %8 = scan %7, %1 {is_reversed, length=10, body: the scan of 6 steps again, which stacks %c and %h
                                                         scan {is_reversed, length=6, body: reads %c and %h}}

Steps x (carry + residuals) bytes become chunks x carry + steps of a chunk x (carry + residuals), for the time of one
forward pass more (Griewank and Walther, "Revolve", ACM TOMS 26, 2000, of which this is one level). The loops of a chunk
are a pair again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rematc.ir.builder import Builder
from rematc.ir.core import Equation, Graph
from rematc.ir.ops.scan.base import stack_of
from rematc.ir.ops.scan.op import Scan
from rematc.ir.ops.shape import Reshape
from rematc.ir.types import TensorType
from rematc.ir.values import Value
from rematc.passes.planning.loops import LoopPair, is_repeatable, pair_of
from rematc.passes.planning.region_paths import Path, of_another_program


@dataclass(frozen=True, slots=True)
class LoopSplit:
    """That a pair of loops runs in chunks.

    Attributes:
        path, forward, backward: as in `LoopChoice`.
        chunks: how many; they divide the steps.
    """

    path: Path
    forward: int
    backward: int
    chunks: int

    def stacks(self, graph: Graph) -> tuple[int, ...]:
        """Of what the forward loop stacks in the body that the path leads to, what is computed again."""
        pair = pair_of(graph, self.forward, self.backward)
        if pair is None:
            raise of_another_program()
        return pair.own

    def how(self, length: int) -> str:
        """How a loop of so many steps computes it again, in words."""
        return f"in chunks of {length // self.chunks} steps"

    def applied(self, graph: Graph) -> Graph:
        """The graph with both loops in chunks. Raises CompileError where there are no such loops."""
        pair = pair_of(graph, self.forward, self.backward)
        if pair is None or not is_splittable(pair) or not 1 < self.chunks < pair.loop.length:
            raise of_another_program()
        if pair.loop.length % self.chunks:
            raise of_another_program()
        return _Chunks(graph, pair, self.chunks).graph()


def is_splittable(pair: LoopPair, may_repeat: Callable[[Equation], bool] = is_repeatable) -> bool:
    """Whether the steps of the forward loop may run again, and are there to be cut."""
    loop = pair.loop
    return loop.length > 3 and bool(pair.own) and loop.carry > 0 and all(map(may_repeat, _again(pair).equations))


def _again(pair: LoopPair) -> Graph:
    """A step of the forward loop for the backward one: its carries and stacks, and only what these need."""
    loop, body = pair.loop, pair.loop.body
    results = (*body.results[: loop.carry], *[body.results[loop.carry + stack] for stack in pair.own])
    needed, equations = set(results), list[Equation]()
    for eqn in reversed(body.equations):
        if not needed.isdisjoint(eqn.results):
            equations.append(eqn)
            needed.update(eqn.operands)
    return Graph(body.name, body.params, tuple(equations[::-1]), results)


def chunks_for(length: int, carry: int, in_step: int) -> int | None:
    """How many chunks of so many steps take least memory; None where the steps are prime.

    Args:
        length: how many steps there are.
        carry: bytes of the carries.
        in_step: bytes that a step stacks.
    """
    possible = [count for count in range(2, length // 2 + 1) if length % count == 0]
    return min(possible, key=lambda count: count * carry + length // count * in_step, default=None)


class _Chunks:
    """Both loops of a pair in chunks."""

    def __init__(self, graph: Graph, pair: LoopPair, count: int) -> None:
        self._graph, self._pair, self._count = graph, pair, count
        self._steps = pair.loop.length // count
        self._forward, self._backward = graph.equations[pair.forward], graph.equations[pair.backward]
        other = self._backward.op
        assert isinstance(other, Scan), "a pair of loops"
        self._loop, self._other = pair.loop, other
        carries = self._loop.parts(self._loop.body.params).carry
        self._starts = [Value(stack_of(value.type, count), value.name) for value in carries]

    def graph(self) -> Graph:
        """The whole graph with the loops in chunks."""
        equations: list[Equation] = []
        for index, eqn in enumerate(self._graph.equations):
            if index == self._pair.forward:
                equations += self._forward_loop()
            elif index == self._pair.backward:
                equations += self._backward_loop()
            else:
                equations.append(eqn)
        return Graph(self._graph.name, self._graph.params, tuple(equations), self._graph.results)

    def _in_chunks(self, values: Sequence[Value], equations: list[Equation]) -> list[Value]:
        """Stacks of all steps as stacks of chunks."""
        found = []
        for value in values:
            shape = (self._count, self._steps, *value.type.shape[1:])
            result = Value(value.type.with_shape(shape), value.name)
            equations.append(Equation(Reshape(shape), (value,), (result,), self._forward.loc))
            found.append(result)
        return found

    def _joined(self, chunks: Sequence[Value], stacks: Sequence[Value]) -> list[Equation]:
        """The stacks of all steps from those of chunks."""
        return [
            Equation(Reshape(stack.type.shape), (chunk,), (stack,), self._forward.loc)
            for chunk, stack in zip(chunks, stacks, strict=True)
        ]

    def _of_chunk(self, stack: Value) -> Value:
        return Value(stack.type.with_shape((self._count, self._steps, *stack.type.shape[1:])), stack.name)

    def _forward_loop(self) -> list[Equation]:
        loop, eqn, body = self._loop, self._forward, self._loop.body
        own = set(self._pair.own)
        public = [index for index in range(len(body.results) - loop.carry) if index not in own]
        inner = replace(
            loop,
            body=Graph(
                body.name,
                body.params,
                body.equations,
                (*body.results[: loop.carry], *[body.results[loop.carry + index] for index in public]),
            ),
            length=self._steps,
        )
        b = Builder(body.name)
        b.loc = eqn.loc
        params = self._params(b, loop)
        given = b.emit(inner, *params)
        starts = params[loop.consts : loop.consts + loop.carry]
        chunk = b.build(*given, *starts)
        equations: list[Equation] = []
        consts, carry, xs = loop.parts(eqn.operands)
        operands = (*consts, *carry, *self._in_chunks(xs, equations))
        stacks = [eqn.results[loop.carry + index] for index in public]
        chunks = [self._of_chunk(stack) for stack in stacks]
        outer = replace(loop, body=chunk, length=self._count, unroll=1)
        equations.append(Equation(outer, operands, (*eqn.results[: loop.carry], *chunks, *self._starts), eqn.loc))
        return equations + self._joined(chunks, stacks)

    def _backward_loop(self) -> list[Equation]:
        loop, other, eqn = self._loop, self._other, self._backward
        again = replace(loop, body=_again(self._pair), length=self._steps)
        own = {self._forward.results[loop.carry + stack]: place for place, stack in enumerate(self._pair.own)}
        consts, carry, xs = other.parts(eqn.operands)
        of_forward = loop.parts(self._forward.operands)
        left = [value for value in xs if value not in own]
        b = Builder(other.body.name)
        b.loc = eqn.loc
        forward_consts = [b.parameter(value.type, value.name) for value in of_forward.consts]
        own_consts = [b.parameter(value.type, value.name) for value in consts]
        own_carry = [b.parameter(value.type, value.name) for value in carry]
        kept = [b.parameter(self._slice(value), value.name) for value in left]
        forward_xs = [b.parameter(self._slice(value), value.name) for value in of_forward.xs]
        starts = [b.parameter(value.type.with_shape(value.type.shape[1:]), value.name) for value in self._starts]
        stacks = b.emit(again, *forward_consts, *starts, *forward_xs)[loop.carry :]
        slices = iter(kept)
        given = [stacks[own[value]] if value in own else next(slices) for value in xs]
        results = b.emit(replace(other, length=self._steps), *own_consts, *own_carry, *given)
        chunk = b.build(*results)
        equations: list[Equation] = []
        chunked = self._in_chunks([*left, *of_forward.xs], equations)
        operands = (*of_forward.consts, *consts, *carry, *chunked, *self._starts)
        ys = eqn.results[other.carry :]
        chunks = [self._of_chunk(stack) for stack in ys]
        outer = replace(other, body=chunk, length=self._count, consts=other.consts + len(of_forward.consts), unroll=1)
        equations.append(Equation(outer, operands, (*eqn.results[: other.carry], *chunks), eqn.loc))
        return equations + self._joined(chunks, ys)

    def _params(self, b: Builder, loop: Scan) -> list[Value]:
        """Parameters for a chunk of a loop's steps."""
        consts, carry, xs = loop.parts(loop.body.params)
        return [
            *[b.parameter(value.type, value.name) for value in (*consts, *carry)],
            *[b.parameter(stack_of(value.type, self._steps), value.name) for value in xs],
        ]

    def _slice(self, stack: Value) -> TensorType:
        """The type of one chunk of a stack of all steps."""
        return stack.type.with_shape((self._steps, *stack.type.shape[1:]))
