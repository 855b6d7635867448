"""What the rules of loops and branches write into graphs: rules of regions have no builder for the inside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, Self, TypeVar

import numpy as np

from rematc.ir.core import Equation, Graph, Op
from rematc.ir.ops.arithmetic import Add
from rematc.ir.ops.shape import BroadcastInDim
from rematc.ir.ops.structural import Constant
from rematc.ir.splicing import splice
from rematc.ir.types import TensorType
from rematc.ir.values import Derivatives, Types, Value

T = TypeVar("T")


class Zeros(Protocol):
    """What writes zeros: a rule's context, or a graph in the making."""

    def zeros(self, type: TensorType) -> Value: ...


class Inside:
    """A graph in the making, inside of an op: what rules write into graphs.

    Attributes:
        name: of the graph.
        params: its parameters.
        equations: so far.
    """

    def __init__(self, name: str, params: Iterable[Value] = (), equations: Iterable[Equation] = ()) -> None:
        self.name = name
        self.params = list(params)
        self.equations = list(equations)

    @classmethod
    def of(cls, graph: Graph) -> Self:
        """Going on where a graph ends."""
        return cls(graph.name, graph.params, graph.equations)

    def build(self, results: Iterable[Value]) -> Graph:
        """The graph with these results."""
        return Graph(self.name, tuple(self.params), tuple(self.equations), tuple(results))

    def emit(self, op: Op, *operands: Value) -> tuple[Value, ...]:
        """Apply `op`; its results."""
        results = tuple([Value(type) for type in op.infer([value.type for value in operands])])
        self.equations.append(Equation(op, operands, results))
        return results

    def zeros(self, type: TensorType) -> Value:
        """An array of zeros."""
        (scalar,) = self.emit(Constant.of(np.zeros((), type.dtype.numpy)))
        return self.emit(BroadcastInDim(type.shape, ()), scalar)[0] if type.shape else scalar

    def add(self, x: Value, y: Value) -> Value:
        return self.emit(Add(), x, y)[0]

    def inline(self, graph: Graph, operands: Sequence[Value]) -> tuple[Value, ...]:
        """The results of a graph applied to `operands`."""
        return splice(graph, operands, self.equations)


def graph_of(op: Op, operands: Types) -> Graph:
    """The graph that applies one op to operands of these types."""
    params = tuple([Value(type) for type in operands])
    results = tuple([Value(type) for type in op.infer(operands)])
    return Graph(op.name, params, (Equation(op, params, results),), results)


def chosen(values: Sequence[T], flags: Sequence[bool]) -> tuple[T, ...]:
    """The values whose flag is set."""
    return tuple([value for value, is_set in zip(values, flags, strict=True) if is_set])


def others(values: Sequence[T], flags: Sequence[bool]) -> tuple[T, ...]:
    """The values whose flag is not set."""
    return tuple([value for value, is_set in zip(values, flags, strict=True) if not is_set])


def spread(values: Iterable[T], flags: Iterable[bool]) -> tuple[T | None, ...]:
    """The values one after another where the flag is set, None elsewhere."""
    given = iter(values)
    return tuple([next(given) if is_set else None for is_set in flags])


def cts_of(is_linear: Sequence[bool], cts: Iterable[Value | None]) -> Derivatives:
    """What a transpose rule gives: the cts of linear operands, one after another, in their places."""
    return spread(cts, is_linear)


def settled(
    step: Callable[[tuple[bool, ...]], tuple[T, tuple[bool, ...]]], carries: Iterable[bool]
) -> tuple[T, tuple[bool, ...], tuple[bool, ...]]:
    """What `step` gives for flags of a loop's carries to which it adds none, and these flags.

    `step` takes the flags of the carries as they come in; it gives something, and first the flags of the carries as
    they go out. A carry has a flag if its first value has it, or a step gives it to it: found as a fixpoint.
    """
    flags = tuple(carries)
    while True:
        outcome, outgoing = step(flags)
        grown = tuple([old or new for old, new in zip(flags, outgoing, strict=False)])
        if grown == flags:
            return outcome, outgoing, flags
        flags = grown


def reached_carries(
    body: Graph, params: Callable[[tuple[bool, ...]], Sequence[bool]], carries: Sequence[bool]
) -> tuple[bool, ...]:
    """Flags of the carries that a flagged parameter of a step reaches in some step.

    `params` gives the flags of all parameters for those of the carries.
    """

    def step(flags: tuple[bool, ...]) -> tuple[None, tuple[bool, ...]]:
        reached = set(chosen(body.params, params(flags)))
        for eqn in body.equations:
            if not reached.isdisjoint(eqn.operands):
                reached.update(eqn.results)
        return None, tuple([value in reached for value in body.results])

    return settled(step, carries)[2]


def without_unused(eqn: Equation, used: Sequence[bool]) -> Equation:
    """The equation with only the used results, where its op can do with fewer; itself where all are needed."""
    pruned = eqn.op.without_unused(used)
    if pruned is None:
        return eqn
    op, operands, results = pruned
    if len(operands) == len(eqn.operands) and len(results) == len(eqn.results):
        return eqn
    kept = tuple([eqn.operands[index] for index in operands])
    return Equation(op, kept, tuple([eqn.results[index] for index in results]), eqn.loc)


def live_equations(graph: Graph, live: set[Value]) -> tuple[Equation, ...]:
    """The equations that the values in `live` need, and those with effects; `live` gains what these read.

    Of a loop in the graph that is what its used results need: carries that only unused ones need are not live.
    """
    kept = []
    for eqn in reversed(graph.equations):
        used = [value in live for value in eqn.results]
        if any(used) or eqn.op.effect:
            needed = eqn if all(used) else without_unused(eqn, used)
            live.update(needed.operands)
            kept.append(needed)
    kept.reverse()
    return tuple(kept)


def types_text(types: Iterable[TensorType]) -> str:
    """`(f32[4], i32[])`."""
    return f"({', '.join(map(str, types))})"


def with_tangents(
    body: Graph, count: int, has_tangent: tuple[bool, ...], carries: Sequence[bool]
) -> tuple[Graph, tuple[bool, ...]]:
    """The body with zeros for the tangents of carries that a step does not give."""
    wanted = (*[a or b for a, b in zip(carries, has_tangent, strict=False)], *has_tangent[len(carries) :])
    if wanted == has_tangent:
        return body, has_tangent
    inside = Inside.of(body)
    tangents = filled(inside, spread(body.results[count:], has_tangent), body.results[:count], wanted)
    return inside.build((*body.results[:count], *tangents)), wanted


def filled(b: Zeros, given: Sequence[Value | None], like: Sequence[Value], flags: Sequence[bool]) -> tuple[Value, ...]:
    """Where the flag is set the given value, or zeros like it."""
    rows = chosen(tuple(zip(given, like, strict=True)), flags)
    return tuple([b.zeros(value.type) if one is None else one for one, value in rows])


def with_batch(graph: Graph, size: int, found: Sequence[bool], wanted: Sequence[bool]) -> Graph:
    """The graph with results broadcast that have to be batched and are not."""
    if list(found) == list(wanted):
        return graph
    inside = Inside.of(graph)
    results = []
    for value, is_set, is_wanted in zip(graph.results, found, wanted, strict=True):
        shape, rank = value.type.shape, value.type.rank
        is_missing = is_wanted and not is_set
        op = BroadcastInDim((size, *shape), tuple(range(1, rank + 1)))
        results.append(inside.emit(op, value)[0] if is_missing else value)
    return inside.build(results)
