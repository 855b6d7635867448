"""Loops of a fixed number of steps over slices of arrays: `scan`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from rematc.ir.core import (
    Array,
    Derivatives,
    Emitter,
    Graph,
    LinearOperand,
    Op,
    Operands,
    Primals,
    Tangents,
    Types,
    Value,
    register,
)
from rematc.ir.errors import InternalError, TypeMismatchError
from rematc.ir.interpreter import evaluate
from rematc.ir.ops.bodies import Equations, chosen, live_equations, spread, types_text, with_tangents
from rematc.ir.ops.conversion import ReducePrecision
from rematc.ir.ops.loop_batching import vmap_scan
from rematc.ir.ops.regions import (
    OF_REGION,
    JvpOfGraph,
    Origin,
    PartialEvalOfGraph,
    Region,
    SplitRegion,
    TransposeOfGraph,
    VmapOfGraph,
    graph_of,
)
from rematc.ir.ops.scan.reverse import Reversal
from rematc.ir.ops.scan.split import split_scan, split_with_snapshots
from rematc.ir.ops.structural import ToMemory
from rematc.ir.policy import Policy
from rematc.ir.types import TensorType

T = TypeVar("T")


@register
@dataclass(frozen=True, slots=True)
class Scan(Region):
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
    no_jvp = OF_REGION
    no_transpose = OF_REGION

    def parts(self, operands: Sequence[T]) -> tuple[tuple[T, ...], tuple[T, ...], tuple[T, ...]]:
        """Consts, carries and xs apart."""
        end = self.consts + self.carry
        return tuple(operands[: self.consts]), tuple(operands[self.consts : end]), tuple(operands[end:])

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
        expected, carry = self.infer_operands(), self.parts(body.param_types)[1]
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

    def infer_operands(self) -> tuple[TensorType, ...]:
        """The types of the operands."""
        consts, carry, xs = self.parts(self.body.param_types)
        return (*consts, *carry, *[stack_of(type, self.length) for type in xs])

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

    def jvp_region(
        self, b: Emitter, jvp: JvpOfGraph, primals: Primals, tangents: Tangents
    ) -> tuple[Primals, Derivatives]:
        """A carry has a tangent if its first value has one, or a step gives it one: found as a fixpoint."""
        flags = [tangent is not None for tangent in tangents]
        begin, end = self.consts, self.consts + self.carry
        while True:
            body, has_tangent = jvp(self.body, flags)
            grown = [old or new for old, new in zip(flags[begin:end], has_tangent, strict=False)]
            if grown == flags[begin:end]:
                break
            flags[begin:end] = grown
        body, has_tangent = with_tangents(body, len(self.body.results), has_tangent, grown)
        given = [
            b.zeros(primal.type) if is_set and tangent is None else tangent
            for primal, tangent, is_set in zip(primals, tangents, flags, strict=True)
        ]
        op, order = self._interleaved(body, flags, has_tangent)
        operands = [*primals, *[tangent for tangent in given if tangent is not None]]
        results = b.emit(op, *_interleave(self, operands, flags))
        by_place = dict(zip(order, results, strict=True))
        count = len(has_tangent)
        return tuple([by_place[index] for index in range(count)]), spread(
            [by_place[index] for index in range(count, len(results))], has_tangent
        )

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
        consts, _, _ = self.parts(flags)
        op = replace(self, body=graph, consts=self.consts + sum(consts), carry=self.carry + len(present))
        return op, order

    def transpose_region(
        self, b: Emitter, transpose: TransposeOfGraph, cts: Tangents, operands: Operands
    ) -> Derivatives:
        """The loop backwards: it carries cotangents of the carries, and sums of those of the consts."""
        flags = self._linear([isinstance(operand, LinearOperand) for operand in operands])
        linear_carry = self.parts(flags)[1]
        if not all(linear_carry) and not self.snapshots:
            raise InternalError(f"the transpose of 'scan' of '{self.body.name}' has carries that are not linear")
        has_ct = [ct is not None for ct in cts]
        while True:
            body, gets_ct = transpose(self.body, flags, has_ct)
            of_params = [is_set is True for is_set in spread(gets_ct, flags)]
            grown = [old or new for old, new in zip(has_ct, self.parts(of_params)[1], strict=False)]
            if grown == has_ct[: self.carry]:
                break
            has_ct[: self.carry] = grown
        if self.snapshots:
            return Reversal(self, flags, body, of_params, has_ct).emit(b, cts, operands)
        return self._backwards(b, body, (flags, of_params, has_ct), cts, operands)

    def _linear(self, is_linear: list[bool]) -> list[bool]:
        """Which parameters of the body are linear: the linear operands, and carries that these reach."""
        begin, end = self.consts, self.consts + self.carry
        while True:
            reached = set(chosen(self.body.params, is_linear))
            for eqn in self.body.equations:
                if not reached.isdisjoint(eqn.operands):
                    reached.update(eqn.results)
            pairs = zip(is_linear[begin:end], self.body.results, strict=False)
            grown = [is_set or value in reached for is_set, value in pairs]
            if grown == is_linear[begin:end]:
                return is_linear
            is_linear[begin:end] = grown

    def _backwards(
        self,
        b: Emitter,
        body: Graph,
        flags: tuple[Sequence[bool], Sequence[bool], Sequence[bool]],
        cts: Tangents,
        operands: Operands,
    ) -> Derivatives:
        is_linear, gets_ct, has_ct = flags
        known = [value for value, is_set in zip(operands, is_linear, strict=True) if not is_set]
        consts, xs = self.consts - sum(is_linear[: self.consts]), len(operands) - self.consts - self.carry
        params, ct_params = body.params[: len(known)], body.params[len(known) :]
        carry_cts = ct_params[: sum(has_ct[: self.carry])]
        of_consts, of_carry, of_xs = self.parts(spread(body.results, gets_ct))

        inside = Equations(body.equations)
        sums = [Value(ct.type) for ct in of_consts if ct is not None]
        totals = [inside.add(old, ct) for old, ct in zip(sums, [ct for ct in of_consts if ct is not None], strict=True)]
        carried = [
            inside.zeros(value.type) if ct is None else ct
            for ct, value in chosen(
                tuple(zip(of_carry, self.parts(self.body.params)[1], strict=True)), has_ct[: self.carry]
            )
        ]
        graph = Graph(
            body.name,
            (*params[:consts], *sums, *carry_cts, *params[consts:], *ct_params[len(carry_cts) :]),
            tuple(inside.all),
            (*totals, *carried, *[ct for ct in of_xs if ct is not None]),
        )
        op = replace(
            self, body=graph, consts=consts, carry=len(sums) + len(carry_cts), is_reversed=not self.is_reversed
        )
        first = [
            b.zeros(value.type) if ct is None else ct
            for ct, value in chosen(tuple(zip(cts, self.body.results, strict=True)), has_ct)[: len(carry_cts)]
        ]
        given = [ct for ct in cts[self.carry :] if ct is not None]
        values = [value for value in known if isinstance(value, Value)]
        results = iter(
            b.emit(op, *values[:consts], *[b.zeros(one.type) for one in sums], *first, *values[consts:], *given)
        )
        assert xs == len(of_xs)
        out_consts = spread(results, [ct is not None for ct in of_consts])
        out_carry = spread(results, has_ct[: self.carry])
        out_xs = spread(results, [ct is not None for ct in of_xs])
        return (*out_consts, *out_carry, *out_xs)

    def vmap_region(
        self, b: Emitter, vmap: VmapOfGraph, size: int, operands: Primals, is_batched: Sequence[bool]
    ) -> tuple[Value, ...]:
        return vmap_scan(self, b, vmap, size, operands, is_batched)

    def split(self, partial_eval: PartialEvalOfGraph, is_unknown: Sequence[bool], policy: Policy | None) -> SplitRegion:
        if self.snapshots:
            return split_with_snapshots(self, partial_eval, is_unknown, policy)
        return split_scan(self, partial_eval, is_unknown, policy)

    def without_unused(self, used: Sequence[bool]) -> tuple[Scan, tuple[int, ...], tuple[int, ...]]:
        """The op with only the used results, and the carries that these need."""
        body, count = self.body, self.carry
        live = set(chosen(body.results, used))
        carries = list(used[:count])
        while True:
            kept = live_equations(body, live)
            params = self.parts(body.params)[1]
            grown = [is_set or value in live for is_set, value in zip(carries, params, strict=True)]
            if grown == carries:
                break
            carries = grown
            live.update(chosen(body.results[:count], carries))
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
        carries = self.parts(self.body.params)[1]
        if value in carries:
            value = self.body.results[carries.index(value)]
        steps = self.length if result >= self.carry else 1
        for eqn in reversed(self.body.equations):
            if value not in eqn.results:
                continue
            if isinstance(eqn.op, (ReducePrecision, ToMemory)):
                value = eqn.operands[0]
            else:
                inner = eqn.op.origin(eqn.results.index(value)) if isinstance(eqn.op, Region) else None
                return Origin(eqn, steps) if inner is None else Origin(inner.eqn, steps * inner.steps)
        return None

    def flops(self, operands: Types, results: Types) -> int:
        return self.length * sum(eqn.flops for eqn in self.body.equations)


def each_element(op: Op, b: Emitter, size: int, operands: Primals, is_batched: Sequence[bool]) -> tuple[Value, ...]:
    """The op on each element of a batch, one after another; all results are batched."""
    rows = list(zip(operands, is_batched, strict=True))
    types = [x.type.with_shape(x.type.shape[1:]) if is_set else x.type for x, is_set in rows]
    graph = graph_of(op, types)
    # A loop takes what all its steps share first.
    order = sorted(range(len(rows)), key=lambda index: is_batched[index])
    params = tuple([graph.params[index] for index in order])
    body = Graph(graph.name, params, graph.equations, graph.results)
    loop = Scan(body, size, consts=len(rows) - sum(is_batched), carry=0)
    return b.emit(loop, *[operands[index] for index in order])


def stack_of(type: TensorType, length: int) -> TensorType:
    """The type of one such array for each step."""
    return TensorType(type.dtype, (length, *type.shape), type.on_host)


def _interleave(op: Scan, values: Sequence[T], flags: Sequence[bool]) -> list[T]:
    """From (primals, present tangents) to consts, their tangents, carries, their tangents, xs, their tangents."""
    count = len(flags)
    tangents = spread(values[count:], flags)
    rows = zip(op.parts(values[:count]), op.parts(tangents), strict=True)
    return [one for primals, row in rows for one in (*primals, *[tangent for tangent in row if tangent is not None])]
