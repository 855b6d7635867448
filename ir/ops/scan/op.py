"""Loops of a fixed number of steps over slices of arrays: `scan`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from rematc.ir.batches import Batch
from rematc.ir.core import (
    Emitter,
    Equation,
    Graph,
    JvpContext,
    Op,
    Origin,
    PartContext,
    SplitContext,
    SplitRegion,
    TransposeContext,
    VmapContext,
)
from rematc.ir.errors import TypeMismatchError
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.bodies import chosen, filled, graph_of, live_equations, settled, spread, types_text, with_tangents
from rematc.ir.ops.conversion import ReducePrecision
from rematc.ir.ops.scan.base import ScanBase, stack_of
from rematc.ir.ops.scan.batch import vmap_scan
from rematc.ir.ops.scan.cut import part_of_step, slicings_of_scan
from rematc.ir.ops.scan.reverse import transpose_scan
from rematc.ir.ops.scan.split import split_scan, split_with_snapshots
from rematc.ir.ops.structural import ToMemory
from rematc.ir.policy import Policy
from rematc.ir.registry import register
from rematc.ir.slicings import Part, Slicing
from rematc.ir.types import TensorType
from rematc.ir.values import Array, Derivatives, Operands, Primals, Tangents, Types, Value

T = TypeVar("T")


@register
@dataclass(frozen=True, slots=True)
class Scan(ScanBase):
    """A loop of fixed length: `(carry, ys[i]) = body(consts, carry, xs[i])` for i = 0, 1, ...

    Operands are consts, first carries, xs; results are last carries, ys. Each of xs and ys has the steps as its
    first dimension.

    Attributes:
        body: one step: (consts, carries, slices of xs) to (carries, slices of ys).
        length: how many steps.
        consts: how many operands are the same in all steps.
        carry: how many operands are carries.
        is_reversed: whether the last step comes first; slices keep their places.
        unroll: how many steps the compiled loop takes at a time.
        snapshots: how many carries the backward pass keeps at a time, taking the steps between them again; 0 for no
            such loop, whose residuals partial evaluation stacks.
    """

    name = "scan"
    body: Graph
    length: int
    consts: int
    carry: int
    is_reversed: bool = False
    unroll: int = 1
    snapshots: int = 0

    def overwrites(self, result: int) -> int | None:
        return self.consts + result if result < self.carry else None

    @property
    def is_unrolled(self) -> bool:
        """Whether the steps stand one after another in the compiled program: there is no loop around them."""
        return self.length < 2 * self.unroll

    def infer(self, operands: Types) -> tuple[TensorType, ...]:
        body = self.body
        if min(self.length, self.consts, self.carry) < 0 or self.unroll < 1:
            raise TypeMismatchError(f"'{self.name}' of '{body.name}' counts less than nothing")
        if len(body.results) < self.carry or len(body.params) < self.consts + self.carry:
            raise TypeMismatchError(f"'{self.name}' of '{body.name}' has more carries than its body")
        expected, carry = self.infer_operands(), self.parts(body.param_types).carry
        if tuple(operands) != expected:
            raise TypeMismatchError(
                f"'{self.name}' of '{body.name}' takes {types_text(expected)}, got {types_text(operands)}"
            )
        results = body.result_types
        if results[: self.carry] != carry:
            raise TypeMismatchError(
                f"'{self.name}' of '{body.name}' carries {types_text(carry)}, but a step gives "
                f"{types_text(results[: self.carry])}"
            )
        return (*carry, *[stack_of(type, self.length) for type in results[self.carry :]])

    def reference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        consts, carry, xs = self.parts(operands)
        stacks = [
            np.zeros((self.length, *type.shape), type.dtype.numpy) for type in self.body.result_types[self.carry :]
        ]
        steps = range(self.length)
        for step in reversed(steps) if self.is_reversed else steps:
            results = evaluate(self.body, [*consts, *carry, *[np.asarray(x[step]) for x in xs]])
            carry = tuple(results[: self.carry])
            for stack, y in zip(stacks, results[self.carry :], strict=True):
                stack[step] = y
        return (*carry, *stacks)

    def jvp(self, b: JvpContext, primals: Primals, results: Primals, tangents: Tangents) -> Derivatives:
        """One loop of primals and tangents."""
        flags = tuple([tangent is not None for tangent in tangents])
        body, has_tangent, carries = settled(
            lambda carries: b.jvp_of(self.body, self.with_carries(flags, carries)), self.parts(flags).carry
        )
        flags = self.with_carries(flags, carries)
        body, has_tangent = with_tangents(body, len(self.body.results), has_tangent, carries)
        op, order = self._interleaved(body, flags, has_tangent)
        operands = [*primals, *filled(b, tangents, primals, flags)]
        joint = dict(zip(order, b.emit(op, *_interleave(self, operands, flags)), strict=True))
        count = len(has_tangent)
        b.instead([joint[index] for index in range(count)])
        return spread([joint[index] for index in range(count, len(joint))], has_tangent)

    def _interleaved(
        self, body: Graph, flags: Sequence[bool], has_tangent: Sequence[bool]
    ) -> tuple[Scan, tuple[int, ...]]:
        """The loop of primals and tangents, and for each of its results its index among (primals, tangents)."""
        count = len(has_tangent)
        tangent_index = spread(range(count, len(body.results)), has_tangent)
        present = [index for index in tangent_index[: self.carry] if index is not None]
        order = (
            *range(self.carry),
            *present,
            *range(self.carry, count),
            *[index for index in tangent_index[self.carry :] if index is not None],
        )
        graph = Graph(
            body.name,
            tuple(_interleave(self, body.params, flags)),
            body.equations,
            tuple([body.results[index] for index in order]),
        )
        op = replace(
            self, body=graph, consts=self.consts + sum(self.parts(flags).consts), carry=self.carry + len(present)
        )
        return op, order

    def transpose(self, b: TransposeContext, cts: Tangents, operands: Operands) -> Derivatives:
        return transpose_scan(self, b, cts, operands)

    def vmap(self, b: VmapContext, batch: Batch) -> tuple[Value, ...]:
        return vmap_scan(self, b, batch)

    def slicings(self, operands: Types, results: Types) -> tuple[Slicing, ...]:
        return slicings_of_scan(self)

    def part(self, b: PartContext, part: Part, operands: Primals) -> tuple[Value, ...]:
        loop = replace(self, body=part_of_step(self, b, part), consts=self.consts + 1)
        return b.emit(loop, *operands[: self.consts], part.index, *operands[self.consts :])

    def split(self, b: SplitContext, is_unknown: Sequence[bool], policy: Policy | None) -> SplitRegion:
        if self.snapshots:
            return split_with_snapshots(self, b, is_unknown, policy)
        return split_scan(self, b, is_unknown, policy)

    def without_unused(self, used: Sequence[bool]) -> tuple[Scan, tuple[int, ...], tuple[int, ...]]:
        """The op with only the used results, and the carries that these need."""
        body, count = self.body, self.carry
        live: set[Value] = set()

        def step(carries: tuple[bool, ...]) -> tuple[tuple[Equation, ...], tuple[bool, ...]]:
            live.update(chosen(body.results, (*carries, *used[count:])))
            kept = live_equations(body, live)
            return kept, tuple([value in live for value in self.parts(body.params).carry])

        kept, _, carries = settled(step, used[:count])
        consts, _, xs = self.parts([value in live for value in body.params])
        operands = tuple(index for index, is_set in enumerate((*consts, *carries, *xs)) if is_set)
        results = tuple(index for index, is_set in enumerate((*carries, *used[count:])) if is_set)
        pruned = Graph(
            body.name,
            tuple([body.params[index] for index in operands]),
            kept,
            tuple([body.results[index] for index in results]),
        )
        return replace(self, body=pruned, consts=sum(consts), carry=sum(carries)), operands, results

    def origin(self, result: int) -> Origin | None:
        """What a step computes; for a carry that is stacked, what the step before computed."""
        value = self.body.results[result]
        carries = self.parts(self.body.params).carry
        if value in carries:
            value = self.body.results[carries.index(value)]
        steps = self.length if result >= self.carry else 1
        for eqn in reversed(self.body.equations):
            if value not in eqn.results:
                continue
            if isinstance(eqn.op, (ReducePrecision, ToMemory)):
                value = eqn.operands[0]
            else:
                inner = eqn.op.origin(eqn.results.index(value))
                return Origin(eqn, steps) if inner is None else Origin(inner.eqn, steps * inner.steps)
        return None

    def flops(self, operands: Types, results: Types) -> int:
        return self.length * sum(eqn.flops for eqn in self.body.equations)

    def regions(self) -> tuple[Graph, ...]:
        return (self.body,)


def each_element(op: Op, b: Emitter, batch: Batch) -> tuple[Value, ...]:
    """The op on each element of a batch, one after another; all results are batched."""
    rows = list(zip(batch.operands, batch.is_batched, strict=True))
    types = [x.type.with_shape(x.type.shape[1:]) if is_set else x.type for x, is_set in rows]
    graph = graph_of(op, types)
    # A loop takes what all its steps share first.
    order = sorted(range(len(rows)), key=lambda index: batch.is_batched[index])
    params = tuple([graph.params[index] for index in order])
    body = Graph(graph.name, params, graph.equations, graph.results)
    loop = Scan(body, batch.size, consts=len(rows) - sum(batch.is_batched), carry=0)
    return b.emit(loop, *[batch.operands[index] for index in order])


def _interleave(op: Scan, values: Sequence[T], flags: Sequence[bool]) -> list[T]:
    """From (primals, present tangents) to consts, their tangents, carries, their tangents, xs, their tangents."""
    count = len(flags)
    tangents = spread(values[count:], flags)
    rows = zip(op.parts(values[:count]), op.parts(tangents), strict=True)
    return [one for primals, row in rows for one in (*primals, *[tangent for tangent in row if tangent is not None])]
